"""What tests of runs share."""

import functools

import pytest
from absl import flags

from experiments.execution import runner
from experiments.execution.batches import Kept


@pytest.fixture(scope="module")
def parsed_flags():
    """Flags at their defaults."""
    flags.FLAGS(["test"])


@pytest.fixture(scope="module")
def shared_programs():
    """Groups of equal static settings and sizes share their compiled programs for the tests of a module.

    Tests of resumption call the runner many times with the same runs; compiling, not training, would take their time.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(runner, "Kept", functools.partial(Kept, programs={}))
        yield
