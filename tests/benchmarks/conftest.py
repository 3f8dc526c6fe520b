"""What tests of benchmarks share."""

import pytest
from absl import flags
from absl.testing import flagsaver

from benchmarks.tools import limit, measure
from experiments.execution import session


@pytest.fixture
def short_measurements(monkeypatch):
    """One turn of one unit, small matrices, and the suite's devices."""
    flags.FLAGS(["test"])
    monkeypatch.setattr(measure, "PAUSE", 0)
    monkeypatch.setattr(limit, "SIZE", 64)
    monkeypatch.setattr(session, "set_up", lambda: None)
    with flagsaver.flagsaver(repeats=1, seconds=0.0):
        yield
