"""kill -9 at random moments, 105 times in all: resumed to its end, a run has the bytes of one that was left alone."""

import random
import signal
import time

import pytest

from experiments.execution import folder
from tests.support.runs import TINY_FLAGS, binary, start

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
    def arguments(name):
        folders = [f"--compilation_cache={tmp_path / 'cache'}", f"--out={tmp_path / name}"]
        return [*TINY_FLAGS, "--rounds=40", "--eval_every=2", "--seeds=0,1", "--noplot", *SETTINGS[setting], *folders]

    assert binary("experiments.train", *arguments("whole")).returncode == 0  # compiles
    begun = time.monotonic()
    assert binary("experiments.train", *arguments("timed")).returncode == 0
    duration, kills, tries, rng = time.monotonic() - begun, 0, 0, random.Random(setting)
    assert contents(tmp_path / "timed") == contents(tmp_path / "whole")
    while kills < KILLS:
        name = f"killed{tries}"
        tries += 1
        for _ in range(5):
            process = start("experiments.train", *arguments(name))
            time.sleep(rng.uniform(0.1, 0.9) * duration)
            if process.poll() is not None:  # the machine is faster now: this one came to its end
                break
            process.send_signal(signal.SIGKILL)
            kills += 1
            process.communicate()
        assert binary("experiments.train", *arguments(name)).returncode == 0
        assert contents(tmp_path / name) == contents(tmp_path / "whole")
