"""Which evaluation of a run is read: the last ones, the last one, or the most accurate one."""

import math

import pytest

from experiments.execution.folder import cleaned
from experiments.paper import evidence, presets, readings
from experiments.paper.comparison import sheet
from experiments.paper.readings import READINGS
from experiments.paper.rows import Row
from experiments.reporting.loading import group, load
from tests.support.folders import Run, write_folder

TASK = "fashion_mnist_mlp"
PERFORMANCE = presets.presets()["performance"]
FEDAVG = next(row for row in PERFORMANCE.rows if (row.task, row.label) == (TASK, "fedavg"))
CURVE = [(80, 70), (87, 62), (84, 80), (85, 100)]  # accuracy and variance: the second evaluation is the best


def test_a_run_has_a_figure_by_each_reading(tmp_path):
    runs = [Run("fedavg", {"test": CURVE}), Run("fedavg", {"test": CURVE}, seed=1, diverged=8)]
    run, diverged = load([write_folder(tmp_path / "f", runs)])
    by_reading = {name: (run.value("mean", view), run.value("variance", view)) for name, view in READINGS.items()}
    assert by_reading == {"last5": (84.5, 90), "last": (85, 100), "best": (87, 62)}
    assert run.value("variance_corrected", READINGS["best"]) == pytest.approx(62 * 0.9)
    assert run.value("bytes", READINGS["best"]) == run.value("bytes", READINGS["last"]), "of the whole run"
    assert math.isnan(diverged.value("mean", READINGS["best"]))


def test_readings_are_told_by_their_distance_to_the_paper(tmp_path, monkeypatch):
    """FedAvg is printed with 86.49 and 62.44: the most accurate evaluation is 0.51 and 0.44 away."""
    seeds, eight = range(6), {"rounds": 8}
    records = [run.record for run in FEDAVG.runs(seeds, eight)]
    runs = [
        Run("fedavg", {"test": CURVE}, r["hparams"], seed, r["settings"], planned=8)
        for seed, r in zip(seeds, map(cleaned, records), strict=True)
    ]
    found = evidence.gather([write_folder(tmp_path / TASK, runs, task=TASK)])
    whole = Row.runs
    monkeypatch.setattr(Row, "runs", lambda row, seeds, changes=None: whole(row, seeds, eight))
    sheets = {
        name: sheet(PERFORMANCE, TASK, [FEDAVG], lambda row: row.runs(seeds), found, view=view)
        for name, view in READINGS.items()
    }
    read = readings.read(sheets)
    assert [(one.measure, one.paper) for one in read[:2]] == [("mean", 86.49), ("variance", 62.44)]
    lines = readings.lines(read)
    assert lines[0] == ("global acc. %", "mean of the last 5 (`last5`)", "1", "1.99", "-1.99", "0", "0")
    assert lines[5] == ("variance", "most accurate (`best`)", "1", "0.44", "-0.44", "0", "1")
    assert len(lines) == 3 * len(read)
    (line,) = readings.settings(found, seeds)
    assert line[:5] == ("as we run it", "fedavg", "6", "84.50 ± 0.00", "90.00 ± 0.00")
    assert line[6:8] == ("87.00 ± 0.00", "62.00 ± 0.00")


def test_a_variance_that_goes_up_and_down_is_told(tmp_path):
    runs = [Run("fedavg", {"test": [(80, 50), (80, 150)] * 15}, seed=seed) for seed in range(2)]
    (setting,) = group(load([write_folder(tmp_path / "f", runs)]))
    assert readings.unsteadiness(setting) == pytest.approx(50)
