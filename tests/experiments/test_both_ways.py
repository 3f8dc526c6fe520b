"""Global models and personal predictions side by side, in runs, sweeps, tables and pictures; and their memory."""

import csv
import dataclasses
import json

import numpy as np
import pytest
from absl import flags
from rich.console import Console

from experiments import devices, plots, points, report_plots, results, run, run_folder, show, tables
from experiments.report import report
from tests.test_experiments import settings
from tests.test_sweep import execute, make

ROUNDS = 2
MODELS = {"ditto": ["global", "personal"], "focus": ["cluster_0", "cluster_1", "personal"], "fedavg": ["global"]}


@pytest.fixture(scope="module", autouse=True)
def parsed_flags():
    flags.FLAGS(["test"])


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """A run of each method, two rounds, one seed, with a validation split."""
    folder = tmp_path_factory.mktemp("runs")
    return {name: run.train(settings(name, validation=0.1), folder / name) for name in MODELS}


def test_shown_is_the_global_model_or_else_the_personal_predictions():
    assert run_folder.shown(["personal", "global"]) == "global"
    assert run_folder.shown(["mean_theta", "personal"]) == "personal"
    assert run_folder.shown(["global"], "personal") == "global"
    assert run_folder.shown(["global", "personal"], "personal") == "personal"
    assert run_folder.shown(["global"], "mean_theta") == "mean_theta"


@pytest.mark.parametrize("name", MODELS)
def test_every_result_holds_every_model(runs, name):
    folder = runs[name].folder
    rows = run_folder.read_rows(folder / "evals.jsonl")
    assert [(row["split"], row["model"]) for row in rows if row["round"] == ROUNDS] == [
        (split, model) for split in ("test", "validation") for model in MODELS[name]
    ]
    summary = json.loads((folder / "summary.json").read_text())
    shown = run_folder.shown(MODELS[name])
    mean = {row["model"]: row["mean"] for row in rows if (row["round"], row["split"]) == (ROUNDS, "test")}
    assert summary["last_evaluation"]["mean"]["mean"] == pytest.approx(mean[shown], rel=1e-5)
    if name == "fedavg":  # as it always was
        assert "model" not in summary
        assert "other_models" not in summary
        with np.load(folder / "clients.npz") as arrays:
            assert set(arrays.files) == {"accuracy", "loss", "seeds"}
    else:
        assert summary["model"] == shown
        for other, figures in summary["other_models"].items():
            assert figures["last_evaluation"]["mean"]["mean"] == pytest.approx(mean[other], rel=1e-5)
    for model, accuracy in run_folder.client_accuracy(folder).items():
        assert accuracy.mean() == pytest.approx(mean[model], rel=1e-5)
    assert (folder / "curves.png").stat().st_size > 10_000


def test_a_table_of_results_names_both(runs):
    assert list(show.both_ways("ditto", runs["ditto"].last)) == ["ditto", "ditto (personal)"]
    assert list(show.both_ways("focus", runs["focus"].last)) == ["focus (personal)"]
    assert list(show.both_ways("fedavg", runs["fedavg"].last)) == ["fedavg"]


def test_progress_says_whose_accuracy_it_shows(capsys):
    with show.Bar("focus", 10) as bar:
        bar.update(10, "personal", 61.0, 2.0)
    with show.Bar("fedavg", 10) as bar:
        bar.update(10, "global", 60.0, 3.0)
    told = capsys.readouterr().out
    assert "focus: round 10/10  personal acc 61.00 %  var 2.0" in told
    assert "fedavg: round 10/10  acc 60.00 %  var 3.0" in told


def test_a_report_says_which_prediction_a_row_shows(runs, tmp_path):
    folders = [result.folder for result in runs.values()]
    report(folders, tmp_path / "global", plot=False)
    with open(tmp_path / "global" / "settings.csv") as file:
        rows = {row["algorithm"]: row for row in csv.DictReader(file)}
    assert {name: row["prediction"] for name, row in rows.items()} == {"ditto": "", "focus": "personal", "fedavg": ""}
    for name, row in rows.items():
        expected = np.mean(runs[name].recent[run_folder.shown(MODELS[name])]["mean"])
        assert float(row["mean_mean"]) == pytest.approx(expected, rel=1e-5)
    text = (tmp_path / "global" / "report.md").read_text()
    assert "| focus prediction=personal |" in text
    assert "shown in place of a global model" in text
    report(folders, tmp_path / "personal", model="personal", plot=False)
    text = (tmp_path / "personal" / "report.md").read_text()
    assert "| focus |" in text
    assert "| fedavg prediction=global |" in text
    alone = results.group(results.load([runs["fedavg"].folder]))
    assert [setting.label for setting in alone] == ["fedavg"]


def test_pictures_of_both(runs, tmp_path):
    folders = {name: result.folder for name, result in runs.items()}
    plots.compare(folders, tmp_path / "all.png", "title")
    settings_ = results.group(results.load(folders.values()))
    view = report_plots.View("global", 5, "mean", "toy")
    for picture in (report_plots.plane, report_plots.curves, report_plots.clients):
        assert picture(settings_, view, tmp_path / f"{picture.__name__}.png").stat().st_size > 10_000
    table = tables.build(settings_, "title", model="global", last=1)
    console = Console(width=200, record=True)
    console.print(tables.to_rich(table))
    assert "focus prediction=personal" in console.export_text()


# Sweeps.


class Killed(Exception):
    pass


def test_a_sweep_goes_on_with_its_personal_models_in_bfloat16(tmp_path):
    """Rows of both models; a killed sweep ends with the bytes of one that was left alone."""
    wanted = [dataclasses.replace(p, state_dtype="bfloat16") for p in make(("ditto",), grid=("lam=0,0.5",), seeds=(0,))]
    best = show.Best(["lam"], wanted, "test", "mean")
    rows = execute(wanted, tmp_path / "whole", tell=best.tell)
    assert [(row["round"], row["model"]) for row in rows if row["point"] == wanted[0].id] == [
        (t, model) for t in (1, 2) for model in ("global", "personal")
    ]
    assert {row["settings"]["state_dtype"] for row in rows} == {"bfloat16"}
    assert {row["model"] for _, row in best._ranked()} == {"global"}

    def stop(chunk):
        raise Killed

    with pytest.raises(Killed):
        execute(wanted, tmp_path / "killed", tell=stop)
    execute(wanted, tmp_path / "killed")
    assert (tmp_path / "killed/results.jsonl").read_bytes() == (tmp_path / "whole/results.jsonl").read_bytes()


def test_the_live_table_of_a_method_without_a_global_model():
    (point,) = make(("focus",), grid=("lr=0.1",), seeds=(0,))
    best = show.Best([], [point], "test", "mean")
    metrics = dict.fromkeys(show.METRICS, 1.0)
    chunk = [
        {"point": point.id, "status": "ok", "split": "test", "model": model, "round": 1, "final": False, **metrics}
        for model in MODELS["focus"]
    ]
    best.tell(type("Chunk", (), {"points": [point], "rows": chunk, "rounds": 1, "seconds": 0.0}))
    ((label, row),) = best._ranked()
    assert (label, row["model"]) == ("focus seed=0 (personal)", "personal")


def test_points_are_the_same_as_before_there_was_a_choice_of_type():
    (point,) = make(("fedavg",), grid=("lr=0.1",), seeds=(0,))
    narrow = dataclasses.replace(point, state_dtype="bfloat16")
    assert point.settings == dataclasses.asdict(point.task)
    assert "state_dtype" not in json.dumps(point.settings)
    assert point.id != narrow.id
    assert len(points.grouped([point, narrow])) == 2


# Memory.


def test_state_that_does_not_fit_is_told_before_anything_is_compiled(tmp_path, monkeypatch):
    """10 models of 199,210 numbers on 2 devices, and the global one: 16.7 MiB."""
    monkeypatch.setattr(devices, "free_memory", lambda: 12 * 2**20)
    with pytest.raises(ValueError) as error:
        run.train(settings("ditto"), tmp_path / "run")
    assert str(error.value) == (
        "--algorithm=ditto keeps 0.02 GiB of state (10 clients x 1 runs x 2 copies), and 0.01 GiB are free; "
        "give --state_dtype=bfloat16 or fewer --clients or --host_devices=1"
    )
    assert not (tmp_path / "run").exists()
    assert run.train(settings("ditto", state_dtype="bfloat16"), tmp_path / "run", plot=False).last["personal"]
    with pytest.raises(ValueError, match=r"4 runs x 2 copies.*fewer runs at once"):
        execute(make(("ditto",), grid=("lam=0,0.5",)), tmp_path / "sweep")
    execute(make(("fedavg",), grid=("lr=0.1",), seeds=(0,)), tmp_path / "sweep")


def test_memory_is_known():
    assert 2**20 < devices.free_memory() < 2**50
