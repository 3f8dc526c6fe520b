"""The choice of a setting per algorithm."""

import pytest

from experiments.reporting.loading import View, group, load
from experiments.reporting.selection import choose
from tests.support.folders import both, sweep_folder


def test_the_choice_follows_its_split_and_reports_test_figures(runs):
    settings = group(load([runs / "avg", runs / "sweep"]))
    on_validation = choose(settings, View(metric="mean", split="validation", last=2))
    assert [s.label for s in on_validation.settings] == ["fedavg rounds=6", "fedeba_plus tau=0.1 rounds=4"]
    assert on_validation.settings[1].mean("mean", View(last=2)) == 76
    assert on_validation.notes == ["fedeba_plus: best of 2 settings; left out, diverged or unfinished: 1"]
    on_test = choose(settings, View(metric="mean", split="test", last=2))
    assert on_test.settings[1].label == "fedeba_plus tau=1 rounds=4"
    assert "used the test data" in on_test.notes[0]
    fairest = choose(settings, View(metric="variance", split="test", last=2))
    assert fairest.settings[1].label == "fedeba_plus tau=0.1 rounds=4"
    assert choose(group(load([runs / "avg"])), View(metric="mean", split="validation", last=2)) is None


def test_an_algorithm_that_always_diverged_has_no_choice(tmp_path):
    points = [("fedeba", {"tau": tau}, 0, both(50, 50), 1.0, 2) for tau in (0.1, 1.0)]
    settings = group(load([sweep_folder(tmp_path / "s", points)]))
    choice = choose(settings, View(metric="mean", split="validation", last=1))
    assert choice == ([], ["fedeba: every setting diverged; none is chosen"])


def test_settings_within_noise_of_the_chosen_are_counted(tmp_path):
    points = [
        ("fedeba", {"tau": tau}, seed, both(50, 50 + swing * seed + tau), 1.0)
        for tau, swing in ((0.1, 0), (1.0, 5), (2.0, 0))
        for seed in (0, 1)
    ]
    settings = group(load([sweep_folder(tmp_path / "s", points)]))
    choice = choose(settings, View(metric="mean", split="validation", last=1))
    assert [s.label for s in choice.settings] == ["fedeba tau=1"]
    assert choice.notes == ["fedeba: best of 3 settings; not to be told from it on validation data: 2"]


def test_a_metric_that_is_nowhere_finite_cannot_choose(tmp_path):
    points = [("fedeba", {"tau": tau}, 0, both(50, 50), 1.0) for tau in (0.1, 1.0)]
    settings = group(load([sweep_folder(tmp_path / "s", points)]))
    for setting in settings:
        for row in setting.runs[0].evals["validation", "global"].values():
            row["cv"] = float("nan")
    with pytest.raises(ValueError, match="no setting of fedeba has a finite cv; give another --metric"):
        choose(settings, View(metric="cv", split="validation", last=1))
