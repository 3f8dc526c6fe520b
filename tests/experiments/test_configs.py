"""Presets: every one says what it is, and its flags make runs."""

import pytest
from absl import flags
from absl.testing import flagsaver

from experiments import reproduce, robustness, sweep, tune
from experiments.command import cli
from fedeba_jax import ALGORITHMS
from tests.support.runs import ROOT

pytestmark = pytest.mark.usefixtures("parsed_flags")


@pytest.mark.parametrize("preset", sorted((ROOT / "experiments/configs").glob("*.flags")), ids=lambda p: p.stem)
def test_presets_are_sound(preset):
    """Every preset says what, how, how long; its flags make runs."""
    text = preset.read_text()
    assert all(f"# {word}" in text for word in ("Run:", "Time:"))
    assert f"--flagfile=experiments/configs/{preset.name}" in text
    cli.check_flagfiles([f"--flagfile={preset}"])
    with flagsaver.flagsaver():
        flags.FLAGS(["binary", f"--flagfile={preset}"])
        binary = next(one for one in (reproduce, robustness, tune, sweep) if f"-m {one.__name__} " in text)
        assert len(binary.runs()) > 1


def test_tuning_on_fashion_mnist_leaves_out_lp_proj_alone():
    """As docs/tuning.md says: a method that is added later is tuned with the others."""
    with flagsaver.flagsaver():
        flags.FLAGS(["binary", f"--flagfile={ROOT / 'experiments/configs/tune_fashion_mnist.flags'}"])
        assert {run.algorithm for run in tune.runs()} == ALGORITHMS.keys() - {"lp_proj"}


def test_several_evaluations_count_in_every_rung_of_the_tuning_on_fashion_mnist():
    """As docs/tuning.md says; of one evaluation alone the last cohort would choose."""
    with flagsaver.flagsaver():
        flags.FLAGS(["binary", f"--flagfile={ROOT / 'experiments/configs/tune_fashion_mnist.flags'}"])
        asked = tune.Tuning()
        assert asked.rungs == [(16, 80), (8, 140), (4, 260), (2, 500)]
        assert asked.counted() == [2, 3, 5, 5]
        assert {run.task.eval_every for run in asked.test({"fedavg": 0})} == {50}
