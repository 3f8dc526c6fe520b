"""One loop for all binaries: one compilation, stopped and resumed at any moment, and what it refuses."""

import json
import shutil

import numpy as np
import pytest

from experiments.execution import devices, folder, runner
from experiments.execution.batches import How, Kept
from fedeba_jax import checkpoint
from fedeba_jax.data import sources
from fedeba_jax.data.sources.raw import DataError
from fedeba_jax.models import NORMALIZATION
from tests.support.marks import slow_but
from tests.support.runs import Killed, compilations, execute, final_rows, kill_after, make
from tests.support.tiny_set import spec_of, write_idx

pytestmark = [pytest.mark.xdist_group("runner"), pytest.mark.usefixtures("shared_programs")]
GRID = {"grid": ("tau=0.5,1,2", "alpha=0.1,0.9"), "seeds": (0, 1)}


def contents(path, names=folder.TABLES):
    return {name: (path / name).read_bytes() for name in names}


# A sweep of 12 runs in batches of 4.


@pytest.fixture(scope="module")
def swept(tmp_path_factory, shared_programs):
    """The folder, its rows, and the programs that were compiled."""
    out = tmp_path_factory.mktemp("sweep")
    with compilations() as compiled:
        rows = execute(make(**GRID), out, batch_runs=4, log_rounds=True)
    return out, rows, compiled


def test_one_compilation_serves_all_runs(swept):
    assert len(swept[2]) == 1


def test_one_row_for_each_run_and_evaluation(swept):
    _, rows, _ = swept
    assert len(rows) == 12 * 2
    assert {(row["hparams"]["tau"], row["hparams"]["alpha"], row["seed"]) for row in rows} == {
        (tau, alpha, seed) for tau in (0.5, 1.0, 2.0) for alpha in (0.1, 0.9) for seed in (0, 1)
    }
    final = [row for row in rows if row["final"]]
    assert len(final) == 12
    assert all(len(row["client_accuracy"]) == len(row["client_loss"]) == 10 for row in final)
    assert final[0]["exchanges"] == 4
    assert not any("client_accuracy" in row for row in rows if not row["final"])


@pytest.mark.parametrize("after", slow_but([3], [1, 3, 4]))
def test_stopped_and_started_again_ends_with_the_same_bytes(swept, tmp_path, after):
    """Stopped after any chunk, or in the middle of writing the next rows."""
    runs = make(**GRID)
    with pytest.raises(Killed):
        execute(runs, tmp_path, kill_after(after), batch_runs=4, log_rounds=True)
    for name in folder.TABLES:
        with open(tmp_path / name, "a") as table:
            table.write('{"run": "half a li')
    again = []
    execute(runs, tmp_path, again.append, batch_runs=4, log_rounds=True)
    assert len(again) == 6 - after
    assert [chunk.start for chunk in again][:1] == [after % 2]
    assert contents(tmp_path, (*folder.TABLES, folder.MARK)) == contents(swept[0], (*folder.TABLES, folder.MARK))


def test_progress_is_told_as_a_plan_and_chunks(tmp_path):
    runs, told = make("fedavg", seeds=(0, 1, 2), steps=3), []  # no other test has compiled this
    runner.execute(runs, tmp_path, told.append, how=How(batch_runs=2))
    plan, *chunks = told
    assert isinstance(plan, runner.Plan)
    assert (plan.runs, plan.missing) == (runs, runs)
    assert [([run.seed for run in c.runs], c.start, c.rounds, c.compiled) for c in chunks] == [
        ([0, 1], 0, 1, True), ([0, 1], 1, 1, False), ([2], 0, 1, False), ([2], 1, 1, False)
    ]  # fmt: skip
    assert all(chunk.seconds > 0 for chunk in chunks)
    timings = folder.read_rows(tmp_path / folder.TIMINGS)
    assert [(len(row["runs"]), row["rounds"], row["compiled"]) for row in timings] == [
        (2, 1, True), (2, 1, False), (1, 1, False), (1, 1, False)
    ]  # fmt: skip


# As `train` calls it: two seeds, one row per round.


@pytest.fixture(scope="module")
def trained(tmp_path_factory, shared_programs):
    """Two seeds of FedEBA+, two rounds, with a validation split."""
    out = tmp_path_factory.mktemp("runs") / "plus"
    execute(make(seeds=(0, 1), validation=0.1), out, log_rounds=True, only_these=True)
    return out


def test_a_folder_holds_everything(trained):
    assert {path.name for path in trained.iterdir()} == {*folder.OURS, folder.LOCK} - {folder.SUMMARY}
    experiment = json.loads((trained / "experiment.json").read_text())
    first, second = experiment["runs"].values()
    assert first["settings"]["cohort_size"] == 3
    choices = {"fair_scale": None, "prior": "none", "weigh_by": "after"}
    assert first["hparams"] == {"tau": 0.1, "alpha": 0.9, "theta": 0.0, **choices}
    assert (first["seed"], second["seed"]) == (0, 1)
    assert (first["rounds"], experiment["varies"]) == (2, [])
    (origin,) = experiment["origins"]
    assert origin["data"]["source"] == "embedded"
    assert len(origin["data"]["md5"]["x_train"]) == 32
    assert {"python", "packages", "commit", "backend", "devices"} <= set(origin)
    rounds = folder.read_rows(trained / "rounds.jsonl")
    assert [(row["seed"], row["round"]) for row in rounds] == [(0, 1), (1, 1), (0, 2), (1, 2)]
    assert {"gate", "angle", "loss_min", "loss_max", "weight_entropy", "bytes_up", "cohort"} <= set(rounds[0])
    results = folder.read_rows(trained / "results.jsonl")
    assert len(results) == 2 * 2 * 2  # rounds, seeds, splits
    assert np.shape([row["client_accuracy"] for row in final_rows(results)]) == (2, 10)


def test_several_seeds_are_the_single_runs(trained, tmp_path):
    """The second of two seeds is bit-equal to the run of that seed alone, under the same client map."""
    (one,) = final_rows(execute(make(seeds=(1,), validation=0.1), tmp_path, client_map="map"))
    both = final_rows(folder.read_rows(trained / "results.jsonl"))
    assert both[1] == one


def test_the_same_call_is_bit_identical(trained, tmp_path):
    execute(make(seeds=(0, 1), validation=0.1), tmp_path, log_rounds=True)
    assert contents(tmp_path) == contents(trained)


def test_what_is_finished_is_not_trained_again(trained):
    before, told = contents(trained, folder.OURS[:3]), []
    runner.execute(make(seeds=(0, 1), validation=0.1), trained, told.append, log_rounds=True, only_these=True)
    (plan,) = told
    assert plan.missing == []
    assert contents(trained, folder.OURS[:3]) == before


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"seeds": (0,)}, "seed=1 there, 0 now"),
        ({"seeds": (0, 1), "lr": 0.2}, "lr=0.1 there, 0.2 now"),
        ({"seeds": (0, 1), "text": "tau=0.5,alpha=0.1"}, "tau=0.1 there, 0.5 now, alpha=0.9 there, 0.1 now"),
    ],
)
def test_a_folder_of_other_runs_is_refused_and_what_differs_is_named(trained, changes, told):
    before = contents(trained)
    with pytest.raises(ValueError) as error:
        execute(make(validation=0.1, **changes), trained, only_these=True)
    assert f"holds a run that is not asked for ({told}); give another folder, or --overwrite" in str(error.value)
    assert contents(trained) == before


# Folders that grow, and folders that lost something.


def test_what_waits_is_planned_and_run_by_a_later_call(tmp_path):
    runs, told = make("fedavg", grid=("lr=0.1,0.2",)), []
    runner.execute(runs, tmp_path, told.append, only_these=True, now=lambda run: run.task.lr == 0.2)
    assert [run.task.lr for run in told[0].runs] == [0.2]
    assert list(folder.description(tmp_path)["runs"]) == [run.id for run in runs]
    runner.execute(runs, tmp_path, told.append, only_these=True)
    assert {run.task.lr for chunk in told[3:] for run in chunk.runs if isinstance(chunk, runner.Chunk)} == {0.1}
    assert len(runner.done_in(tmp_path)) == 2


def test_programs_are_forgotten_before_the_system_maps_no_more(tmp_path, monkeypatch):
    """They take hundreds of its mappings each; without more, XLA crashed in the middle of a sweep of 86 programs."""
    runs, kept = make(["fedavg", "fedeba"]), Kept()
    rows = execute(runs, tmp_path / "kept", kept=kept)
    every = len(kept.programs)
    monkeypatch.setattr(devices, "mapped", lambda: 1.0)
    assert execute(runs, tmp_path / "forgotten", kept=kept) == rows
    assert 0 < len(kept.programs) < every


def test_a_larger_grid_runs_only_what_is_missing(tmp_path):
    execute(make("fedavg", grid=("lr=0.1,0.2",)), tmp_path)
    told = []
    rows = execute(make("fedavg", grid=("lr=0.1,0.2",), seeds=(0, 1)), tmp_path, told.append)
    assert {run.seed for chunk in told for run in chunk.runs} == {1}
    assert len({row["run"] for row in rows}) == 4
    again = []
    execute(make("fedavg", grid=("lr=0.1,0.2",), seeds=(0, 1)), tmp_path, again.append)
    assert not again
    assert len(json.loads((tmp_path / "experiment.json").read_text())["runs"]) == 4


def test_a_batch_that_is_half_done_is_resumed_when_the_grid_grows(tmp_path, capsys):
    few, many = (make("fedavg", grid=("lr=0.1,0.2",), seeds=seeds) for seeds in ((0,), (0, 1)))
    with pytest.raises(Killed):
        execute(few, tmp_path, kill_after(1))
    told = []
    rows = execute(many, tmp_path, told.append)
    assert [([run.seed for run in chunk.runs], chunk.start) for chunk in told] == [
        ([0, 0], 1), ([1, 1], 0), ([1, 1], 1)
    ]  # fmt: skip
    assert sorted((row["run"], row["round"]) for row in rows) == sorted((r.id, t) for r in many for t in (1, 2))
    assert "aside" not in capsys.readouterr().out


def test_a_batch_that_cannot_be_resumed_starts_over(tmp_path, capsys):
    """It had more runs than are run at once now: no row is there twice."""
    runs = make("fedavg", grid=("lr=0.1,0.2",))
    with pytest.raises(Killed):
        execute(runs, tmp_path, kill_after(1), batch_runs=2)
    rows = execute(runs, tmp_path, batch_runs=1)
    assert "results.jsonl.aside" in capsys.readouterr().out
    assert [(row["run"], row["round"]) for row in rows] == [(run.id, t) for run in runs for t in (1, 2)]
    assert len(folder.read_rows(tmp_path / "results.jsonl.aside")) == 2


def test_a_part_of_the_grid_that_is_done_leaves_the_half_done_batch_alone(tmp_path):
    runs = make("fedavg", grid=("lr=0.1,0.2",))
    with pytest.raises(Killed):
        execute(runs, tmp_path, kill_after(3), batch_runs=1)
    before = contents(tmp_path, (folder.RESULTS, folder.CHECKPOINT))
    execute(runs[:1], tmp_path, batch_runs=1)
    assert contents(tmp_path, (folder.RESULTS, folder.CHECKPOINT)) == before


def test_a_stopped_batch_goes_first_when_other_runs_were_put_before_it(tmp_path):
    (stopped,) = make("fedavg")
    with pytest.raises(Killed):
        execute([stopped], tmp_path, kill_after(1))
    told = []
    execute([*make("fedavg", steps=1), stopped], tmp_path, told.append)
    assert [(chunk.runs[0].task.steps, chunk.start) for chunk in told] == [(2, 1), (1, 0), (1, 1)]


def test_without_a_checkpoint_finished_rows_are_kept_and_others_moved_aside(tmp_path, capsys):
    runs = make("fedavg", grid=("lr=0.1,0.2",))
    whole = execute(runs, tmp_path / "whole", batch_runs=1, log_rounds=True)
    out = tmp_path / "out"
    with pytest.raises(Killed):
        execute(runs, out, kill_after(3), batch_runs=1, log_rounds=True)
    for path in (out / folder.CHECKPOINT, checkpoint.before(out / folder.CHECKPOINT)):
        path.unlink()
    told = []
    assert execute(runs, out, told.append, batch_runs=1, log_rounds=True) == whole
    assert [(chunk.runs[0].id, chunk.start) for chunk in told] == [(runs[1].id, 0), (runs[1].id, 1)]
    assert contents(out) == contents(tmp_path / "whole")
    aside = folder.read_rows(out / "results.jsonl.aside")
    assert [(row["run"], row["round"]) for row in aside] == [(runs[1].id, 1)]
    assert len(folder.read_rows(out / "rounds.jsonl.aside")) == 1
    assert "cannot be resumed" in capsys.readouterr().out


@pytest.mark.parametrize("left", ["experiment.json.tmp", "results.jsonl"])
def test_a_process_that_was_killed_at_its_first_word_does_not_block_the_folder(tmp_path, left):
    (run,) = make("fedavg")
    if left == "results.jsonl":  # rows half written, before any checkpoint
        folder.describe(tmp_path, [run], {})
    (tmp_path / left).write_text('{"run": "half a li')
    assert [row["round"] for row in execute([run], tmp_path)] == [1, 2]


@pytest.mark.slow  # bfloat16: test_batches; personal models resumed: test_recovery
def test_personal_models_in_bfloat16_are_resumed(tmp_path):
    """Rows of both models; a killed run ends with the bytes of one that was left alone."""
    runs = make("ditto", grid=("lam=0,0.5",), state_dtype="bfloat16")
    rows = execute(runs, tmp_path / "whole")
    assert [(row["round"], row["model"]) for row in rows if row["run"] == runs[0].id] == [
        (t, model) for t in (1, 2) for model in ("global", "personal")
    ]
    assert {row["settings"]["state_dtype"] for row in rows} == {"bfloat16"}
    with pytest.raises(Killed):
        execute(runs, tmp_path / "killed", kill_after(1))
    execute(runs, tmp_path / "killed")
    assert contents(tmp_path / "killed", ["results.jsonl"]) == contents(tmp_path / "whole", ["results.jsonl"])


# Divergence.


def test_a_diverged_run_is_marked_and_leaves_its_neighbours_alone(tmp_path):
    runs = make("fedavg", grid=("lr=0.1,1e30",), rounds=3)
    maps = {"batch_runs": 2, "run_map": "map", "client_map": "map"}
    rows = execute(runs, tmp_path / "both", log_rounds=True, **maps)
    good, bad = ([row for row in rows if row["settings"]["lr"] == lr] for lr in (0.1, 1e30))
    assert {row["status"] for row in bad} == {"diverged"}
    assert bad[-1]["diverged_round"] in (1, 2)
    assert bad[-1]["mean"] is None
    assert "client_accuracy" not in bad[-1]
    alone = execute(runs[:1], tmp_path / "alone", **maps)
    assert good == alone
    rounds = folder.read_rows(tmp_path / "both" / "rounds.jsonl")
    logged = [row["round"] for row in rounds if row["run"] == runs[1].id]
    assert logged == list(range(1, bad[-1]["diverged_round"] + 1))  # eval_every is 1: no chunk after the one
    assert [row["round"] for row in rounds if row["run"] == runs[0].id] == [1, 2, 3]


def test_a_batch_that_diverged_ends_early_with_final_rows(tmp_path):
    runs, told = make("fedavg", grid=("lr=1e30,1e31",), rounds=30), []
    rows = execute(runs, tmp_path, told.append)
    assert len(told) < 5
    last = [row for row in rows if row["round"] == rows[-1]["round"]]
    assert [(row["final"], row["status"]) for row in last] == [(True, "diverged")] * 2
    assert {row["final"] for row in rows[:-2]} <= {False}
    again = []
    execute(runs, tmp_path, again.append)
    assert not again


# Refusals.


def test_two_processes_in_one_folder_are_refused(tmp_path):
    with folder.Lock(tmp_path), pytest.raises(ValueError, match="another process is writing to this folder"):
        execute(make("fedavg"), tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["lock"]


def test_overwrite_removes_our_files_and_no_others(trained, tmp_path):
    out = tmp_path / "out"
    shutil.copytree(trained, out)
    (out / "notes.txt").write_text("mine")
    (out / "curves.png").write_text("a picture")
    rows = execute(make("fedavg"), out, only_these=True, overwrite=True)
    assert {row["algorithm"] for row in rows} == {"fedavg"}
    assert not (out / "rounds.jsonl").exists()
    assert ((out / "notes.txt").read_text(), (out / "curves.png").read_text()) == ("mine", "a picture")
    assert [run["algorithm"] for run in folder.description(out)["runs"].values()] == ["fedavg"]


@pytest.mark.parametrize("overwrite", [False, True])
def test_what_is_not_ours_is_neither_used_nor_touched(tmp_path, overwrite):
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(ValueError, match="holds files that are not of an experiment"):
        execute(make("fedavg"), tmp_path, overwrite=overwrite)
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]
    with pytest.raises(ValueError, match="is a file; give a folder"):
        execute(make("fedavg"), tmp_path / "notes.txt", overwrite=overwrite)


@pytest.mark.parametrize("name", ["config.json", "sweep.json"])
def test_folders_of_older_versions_are_refused_in_one_line(tmp_path, name):
    (tmp_path / name).write_text("{}")
    for options in ({}, {"overwrite": True}, {"only_these": True}):
        with pytest.raises(ValueError, match=rf"older version of fedeba_jax \({name}\); run it again") as error:
            execute(make("fedavg"), tmp_path, **options)
        assert "\n" not in str(error.value)
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_missing_and_corrupt_data_are_told_with_the_remedy(trained, tmp_path):
    runs, out = make("fedavg", task_name="mnist_mlp"), tmp_path / "out"
    with pytest.raises(DataError, match=r"run `python -m experiments\.fetch --dataset=mnist"):
        execute(runs, out, data_dir=str(tmp_path))
    (tmp_path / "mnist").mkdir(exist_ok=True)
    (tmp_path / "mnist" / "train-images-idx3-ubyte").write_bytes(b"not idx")
    with pytest.raises(DataError, match=r"train-labels-idx1-ubyte.*missing"):
        execute(runs, out, data_dir=str(tmp_path))
    assert not out.exists(), "nothing is made before the data is there"
    before = contents(trained, folder.OURS[:3])
    with pytest.raises(DataError):
        execute(runs, trained, data_dir=str(tmp_path), overwrite=True)
    assert contents(trained, folder.OURS[:3]) == before, "nor is anything replaced"


# Several data sets in one folder.


@pytest.fixture
def other_data(tmp_path, monkeypatch):
    """Where a second data set, `other`, lies: 60 images of 4 x 5, three classes."""
    rng = np.random.default_rng(1)
    labels = {
        "y_train": np.repeat(np.arange(3, dtype=np.uint8), 20),
        "y_test": np.repeat(np.arange(3, dtype=np.uint8), 10),
    }
    images = {
        f"x_{split}": rng.integers(0, 256, (len(labels[f"y_{split}"]), 4, 5, 1), np.uint8)
        for split in ("train", "test")
    }
    monkeypatch.setitem(sources.DATASETS, "other", spec_of(images | labels))
    monkeypatch.setitem(NORMALIZATION, "other", ((0.5,), (0.25,)))
    write_idx(tmp_path / "data" / "other", images | labels)
    return str(tmp_path / "data")


def test_a_grid_of_data_sets_loads_each_and_keeps_them_apart(other_data, tmp_path):
    runs = make("fedavg", grid=("dataset=fashion_mnist_mini,other",))
    rows = execute(runs, tmp_path / "both", data_dir=other_data)
    assert {row["settings"]["dataset"] for row in rows} == {"fashion_mnist_mini", "other"}
    origins = json.loads((tmp_path / "both" / "experiment.json").read_text())["origins"]
    assert [origin["data"]["source"] for origin in origins] == ["embedded", "raw files"]
    for run in runs:
        own = [row for row in rows if row["run"] == run.id]
        assert {origins[row["origin"]]["data"]["name"] for row in own} == {run.task.dataset}
        alone = execute([run], tmp_path / run.task.dataset, data_dir=other_data)
        without = [[{k: v for k, v in row.items() if k != "origin"} for row in several] for several in (own, alone)]
        assert without[0] == without[1]
    model_bytes = [row["bytes_up"] for row in rows if row["round"] == 1]
    assert model_bytes[0] > 4 * model_bytes[1]  # the models are of their own images


def test_the_checkpoint_says_what_belongs_to_it(tmp_path):
    runs = make("fedavg")
    with pytest.raises(Killed):
        execute(runs, tmp_path, kill_after(1), log_rounds=True)
    journal, leaves = checkpoint.load(tmp_path / "checkpoint.bin")
    counted = {"results.jsonl": 1, "rounds.jsonl": 1}
    assert journal == {"batch": [runs[0].id], "done": 1, "rows": counted, "over": False}
    assert leaves
    execute(runs, tmp_path, log_rounds=True)
    journal, leaves = checkpoint.load(tmp_path / "checkpoint.bin")
    assert (journal["over"], journal["rows"], leaves) == (True, {"results.jsonl": 2, "rounds.jsonl": 2}, [])


def test_privacy_that_cannot_be_claimed_is_an_error_before_training(tmp_path, monkeypatch):
    def no_accountant():
        raise ValueError("an epsilon needs dp-accounting")

    monkeypatch.setattr("experiments.privacy.accounting.require", no_accountant)
    runs = make("fedavg", privacy="client(3.25)")
    with pytest.raises(ValueError, match="an epsilon needs dp-accounting"):
        execute(runs, tmp_path / "out")
    assert not (tmp_path / "out").exists()
