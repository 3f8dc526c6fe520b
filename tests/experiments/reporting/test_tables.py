"""Cells, marks, notes and the four formats."""

import csv
import io
import math

import numpy as np
import pytest
from rich.console import Console

from experiments.reporting import columns, tables
from experiments.reporting.loading import group, load
from experiments.reporting.series import View, pooled
from experiments.reporting.statistics import Cell
from fedeba_jax import metrics
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
    assert list(columns.COLUMNS) == [
        *MEASURES, "variance_corrected", "gap", "faa", "bytes", "additional_cost", "rounds_per_second"
    ]  # fmt: skip
    assert {*columns.REPORT, *columns.TERMINAL, *columns.COMPARED, *columns.FRONT} <= set(columns.COLUMNS)
    assert columns.COLUMNS["variance"] == ("variance", "variance", 2, False, 1.0, "value")
    assert columns.column("bytes", 2**30 - 1).title == "bytes, MiB"
    assert columns.column("bytes", 2**30) == ("bytes", "bytes, GiB", 2, False, 2.0**-30, "value")


def test_a_cell_is_the_mean_of_the_last_evaluations_over_seeds(runs):
    row = table_of([runs / "avg"]).rows[0]
    cell = row.cells["mean"]
    assert (cell.mean, cell.std) == (70, 5)  # seeds 65 and 75
    assert (cell.low, cell.high) == (None, None)
    assert row.cells["variance"].mean == 350
    assert row.cells["variance_corrected"].mean == 315  # the noise is a tenth
    assert row.cells["bytes"].mean == 32 * 2**20
    assert row.cells["additional_cost"].mean == 0
    assert table_of([runs / "avg"], last=1).rows[0].cells["mean"].mean == 75
    swept = table_of([runs / "sweep"]).rows[0]
    assert swept.cells["additional_cost"].mean == pytest.approx(1 / 3)  # 6 exchanges in 4 rounds


def test_a_diverged_seed_has_no_corrected_variance(tmp_path):
    """Were it 0, the setting would look fair."""
    rows = [Run("fedavg", {"test": [(50, 30.0)]}, seed=0), Run("fedavg", {"test": [(50, 30.0)]}, seed=1, diverged=1)]
    cells = table_of([write_folder(tmp_path / "f", rows)]).rows[0].cells
    assert np.isnan(cells["variance"].mean)
    assert np.isnan(cells["variance_corrected"].mean)


def test_a_diverged_setting_is_listed_and_never_best(runs):
    table = table_of([runs / "sweep"])
    assert [row.cells["mean"].mark for row in table.rows] == ["second", "best", ""]
    assert [row.cells["variance"].mark for row in table.rows] == ["best", "second", ""]
    assert table.rows[2].setting.status == "diverged: seed 0 in round 3"
    assert "| fedeba_plus tau=10 (diverged: seed 0 in round 3) | 1 | n/a | n/a |" in tables.to_markdown(table)
    assert tables.ONE_SEED not in table.notes


def test_one_seed_says_that_there_is_no_spread(tmp_path):
    for name, mean in (("a", 50), ("b", 60)):
        train_folder(tmp_path / name, f"fed{name}", {0: [(mean, 1.0)]})
    table = table_of([tmp_path / "a", tmp_path / "b"])
    assert tables.ONE_SEED in table.notes
    assert table.rows[0].cells["mean"] == Cell(50, 0, None, None, "second", None)


def test_a_table_says_how_many_evaluations_it_averages(tmp_path):
    for evaluations in (1, 4, 12):
        figures = [(50, 1.0)] * evaluations
        write_folder(tmp_path / str(evaluations), [Run(f"fed{evaluations}", {"test": figures}, planned=4)])

    def told(*names, last=5):
        note = table_of([tmp_path / name for name in names], last=last).notes[0]
        return note.removeprefix("global model, test data; ± is the population std over seeds of ")

    assert told("1") == "the last evaluation"
    assert told("12", last=1) == "the last evaluation"
    assert told("4") == "the mean of the last 2 evaluations"
    assert told("12") == "the mean of the last 5 evaluations"
    assert told("1", "4") == "the mean of the last 2 evaluations (some have only 1)"
    assert told("4", "12") == "the mean of the last 5 evaluations (some have only 2)"


def test_formats_hold_the_figures_and_the_marks(runs):
    table = table_of([runs / "avg", runs / "sweep"])
    markdown, latex = tables.to_markdown(table), tables.to_latex(table)
    # accuracy: 65 and 75; 71 and 81; 72 and 82: the differences to fedavg are 6, 6 and 7, 7
    assert "| fedavg rounds=8 | 2 | 70.00 ± 5.00 | 350.00 ± 0.00 |" in markdown
    assert "| fedeba_plus tau=0.1 rounds=4 | 2 | <u>76.00 ± 5.00</u> | **200.00 ± 0.00** |" in markdown
    assert "| fedeba_plus tau=1 rounds=4 | 2 | **77.00 ± 5.00** | <u>250.00 ± 0.00</u> |" in markdown
    assert "global model, test data" in markdown
    assert r"fedeba\_plus tau=0.1 rounds=4 & 2 & \underline{76.00 $\pm$ 5.00} & \textbf{200.00 $\pm$ 0.00}" in latex
    assert latex.count(r" \\") == 1 + 4
    rows = list(csv.DictReader(tables.to_csv(table).splitlines()))
    assert (rows[1]["algorithm"], rows[1]["tau"], rows[1]["seeds"]) == ("fedeba_plus", "0.1", "0 1")
    assert (rows[0]["tau"], rows[0]["rounds"], rows[0]["evaluated_model"]) == ("", "8", "global")
    assert (rows[1]["mean_mean"], rows[1]["mean_std"], rows[1]["mean_ci95_low"]) == ("76", "5", "")
    assert (rows[1]["mean_mark"], rows[1]["compared_with"]) == ("second", "fedavg rounds=8")
    names = ("difference", "difference_ci95_low", "p", "p_adjusted", "improvement", "common_seeds", "verdict")
    assert [rows[1][f"mean_{name}"] for name in names] == ["6", "", "0.5", "", "1", "2", "too few seeds"]
    assert [rows[0][f"mean_{name}"] for name in names] == [""] * 7
    assert [row["pareto_front"] for row in rows] == ["true", "true", "true", "false"], "fedavg sends least"
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


@pytest.fixture
def six(tmp_path):
    """FedAvg and three others over six seeds: one more accurate, one fairer at the same accuracy, one that diverges."""
    lines = {"fedavg": (60, 100.0), "fedaccurate": (63, 100.0), "fedfair": (60, 50.0), "fedbroken": (70, 1.0)}
    runs = [
        Run(name, {"test": [(mean + seed + (0.1 * seed if name != "fedavg" else 0), variance)]}, seed=seed,
            diverged=1 if (name, seed) == ("fedbroken", 3) else None)
        for name, (mean, variance) in lines.items() for seed in range(6)
    ]  # fmt: skip
    return write_folder(tmp_path / "six", runs)


def test_rows_are_compared_with_the_baseline_seed_by_seed(six):
    table = tables.comparison(table_of([six]))
    assert table.title == "title, compared with fedavg"
    assert [row.setting.algorithm for row in table.rows] == ["fedaccurate", "fedfair"]
    lines = tables.to_markdown(table).splitlines()
    assert lines[2] == (
        "| setting | seeds | Δ global acc. % [95 %] | p | verdict | Δ variance [95 %] | p | verdict "
        "| Δ worst 5 % [95 %] | p | verdict |"
    )
    # accuracy: 3 + 0.1 s against 0.1 s, which is a tie at seed 0
    assert lines[4].startswith("| fedaccurate | 6 | +3.25 [+3.0")
    assert lines[4].split(" | ")[3:8] == [
        "0.0625",
        "no difference shown",
        "+0.00 [+0.00, +0.00]",
        "1",
        "no difference shown",
    ]
    assert lines[5].split(" | ")[5:8] == ["-50.00 [-50.00, -50.00]", "0.0625", "no difference shown"]
    assert tables.RULES in table.notes
    assert tables.FEW_SEEDS not in table.notes
    alone = tables.comparison(table_of([six], keys=("variance",)))
    assert alone.columns[0].title == "Δ variance [95 %]"
    assert tables.comparison(table_of([six], keys=("loss",))) is None
    latex = tables.to_latex(table)
    assert r"$\Delta$ variance [95 \%]" in latex


def test_a_model_for_each_client_is_compared_with_training_alone(tmp_path):
    """Two rows have FedAvg as their baseline, one of which does not differ; one has local_only, with p = 1/32."""
    models = {
        "fedavg": {"global": 60},
        "qffl": {"global": 60},
        "ditto": {"global": 61, "personal": 70},
        "local_only": {"personal": 71},
    }
    runs = [
        Run(name, {("test", model): [(mean + seed, 4.0)] for model, mean in own.items()}, seed=seed)
        for name, own in models.items() for seed in range(6)
    ]  # fmt: skip
    folder = write_folder(tmp_path / "f", runs)

    def found(table):
        return {row.label: (row.baseline, row.cells["mean"].against) for row in table.rows if row.baseline}

    def table_for(model, left_out="", **options):
        series = [one for one in load([folder]) if one.algorithm != left_out]
        return tables.build(group(series, model), "title", model=model, **options)

    table = table_for(None)
    told = found(table)
    assert {label: (other, one.adjusted, one.verdict) for label, (other, one) in told.items()} == {
        "qffl": ("fedavg", 1, "no difference shown"),
        "ditto": ("fedavg", 1 / 16, "no difference shown"),
        "ditto (personal)": ("local_only (personal)", 1 / 32, "worse"),
    }
    assert tables.APART in table.notes
    assert tables.comparison(table).title == "title, compared with fedavg or local_only (personal)"
    assert {label: other for label, (other, _) in found(table_for("global")).items()} == {
        "qffl": "fedavg", "ditto": "fedavg"
    }  # fmt: skip
    assert {label: other for label, (other, _) in found(table_for("personal")).items()} == {
        "qffl prediction=global": "fedavg prediction=global", "ditto": "local_only"
    }  # fmt: skip
    assert set(found(table_for(None, left_out="local_only"))) == {"qffl", "ditto"}, "nothing to be compared with"
    asked = table_for(None, against="fedavg")
    assert {other for other, _ in found(asked).values()} == {"fedavg"}
    assert set(found(asked)) == {"qffl", "ditto", "ditto (personal)", "local_only (personal)"}
    assert tables.APART not in asked.notes


def test_a_verdict_stands_where_enough_rows_are_clear(six):
    table = table_of([six], against="fedfair")
    verdicts = {row.setting.algorithm: row.cells["variance"].against for row in table.rows}
    assert {name: found and found.verdict for name, found in verdicts.items()} == {
        "fedavg": "worse", "fedaccurate": "worse", "fedfair": None, "fedbroken": None
    }  # fmt: skip
    assert [row.baseline for row in table.rows] == ["fedfair", "fedfair", "", ""]


def test_few_seeds_have_no_verdict_and_the_table_says_so(runs):
    table = tables.comparison(table_of([runs / "avg", runs / "sweep"]))
    assert "| fedeba_plus tau=1 rounds=4 | 2 | +7.00 | n/a | too few seeds | -100.00 | n/a | too few seeds |" in (
        tables.to_markdown(table)
    )
    assert tables.FEW_SEEDS in table.notes
    assert tables.comparison(table_of([runs / "avg"])) is None


def test_the_corrected_variance_has_an_interval_and_the_front_a_sign(six):
    table = table_of([six])
    lines = tables.to_markdown(table).splitlines()
    assert "90.00 [90.00, 90.00]" in lines[4]
    assert [line.split(" | ")[-1].rstrip(" |") for line in lines[4:8]] == ["", "●", "●", ""]
    assert tables.ON_FRONT in table.notes
    assert not table_of([six], keys=("mean", "variance")).has_front


def test_the_gap_is_what_clients_would_gain_alone(tmp_path):
    """Alone the clients reach 80, 90, 90 and 100; with FedAvg 50, 60, 60, 70 at seed 0: a gap of 30."""
    alone = [Run("local_only", {("test", "personal"): [(90, 1)]}, seed=seed) for seed in (0, 1)]
    together = [Run("fedavg", {"test": [(60, 1)]}, seed=seed, clients=(-10, 0, 0, 10 + 40 * seed)) for seed in (0, 1)]
    folder = write_folder(tmp_path / "f", [*alone, *together, Run("fedavg", {"test": [(60, 1)]}, seed=2)])
    table = table_of([folder])
    own, fedavg = (row.setting.values("gap", View(row.model)) for row in table.rows)
    assert own == {0: 0, 1: 0}
    assert (fedavg[0], fedavg[1]) == (30, 22.5), "a client that gains by taking part counts 0"
    assert math.isnan(fedavg[2]), "nothing is known of seed 2"
    assert tables.GAP in table.notes
    assert "gap" not in [c.key for c in table_of([write_folder(tmp_path / "g", together)]).columns]


def test_a_few_bytes_put_no_setting_on_the_front(tmp_path):
    cheap = Run("fedavg", {"test": [(60, 60)]}, up=2**20)
    better = Run("fedfv", {"test": [(70, 50)]}, up=2**20 + 40)
    dear = Run("fedeba", {"test": [(75, 50)]}, up=2**22)
    table = table_of([write_folder(tmp_path / "f", [cheap, better, dear])])
    assert [row.on_front for row in table.rows] == [False, True, True]


def test_a_model_for_each_client_is_no_rival_of_one_model_for_all(tmp_path):
    alone = Run("local_only", {("test", "personal"): [(90, 1)]})
    together = [Run(name, {"test": [(mean, mean)]}) for name, mean in {"fedavg": 60, "qffl": 50, "fedeba": 40}.items()]
    table = table_of([write_folder(tmp_path / "f", [alone, *together])])
    assert table.rows[0].cells["mean"].mean == 90
    assert [row.cells["mean"].mark for row in table.rows] == ["", "best", "second", ""]
    assert [row.on_front for row in table.rows] == [False, True, True, True]
    assert tables.NO_RIVAL in table.notes
    both = [alone, Run("ditto", {("test", "personal"): [(80, 1)]})]
    among_themselves = table_of([write_folder(tmp_path / "g", both)])
    assert [row.cells["mean"].mark for row in among_themselves.rows] == ["best", "second"]
    assert tables.NO_RIVAL not in among_themselves.notes


def test_faa_is_the_spread_of_excess_losses(tmp_path):
    """Losses 0.40, 0.55, 1.10, 0.35 beside 0.30, 0.20, 0.45, 0.35 alone: excesses 0.10, 0.35, 0.65, 0."""
    alone = Run("local_only", {("test", "personal"): [(90, 1)]}, losses=(0.30, 0.20, 0.45, 0.35))
    together = Run("fedavg", {"test": [(60, 1)]}, losses=(0.40, 0.55, 1.10, 0.35))
    table = table_of([write_folder(tmp_path / "f", [alone, together])])
    own, fedavg = (row.setting.values("faa", View(row.model))[0] for row in table.rows)
    assert (own, fedavg) == (0, pytest.approx(0.65))
    assert tables.FAA in table.notes
    assert "faa" not in [c.key for c in table_of([write_folder(tmp_path / "g", [together])]).columns]


@pytest.mark.parametrize("with_attack", [False, True], ids=["alone without attack", "alone under the same attackers"])
def test_under_attack_the_gap_and_the_clients_are_those_of_honest_clients(tmp_path, with_attack):
    """Of clients with 50, 0, 60 and 70 % the second attacks; alone they reach 80, 90, 90 and 100: a gap of 30."""
    lies = {"minority_accuracy": 60.0, "attacker_weight": 0.5, "excluded": None, "attackers": [1], "minority": [2]}
    alone = Run("local_only", {("test", "personal"): [(90, 1)]}, attacked=lies if with_attack else None)
    together = Run("fedavg", {"test": [(60, 1)]}, clients=(-10, -60, 0, 10), attacked=lies)
    own, fedavg = group(load([write_folder(tmp_path / "f", [alone, together])]))
    assert pooled(fedavg, "global").accuracy.tolist() == [50, 60, 70]
    assert len(pooled(fedavg, "global").low) == 3
    assert fedavg.values("gap", View()) == {0: 30}
    assert len(pooled(own, "personal").accuracy) == (3 if with_attack else 4)
    assert own.values("gap", View("personal")) == {0: 0}


def test_the_corrected_variance_is_near_that_of_the_true_accuracies(tmp_path):
    """Clients of known accuracy, tested on 20 examples each: the noise is two thirds of what is measured."""
    rng = np.random.default_rng(0)
    true = np.linspace(0.5, 0.7, 200)
    rows = []
    for seed in range(6):
        accuracy = 100 * rng.binomial(20, true) / 20
        noise = float(metrics.sampling_noise(accuracy, np.full(200, 20)))
        rows += [Run("fedavg", {"test": [(accuracy.mean(), accuracy.var())]}, seed=seed, noise=noise)]
    cell = table_of([write_folder(tmp_path / "f", rows)]).rows[0].cells
    assert cell["variance"].mean > 3 * 1e4 * true.var()
    assert cell["variance_corrected"].mean == pytest.approx(1e4 * true.var(), rel=0.2)
    assert cell["variance_corrected"].low < 1e4 * true.var() < cell["variance_corrected"].high
    none = [Run("fedavg", {"test": [(50, 1.0)]}, noise=2.0)]
    assert table_of([write_folder(tmp_path / "g", none)]).rows[0].cells["variance_corrected"].mean == 0


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
