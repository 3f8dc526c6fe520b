"""What tests of runs share."""

import functools

import pytest
from absl import flags

from experiments.execution import batches
from experiments.execution.batches import Group


@pytest.fixture(scope="module")
def parsed_flags():
    """Flags at their defaults."""
    flags.FLAGS(["test"])


@pytest.fixture(scope="module")
def shared_programs():
    """Groups of equal static settings and sizes share their compiled programs for the tests of a module.

    Tests of resumption call the runner many times with the same runs; compiling, not training, would take their time.
    """
    compiled, compile_chunk = {}, Group.chunk
    starts, start = {}, Group.start

    def shared_chunk(group, rounds, *arguments):
        key = (group.program, group.batch_runs, group.hosted, group.tables(group.missing[:1]).train.rows.shape, rounds)
        if key not in compiled:
            compiled[key] = compile_chunk(group, rounds, *arguments)
        group._compiled[rounds] = compiled[key]
        return compiled[key]

    def shared_start(group, runs):
        group._init = group._init or starts.setdefault(group.program, group.program.init())
        return start(group, runs)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(batches, "make_model", functools.cache(batches.make_model))
        patch.setattr(Group, "chunk", shared_chunk)
        patch.setattr(Group, "start", shared_start)
        yield
