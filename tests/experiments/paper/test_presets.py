"""Presets: every one makes runs, names what it shows, and the rows are those of the paper."""

import pytest

from experiments.command import grids
from experiments.command.tasks import TASKS
from experiments.paper import presets, printed, rows, standing
from experiments.paper.rows import METHODS, Row, translated, written
from experiments.reporting.columns import COLUMNS
from tests.support.runs import MINI, TINY, execute

ALL = presets.presets()


def test_there_is_one_for_each_table_and_figure():
    assert list(ALL) == [*printed.tables(), *printed.figures()]


@pytest.mark.parametrize("name", ALL)
def test_every_row_makes_runs_on_its_task_and_on_embedded_data(name):
    preset = ALL[name]
    assert preset.not_here or preset.rows
    for row in (row for row in preset.rows if not row.impossible):
        (run,) = row.runs(preset.seeds[:1])
        assert run.task_name == row.task in TASKS
        assert run.validation == 0
    small = presets.on_task(preset, MINI)
    assert {row.task for row in small.rows} <= {MINI}
    for row in (row for row in small.rows if not row.impossible):
        (run,) = row.runs((0,), TINY)
        assert (run.task.dataset, run.task.rounds) == ("fashion_mnist_mini", 2)


@pytest.mark.parametrize("preset", [one for one in ALL.values() if not one.not_here], ids=lambda one: one.name)
def test_rows_are_told_apart_and_have_a_fedavg_beside_them(preset):
    labels = [(row.task, row.label) for row in preset.rows]
    assert len(set(labels)) == len(labels)
    if preset.kind == "table":
        assert {task for task, label in labels if label == "fedavg"} == set(preset.tasks)
        assert set(preset.measures) <= COLUMNS.keys()
    for panel in preset.panels:
        assert panel.rows
        assert all(row in preset.rows for row in panel.rows)
        assert set(panel.measures) <= COLUMNS.keys()


def test_every_printed_line_has_a_row():
    for table in printed.tables().values():
        for line in table.lines:
            row = translated(line)
            assert any((one.task, one.label) == (row.task, row.label) for one in ALL[table.id].rows), row.label
    assert {line.method for table in printed.tables().values() for line in table.lines} == METHODS.keys()


@pytest.mark.parametrize(
    ("table", "number", "label"),
    [
        ("performance", 3, "qffl q=0.5"),
        ("performance_hparams", 18, "fedfv alpha=0.1 window=1"),
        ("performance_hparams", 22, "fedeba tau=0.1"),  # FedEBA+ at alpha = 0
        ("theta", 2, "fedeba_plus tau=0.1 alpha=0.9 theta=15"),
        ("momentum", 3, "afl gamma=0.7 server=momentum(0.9)"),
        ("varp", 1, "fedavg server=varp(1.0)"),
        ("noisy_labels", 7, "fedavg label_noise=0.5 objective=lsr"),
        ("dirichlet", 1, "fedavg partition=dirichlet dirichlet=0.1"),
        ("dp", 2, "fedeba_plus tau=0.1 alpha=0.9 privacy=paper(2)"),
        ("dp", 7, "fedavg privacy=client(2) weighting=uniform"),
        ("cifar10_mlp", 18, "fedeba tau=0.1"),
        ("aggregation_baselines", 3, "feddisco a=0.1 b=0.1"),
    ],
)
def test_names_of_the_paper_become_ours(table, number, label):
    line = next(line for line in printed.tables()[table].lines if line.row == number)
    assert translated(line).label == label


def test_a_row_that_we_add_has_what_another_table_prints_for_it():
    added = next(row for row in ALL["performance"].rows if row.label == "fedfv alpha=0.1 window=10")
    assert added.line.value("variance") == printed.Value(56.63, 1.85)
    ours = next(row for row in ALL["performance"].rows if row.label == "prac_fedeba_plus tau=5 alpha=0.9")
    assert ours.line is None


def test_noise_that_no_method_of_ours_has_is_not_run():
    impossible = [row for row in ALL["dp"].rows if row.impossible]
    assert {row.algorithm for row in impossible} == {"qffl", "fedmgda_plus"}
    assert len(impossible) == 4 * 2 * 2


def test_a_written_row_is_a_grid():
    found = written("fashion_mnist_mlp", "fedeba_plus; tau=0.1; theta=0,15")
    assert found == [Row("fashion_mnist_mlp", "fedeba_plus", {"tau": "0.1", "theta": angle}) for angle in ("0", "15")]
    annealed = written("mnist_mlp", "fedeba_plus; tau=1,anneal(1, 0.01)")
    assert [row.given["tau"] for row in annealed] == ["1", "anneal(1, 0.01)"]
    assert found[0].folder == "fashion_mnist_mlp"
    assert written("mnist_mlp", "fedavg; server=varp(1.0); lr=0.2")[0].folder == "mnist_mlp-server"


def test_the_runs_are_those_of_the_plain_sweep():
    """The same settings through `sweep`'s way have the same names, so that their rows count."""
    own = {run.id for row in ALL["performance"].rows if row.task == "fashion_mnist_mlp" for run in row.runs((0, 1))}
    others = {"data_seed": None, "init_seed": None, "sample_seed": None, "validation": 0.0, "state_dtype": "float32"}
    for algorithms, axes in (
        (["fedavg", "qffl", "fedfv", "fedeba"], []),
        (["fedeba_plus"], ["tau=0.1,0.5,1"]),
        (["prac_fedeba_plus"], ["tau=0.1,1,5", "theta=0,15"]),
    ):
        points = grids.grid([grids.parse_axis(axis) for axis in axes])
        swept = grids.make(algorithms, points, task_name="fashion_mnist_mlp", changes={}, seeds=(0, 1), **others)
        assert {run.id for run in swept} <= own


def test_data_that_no_registry_has_is_told(tmp_path):
    for name in ("cifar100", "tiny_imagenet", "reddit"):
        needs, reason = standing.data_of(name, str(tmp_path))
        assert not needs
        assert f"no package registry has {name}" in reason
    assert standing.data_of("cifar10", str(tmp_path)) == ("make data DATASET=cifar10", "")
    assert standing.data_of("fashion_mnist_mini", str(tmp_path)) == ("", "")
    (tmp_path / "cifar100").mkdir()
    (tmp_path / "cifar100" / "train.bin").touch()
    assert standing.data_of("cifar100", str(tmp_path)) == ("", "")


TINY_RUNS = {  # of all rows of all presets, each once: presets share rows
    run.id: run
    for preset in ALL.values()
    for row in presets.on_task(preset, MINI).rows
    if not row.impossible
    for run in row.runs((0,), TINY)
}


@pytest.mark.parametrize("algorithm", sorted({run.algorithm for run in TINY_RUNS.values()}))
def test_every_row_of_every_preset_runs_two_rounds_on_tiny_data(algorithm, tmp_path):
    runs = [run for run in TINY_RUNS.values() if run.algorithm == algorithm]
    found = execute(runs, tmp_path / "out")
    assert {row["run"] for row in found if row["final"]} == {run.id for run in runs}


def test_measures_and_tasks_have_names_of_ours():
    assert set(rows.MEASURES.values()) <= COLUMNS.keys()
    assert set(rows.TASKS.values()) <= TASKS.keys()
