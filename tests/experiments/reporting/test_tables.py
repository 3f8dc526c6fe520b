"""Cells, marks, notes and the four formats."""

import csv
import io

import pytest
from rich.console import Console

from experiments.reporting import columns, tables
from experiments.reporting.loading import group, load
from experiments.reporting.statistics import Cell
from fedeba_jax.metrics import MEASURES
from tests.support.folders import Run, both, sweep_folder, train_folder, write_folder


def table_of(folders, **options):
    return tables.build(group(load(folders)), "title", **({"model": "global", "last": 2} | options))


def printed(table, **options):
    console = Console(width=200, file=io.StringIO(), **options)
    tables.show(table, console=console)
    return console.file.getvalue()


@pytest.fixture
def methods(tmp_path):
    """A method with both models, one with personal predictions alone, and one with a global model alone."""
    models = {
        "ditto": {"global": 60, "personal": 70},
        "focus": {"cluster_0": 50, "personal": 65},
        "fedavg": {"global": 61},
    }
    runs = [
        Run(name, {("test", model): [(mean, 4.0), (mean, 4.0)] for model, mean in own.items()})
        for name, own in models.items()
    ]
    return write_folder(tmp_path / "methods", runs)


def test_every_measure_has_a_column():
    assert list(columns.COLUMNS) == [*MEASURES, "bytes", "additional_cost", "rounds_per_second"]
    assert columns.COLUMNS["variance"] == ("variance", "variance", 2, False, 1.0)
    assert columns.column("bytes", 2**30 - 1).title == "bytes, MiB"
    assert columns.column("bytes", 2**30) == ("bytes", "bytes, GiB", 2, False, 2.0**-30)


def test_a_cell_is_the_mean_of_the_last_evaluations_over_seeds(runs):
    row = table_of([runs / "avg"]).rows[0]
    cell = row.cells["mean"]
    assert (cell.mean, cell.std) == (70, 5)  # seeds 65 and 75
    assert cell.half_width == pytest.approx(12.7062 * 5)  # t_{0.975, 1} std(ddof=1) / sqrt(2)
    assert row.cells["variance"].mean == 350
    assert row.cells["bytes"].mean == 24 * 2**20
    assert row.cells["additional_cost"].mean == 0
    assert table_of([runs / "avg"], last=1).rows[0].cells["mean"].mean == 75
    swept = table_of([runs / "sweep"]).rows[0]
    assert swept.cells["additional_cost"].mean == pytest.approx(1 / 3)  # 6 exchanges in 4 rounds


def test_a_diverged_setting_is_listed_and_never_best(runs):
    table = table_of([runs / "sweep"])
    assert [row.cells["mean"].mark for row in table.rows] == ["second", "best", ""]
    assert [row.cells["variance"].mark for row in table.rows] == ["best", "second", ""]
    assert table.rows[2].setting.status == "diverged: seed 0 in round 3"
    assert "| fedeba_plus tau=10 (diverged: seed 0 in round 3) | 1 | n/a | n/a |" in tables.to_markdown(table)
    assert tables.ONE_SEED not in table.notes


def test_one_seed_says_that_there_is_no_noise_estimate(tmp_path):
    for name, mean in (("a", 50), ("b", 60)):
        train_folder(tmp_path / name, f"fed{name}", {0: [(mean, 1.0)]})
    table = table_of([tmp_path / "a", tmp_path / "b"])
    assert tables.ONE_SEED in table.notes
    assert table.rows[0].cells["mean"] == Cell(50, 0, None, "second", None)


def test_a_table_says_how_many_evaluations_it_averages(tmp_path):
    for evaluations in (1, 2, 7):
        figures = [(50, 1.0)] * evaluations
        write_folder(tmp_path / str(evaluations), [Run(f"fed{evaluations}", {"test": figures}, planned=4)])

    def told(*names, last=5):
        note = table_of([tmp_path / name for name in names], last=last).notes[0]
        return note.removeprefix("global model, test data; ± is the population std over seeds of ")

    assert told("1") == "the last evaluation"
    assert told("7", last=1) == "the last evaluation"
    assert told("2") == "the mean of the last 2 evaluations"
    assert told("7") == "the mean of the last 5 evaluations"
    assert told("1", "2") == "the mean of the last 2 evaluations (some have only 1)"
    assert told("2", "7") == "the mean of the last 5 evaluations (some have only 2)"


def test_formats_hold_the_figures_and_the_marks(runs):
    table = table_of([runs / "avg", runs / "sweep"])
    markdown, latex = tables.to_markdown(table), tables.to_latex(table)
    # accuracy: 65 and 75; 71 and 81; 72 and 82: the differences to the best are 7, 7 and 1, 1: no noise at all
    assert "| fedavg rounds=6 | 2 | 70.00 ± 5.00 | 350.00 ± 0.00 |" in markdown
    assert "| fedeba_plus tau=0.1 rounds=4 | 2 | <u>76.00 ± 5.00</u> | **200.00 ± 0.00** |" in markdown
    assert "| fedeba_plus tau=1 rounds=4 | 2 | **77.00 ± 5.00** | <u>250.00 ± 0.00</u> |" in markdown
    assert "global model, test data" in markdown
    assert r"fedeba\_plus tau=0.1 rounds=4 & 2 & \underline{76.00 $\pm$ 5.00} & \textbf{200.00 $\pm$ 0.00}" in latex
    assert latex.count(r" \\") == 1 + 4
    rows = list(csv.DictReader(tables.to_csv(table).splitlines()))
    assert (rows[1]["algorithm"], rows[1]["tau"], rows[1]["seeds"]) == ("fedeba_plus", "0.1", "0 1")
    assert (rows[0]["tau"], rows[0]["rounds"], rows[0]["evaluated_model"]) == ("", "6", "global")
    assert (rows[1]["mean_mean"], rows[1]["mean_std"], rows[1]["mean_ci95_half_width"]) == ("76", "5", "63.53102368")
    assert (rows[1]["mean_mark"], rows[1]["mean_within_noise_of_best"]) == ("second", "false")
    assert (rows[1]["bytes_mean"], rows[3]["bytes_mean"]) == (str(4 * 2**30), "")
    assert rows[3]["status"] == "diverged: seed 0 in round 3"


def test_no_column_of_the_csv_has_a_name_twice(tmp_path):
    runs = [
        Run("fedavg", {"test": [(50, 1)] * n}, settings={"model": model}) for n in (1, 2) for model in ("mlp", "cnn")
    ]
    text = tables.to_csv(table_of([write_folder(tmp_path / "f", runs)]))
    head = text.splitlines()[0].split(",")
    assert len(head) == len(set(head))
    rows = list(csv.DictReader(text.splitlines()))
    assert [(row["rounds"], row["model"], row["evaluated_model"]) for row in rows] == [
        ("2", "cnn", "global"), ("2", "mlp", "global"), ("4", "cnn", "global"), ("4", "mlp", "global")
    ]  # fmt: skip


def test_what_is_within_noise_of_the_best_is_marked(tmp_path):
    train_folder(tmp_path / "a", "feda", {0: [(60, 1)], 1: [(70, 1)]})
    train_folder(tmp_path / "b", "fedb", {0: [(65, 1)], 1: [(66, 1)]})  # -5 and 4 of the best
    table = table_of([tmp_path / "a", tmp_path / "b"])
    assert "≈ **" not in tables.to_markdown(table)
    assert "| fedb | 2 | **65.50 ± 0.50** |" in tables.to_markdown(table)
    assert "| feda | 2 | ≈ <u>65.00 ± 5.00</u> |" in tables.to_markdown(table)
    assert r"$\approx$ \underline{65.00 $\pm$ 5.00}" in tables.to_latex(table)
    assert tables.NOISE in table.notes


def test_long_tables_show_their_best_rows(tmp_path):
    points = [("fedeba", {"tau": float(i)}, 0, both(i, i), 1.0) for i in range(1, tables.MOST_ROWS + 3)]
    table = table_of([sweep_folder(tmp_path / "s", points)])
    assert [row.setting.label for row in tables.best_rows(table, "mean")][:1] == ["fedeba tau=3"]
    assert [row.setting.label for row in tables.best_rows(table, "worst5")][:1] == ["fedeba tau=3"]
    assert [row.setting.label for row in tables.best_rows(table, "cv")][:1] == ["fedeba tau=3"]
    assert "the best 40 of 42 rows; all are in the files" in printed(table)
    assert len(tables.to_csv(table).splitlines()) == 1 + tables.MOST_ROWS + 2


def test_a_pipe_shows_marks_by_signs_and_a_terminal_by_styles(runs):
    table = table_of([runs / "avg", runs / "sweep"])
    plain = printed(table)
    assert "*77.00 ± 5.00*" in plain
    assert "_76.00 ± 5.00_" in plain
    assert tables.PLAIN_LEGEND in plain
    terminal = printed(table, force_terminal=True)
    assert "\x1b[1m77.00 ± 5.00" in terminal
    assert tables.LEGEND.split(",")[0] in terminal


def test_labels_with_brackets_are_not_taken_for_styles(tmp_path):
    table = table_of([write_folder(tmp_path / "f", [Run("fed[bold]avg", {"test": [(50, 1)]})])])
    assert "fed[bold]avg" in printed(table)


def test_a_row_says_which_prediction_it_shows(methods):
    table = tables.build(group(load([methods])), "title", model="global")
    assert [row.label for row in table.rows] == ["ditto", "focus prediction=personal", "fedavg"]
    assert any("shown in place of a global model" in note for note in table.notes)
    assert "focus prediction=personal" in printed(table)


def test_global_and_personal_rows_of_each_setting(methods):
    table = tables.build(group(load([methods]), model=None), "title", model=None)
    assert {row.label: row.cells["mean"].mean for row in table.rows} == {
        "ditto": 60, "ditto (personal)": 70, "focus (personal)": 65, "fedavg": 61
    }  # fmt: skip
    assert tables.PERSONAL in table.notes
    assert table.notes[0].startswith("test data; ")
    rows = list(csv.DictReader(tables.to_csv(table).splitlines()))
    assert [row["evaluated_model"] for row in rows] == ["global", "personal", "personal", "global"]


def test_other_columns_can_be_asked_for(tmp_path):
    timings = [{"runs": ["0"], "rounds": 20, "seconds": 2.0, "compiled": False}]
    runs = [Run(name, {"test": [(50, 1)]}) for name in ("feda", "fedb")]
    folder = write_folder(tmp_path / "f", runs, timings=timings)
    text = tables.to_markdown(table_of([folder], keys=("loss", "bytes", "rounds_per_second")))
    assert "| setting | seeds | loss | bytes, MiB | rounds/s |" in text
    assert "| feda | 1 | 1.0000 | 8.00 | 10.0 |" in text
    assert "| fedb | 1 | 1.0000 | 8.00 | n/a |" in text
    assert "rounds_per_second" not in tables.to_csv(table_of([folder]))
