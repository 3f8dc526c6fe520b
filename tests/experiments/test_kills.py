"""kill -9 at random moments, 105 times in all: resumed to its end, a run has the bytes of one that was left alone."""

import pytest

from experiments.execution import folder
from tests.support.runs import TINY_FLAGS, kill_at_random, start

KILLS = 15  # of each
RESULT_FILES = (folder.MARK, folder.RESULTS, folder.ROUNDS, folder.SUMMARY)
SETTINGS = {
    "fedavg": ["--algorithm=fedavg"],
    "fedeba_plus": ["--algorithm=fedeba_plus"],
    "ditto": ["--algorithm=ditto"],
    "fedfv": ["--algorithm=fedfv"],
    "afl": ["--algorithm=afl"],
    "fedeba_plus, varp": ["--algorithm=fedeba_plus", "--server=varp(1.0)"],
    "fedeba_plus, momentum": ["--algorithm=fedeba_plus", "--server=momentum(0.9)"],
}


def contents(out):
    return {name: (out / name).read_bytes() for name in RESULT_FILES}


@pytest.mark.slow
@pytest.mark.parametrize("setting", SETTINGS)
def test_killed_at_random_moments_it_ends_with_the_same_bytes(tmp_path, setting):
    def begin(out):
        changes = ["--rounds=40", "--eval_every=2", "--seeds=0,1", "--noplot", *SETTINGS[setting]]
        folders = [f"--compilation_cache={tmp_path / 'cache'}", f"--out={out}"]
        return start("experiments.train", *TINY_FLAGS, *changes, *folders, stdout=None, stderr=None)

    whole, *others = kill_at_random(begin, tmp_path, KILLS, setting)
    for out in others:
        assert contents(out) == contents(whole)
