"""summary.json and the tables that a binary prints in the end."""

import json

import pytest

from experiments.reporting import summary
from experiments.reporting.loading import load
from fedeba_jax.metrics import MEASURES
from tests.support.folders import Run, origin, write_folder

CLAIM = {"text": "(3, 1e-05)-private", "epsilon": 3.0, "guarantee": True}
MIB = 2**20


@pytest.fixture
def folder(tmp_path):
    """FedAvg with two seeds and six evaluations."""
    figures = {s: [(5, 9)] * 3 + [(10, 9), (60 + 10 * s, 400), (70 + 10 * s, 300)] for s in (0, 1)}
    return write_folder(tmp_path / "avg", [Run("fedavg", {"test": figures[s]}, {"mu": 1.0}, s) for s in figures])


def test_a_summary_holds_the_figures_over_seeds(folder):
    content = summary.summarize(load([folder]))
    assert (content["format"], content["version"]) == ("fedeba_jax summary", 2)
    (setting,) = content["settings"]
    assert (setting["algorithm"], setting["hparams"], setting["seeds"]) == (
        "fedavg", {"mu": 1.0, "weighting": "examples"}, [0, 1],
    )  # fmt: skip
    assert setting["settings"] == {"lr": 0.1, "eval_every": 2, "rounds": 12, "validation": 0.1}
    assert (setting["rounds"], setting["diverged"]) == ({"done": 12, "planned": 12}, {})
    figures = setting["models"]["global"]
    assert list(figures) == ["last_evaluation", "mean_of_last_3"]  # half of six
    assert list(figures["last_evaluation"]) == [*MEASURES, "variance_corrected"]
    assert figures["last_evaluation"]["mean"] == {
        "mean": 75, "std": 5, "ci95": None, "values": [70, 80]
    }  # fmt: skip
    assert figures["mean_of_last_3"]["mean"]["values"] == [46.66667, 53.33333]  # seven digits
    assert setting["communication"] == {
        "bytes_down": [36 * MIB] * 2, "bytes_up": [12 * MIB] * 2, "exchanges": [12, 12], "additional_cost": [0, 0]
    }  # fmt: skip
    assert "privacy" not in setting


def test_at_most_five_evaluations_are_averaged_and_each_model_is_there(tmp_path):
    figures = {("test", model): [(50.0 + i, 1.0) for i in range(11)] for model in ("personal", "cluster_0")}
    figures["validation", "personal"] = [(99.0, 1.0)] * 11
    (setting,) = summary.summarize(load([write_folder(tmp_path / "f", [Run("focus", figures)])]))["settings"]
    assert list(setting["models"]) == ["cluster_0", "personal"]
    assert setting["models"]["personal"]["mean_of_last_5"]["mean"] == {
        "mean": 58, "std": 0, "ci95": None, "values": [58]
    }  # fmt: skip


def test_a_diverged_seed_has_no_figures(tmp_path):
    runs = [Run("fedavg", {"test": [(50, 1), (60, 1)]}, seed=seed, diverged=3 if seed else None) for seed in (0, 1)]
    (setting,) = summary.summarize(load([write_folder(tmp_path / "f", runs)]))["settings"]
    assert setting["diverged"] == {"1": 3}
    assert setting["models"]["global"]["last_evaluation"]["mean"] == {
        "mean": None, "std": None, "ci95": None, "values": [60, None]
    }  # fmt: skip


def test_privacy_is_that_of_the_worst_seed(tmp_path):
    worse = CLAIM | {"epsilon": 4.0}
    runs = [Run("fedavg", {"test": [(50, 1)]}, seed=i, privacy=claim) for i, claim in enumerate((CLAIM, worse))]
    (setting,) = summary.summarize(load([write_folder(tmp_path / "f", runs)]))["settings"]
    assert setting["privacy"] == worse


def written(folder):
    summary.write(folder)
    return (folder / "summary.json").read_bytes()


def test_the_same_rows_give_the_same_bytes(folder, tmp_path):
    """Neither the clock nor the commit nor the timings nor an earlier summary make a difference."""
    first = written(folder)
    other = tmp_path / "other"
    write_folder(
        other, [], origins=[origin("b" * 40)], timings=[{"runs": [], "rounds": 1, "seconds": 1, "compiled": 0}]
    )
    (other / "results.jsonl").write_bytes((folder / "results.jsonl").read_bytes())
    assert written(other) == first
    assert written(folder) == first
    assert json.loads(first) == summary.summarize(load([folder]))
    assert {p.name for p in folder.iterdir()} == {"experiment.json", "results.jsonl", "summary.json"}


def test_a_failure_leaves_the_earlier_summary(folder, monkeypatch):
    first = written(folder)
    monkeypatch.setattr(summary, "summarize", lambda _: {"a": 1, "b": object()})
    with pytest.raises(TypeError, match="not JSON serializable"):
        summary.write(folder)
    assert (folder / "summary.json").read_bytes() == first


def test_the_tables_in_the_end(folder, capsys):
    (setting,) = summary.show(load([folder]))
    assert (setting.algorithm, setting.diverged) == ("fedavg", {})
    told = capsys.readouterr().out
    assert "toy_task, seeds 0, 1: last evaluation" in told
    assert "toy_task, seeds 0, 1: mean of the last 3 evaluations" in told
    assert "75.00 ± 5.00" in told
    assert "50.00 ± 3.33" in told
    assert "last 5" not in told
    assert "privacy" not in told


def test_one_evaluation_is_one_table_and_privacy_is_told(tmp_path, capsys):
    run = Run("fedavg", {"test": [(50, 1)]}, privacy=CLAIM)
    summary.show(load([write_folder(tmp_path / "one", [run])]), title="my run")
    told = capsys.readouterr().out
    assert told.count("my run: last evaluation") == 1
    assert "mean of" not in told
    assert "privacy: (3, 1e-05)-private\n" in told
    summary.show(load([write_folder(tmp_path / "two", [run, run._replace(algorithm="fedeba")])]))
    assert "privacy of fedeba: (3, 1e-05)-private\n" in capsys.readouterr().out


def test_what_diverged_is_returned_and_shown(tmp_path, capsys):
    runs = [Run("fedavg", {"test": [(50, 1)] * 2}, seed=4, diverged=3), Run("fedeba", {"test": [(50, 1)] * 2}, seed=4)]
    settings = summary.show(load([write_folder(tmp_path / "f", runs)]))
    assert [setting.diverged for setting in settings] == [{4: 3}, {}]
    assert "fedavg (diverged: seed 4 in round 3)" in capsys.readouterr().out


def test_many_seeds_that_diverged_are_told_together(tmp_path):
    figures = {"test": [(50, 1)] * 2}
    runs = [Run("fedavg", figures, seed=seed, diverged=seed + 2 if seed < 3 else None) for seed in range(6)]
    (setting,) = summary.show(load([write_folder(tmp_path / "f", runs)]))
    assert setting.status == "diverged: 3 of 6 seeds in rounds 2 to 4"
