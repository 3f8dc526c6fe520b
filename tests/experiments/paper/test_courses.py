"""How many rounds a run needs to reach an accuracy, by hand."""

import math

from experiments.execution.folder import cleaned
from experiments.paper import courses, evidence, presets
from experiments.paper.comparison import sheet
from experiments.paper.rows import Row
from experiments.reporting.loading import load
from tests.support.folders import Run, write_folder

TASK = "fashion_mnist_mlp"
PERFORMANCE = presets.presets()["performance"]
SEEDS, SHORT = range(6), {"rounds": 8, "eval_every": 2}
FAST, SLOW = ([(accuracy, 50) for accuracy in own] for own in ((60, 81, 79, 86), (50, 60, 70, 80)))


def test_the_first_evaluation_with_an_accuracy_counts_whatever_follows(tmp_path):
    (run,) = load([write_folder(tmp_path / "f", [Run("fedavg", {"test": FAST})])])
    rounds = sorted(run.curve("mean", courses.VIEW))
    assert [courses.needed(run, level) for level in (60, 80, 86)] == [rounds[0], rounds[1], rounds[3]]
    assert math.isnan(courses.needed(run, 87))


def test_rows_are_compared_with_fedavg_seed_by_seed(tmp_path, monkeypatch):
    labels = ("fedavg", "fedsgd", "qffl q=0.5")
    rows = [row for row in PERFORMANCE.rows if row.task == TASK and row.label in labels]
    whole = Row.runs
    monkeypatch.setattr(Row, "runs", lambda row, seeds, changes=None: whole(row, seeds, SHORT))
    runs = []
    for row, curve in zip(rows, (FAST, SLOW, FAST), strict=True):
        for seed, record in zip(SEEDS, [cleaned(run.record) for run in row.runs(SEEDS)], strict=True):
            runs.append(Run(row.algorithm, {"test": curve}, record["hparams"], seed, record["settings"], planned=8))
    found = evidence.gather([write_folder(tmp_path / TASK, runs, task=TASK)])
    made = sheet(PERFORMANCE, TASK, rows, lambda row: row.runs(SEEDS), found)
    fedavg, slow, same = courses.lines(made, labels, (80, 86))
    assert fedavg == ("`fedavg`", "6", "4", "8", "82.50 [82.50, 82.50]", "50.00 [50.00, 50.00]", "45.00 [45.00, 45.00]")
    assert len(fedavg) == len(courses.head((80, 86)))
    assert slow[:4] == ("`fedsgd`", "6", "8: +4 [+4, +4], p 0.062, no difference shown", "not reached by 6 of 6 seeds")
    assert slow[4] == "75.00 [75.00, 75.00]: -7.50 [-7.50, -7.50], p 0.062, no difference shown"
    assert same[2:4] == ("4: +0 [+0, +0], p 1, no difference shown", "8: +0 [+0, +0], p 1, no difference shown")
    assert courses.lines(made, labels[1:], (80,)) == [], "nothing to compare with"
