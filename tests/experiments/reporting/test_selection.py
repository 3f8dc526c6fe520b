"""The choice of a setting per algorithm."""

import pytest

from experiments.reporting.loading import group, load
from experiments.reporting.selection import baseline, choose
from experiments.reporting.series import View
from tests.support.folders import Run, both, sweep_folder, write_folder


def test_the_choice_follows_its_split_and_reports_test_figures(runs):
    settings = group(load([runs / "avg", runs / "sweep"]))
    on_validation = choose(settings, View(metric="mean", split="validation", last=2))
    assert [s.label for s in on_validation.settings] == ["fedavg rounds=8", "fedeba_plus tau=0.1 rounds=4"]
    assert on_validation.settings[1].mean("mean", View(last=2)) == 76
    few = "fewer than 6 seeds cannot tell them apart"
    assert on_validation.notes == [f"fedeba_plus: best of 2 settings; {few}; left out, diverged or unfinished: 1"]
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


def test_settings_that_the_seeds_cannot_tell_from_the_chosen_are_counted(tmp_path):
    points = [
        ("fedeba", {"tau": tau}, seed, both(50, 50 + swing * (-1) ** seed + tau), 1.0)
        for tau, swing in ((0.1, 0), (1.0, 0), (1.5, 5), (2.0, 0))
        for seed in range(8)
    ]
    settings = group(load([sweep_folder(tmp_path / "s", points)]))
    choice = choose(settings, View(metric="mean", split="validation", last=1))
    assert [s.label for s in choice.settings] == ["fedeba tau=2"]
    assert choice.notes == ["fedeba: best of 4 settings; not shown to be worse on validation data: 1"]


def test_a_metric_that_is_nowhere_finite_cannot_choose(tmp_path):
    points = [("fedeba", {"tau": tau}, 0, both(50, 50), 1.0) for tau in (0.1, 1.0)]
    settings = group(load([sweep_folder(tmp_path / "s", points)]))
    for setting in settings:
        for row in setting.runs[0].evals["validation", "global"].values():
            row["cv"] = float("nan")
    with pytest.raises(ValueError, match="no setting of fedeba has a finite cv; give another --metric"):
        choose(settings, View(metric="cv", split="validation", last=1))


def labels(found):
    return {own.label: other.label for own, other in found.items()}


def test_the_baseline_is_fedavg_where_it_is_or_what_was_asked_for(runs):
    settings = group(load([runs / "avg", runs / "sweep"]))
    tau = [f"fedeba_plus tau={value} rounds=4" for value in ("0.1", "1")]
    assert labels(baseline(settings)) == dict.fromkeys(tau, "fedavg rounds=8"), "what diverged takes no part"
    assert labels(baseline(settings, tau[0])) == {"fedavg rounds=8": tau[0], tau[1]: tau[0]}
    assert labels(baseline(settings, "fedeba_plus")) == {}, "which of them?"
    assert labels(baseline(settings[1:])) == {}
    with pytest.raises(ValueError, match=r"--baseline=x is not among the settings; give an algorithm \(fedavg, "):
        baseline(settings, "x")


def test_a_baseline_is_of_the_same_data_and_of_the_same_parameters_where_there_are_several(tmp_path):
    def settings(name, rates, concentrations):
        runs = [
            Run(algorithm, {"test": [(50, 1)]}, settings={"lr": lr, "dirichlet": concentration})
            for algorithm in ("fedavg", "fedprox")
            for lr in (rates if algorithm == "fedavg" else (0.1, 1.0))
            for concentration in (concentrations if algorithm == "fedavg" else (0.5, 5.0))
        ]
        return group(load([write_folder(tmp_path / name, runs)]))

    found = labels(baseline(settings("one", [0.1], [0.5])))
    assert found == {f"fedprox lr={lr} dirichlet=0.5": "fedavg lr=0.1 dirichlet=0.5" for lr in ("0.1", "1")}
    found = labels(baseline(settings("many", [0.1, 1.0], [0.5, 5.0])))
    assert len(found) == 4
    assert all(own.removeprefix("fedprox") == other.removeprefix("fedavg") for own, other in found.items())
