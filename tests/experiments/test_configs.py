"""Presets: every one says what it is, and its flags make runs."""

import pytest
from absl import flags
from absl.testing import flagsaver

from experiments import robustness, sweep, train
from experiments.command import cli
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
        if "experiments.robustness" in text:
            assert len(robustness.runs()) > 1
        elif "experiments.sweep" in text:
            assert len(sweep.runs()) > 1
        else:
            assert train.runs()
