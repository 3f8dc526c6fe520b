"""The binaries as a user meets them: tiny runs, and what they say when something is wrong."""

import json
import os
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import pytest
from absl import flags
from absl.testing import flagsaver

from experiments import cli, devices, hparams, run, run_folder, sweep, train
from experiments.tasks import TASKS, resolve
from fedeba_jax import ALGORITHMS, metrics
from fedeba_jax.data.sources.raw import DataError

ROOT = Path(__file__).parent.parent
TINY = {"clients": 10, "cohort_size": 3, "steps": 2, "batch_size": 10, "rounds": 2, "eval_every": 1}
MINI = "fashion_mnist_mini_mlp"


@pytest.fixture(scope="module", autouse=True)
def parsed_flags():
    flags.FLAGS(["test"])


def settings(algorithm="fedeba_plus", text="", **changes):
    task = {k: changes.pop(k) for k in list(changes) if k in resolve(MINI, {}).__dict__}
    return run.Settings(algorithm, hparams.parse(algorithm, text), MINI, resolve(MINI, TINY | task), **changes)


def binary(*arguments, module="experiments.train", cwd=ROOT):
    environment = os.environ | {"PYTHONPATH": str(ROOT), "JAX_PLATFORMS": "cpu"}
    command = [sys.executable, "-m", module, *arguments]
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd, env=environment, timeout=300)


@pytest.fixture(scope="module")
def result(tmp_path_factory):
    """Two seeds of FedEBA+, two rounds, with a validation split."""
    return run.train(settings(seeds=(0, 1), validation=0.1), tmp_path_factory.mktemp("runs") / "plus")


def test_a_run_folder_holds_everything(result):
    folder = result.folder
    names = {"config.json", "rounds.jsonl", "evals.jsonl", "clients.npz", "summary.json", "curves.png"}
    assert {path.name for path in folder.iterdir()} == names
    config = json.loads((folder / "config.json").read_text())
    assert config["settings"]["task"]["cohort_size"] == 3
    assert config["settings"]["hparams"] == {
        "tau": 1.0, "alpha": 0.9, "theta": 0.0, "fair_scale": None, "prior": "none"
    }  # fmt: skip
    assert config["data"]["source"] == "embedded"
    assert len(config["data"]["md5"]["x_train"]) == 32
    assert {"python", "packages", "commit", "backend", "devices"} <= set(config["environment"])
    rounds = run_folder.read_rows(folder / "rounds.jsonl")
    assert [(row["seed"], row["round"]) for row in rounds] == [(0, 1), (1, 1), (0, 2), (1, 2)]
    assert {"gate", "angle", "loss_min", "loss_max", "weight_entropy", "bytes_up", "cohort"} <= set(rounds[0])
    assert len(run_folder.read_rows(folder / "evals.jsonl")) == 2 * 2 * 2  # rounds, seeds, splits
    with np.load(folder / "clients.npz") as clients:
        assert clients["accuracy"].shape == (2, 10)


def test_results_agree_with_the_clients_and_the_trees_that_passed(result):
    summary = json.loads((result.folder / "summary.json").read_text())
    with np.load(result.folder / "clients.npz") as clients:
        for i in range(2):
            expected = metrics.summarize(clients["accuracy"][i])
            for key, value in expected.items():
                assert summary["last_evaluation"][key]["values"][i] == pytest.approx(float(value), rel=1e-5)
    model = 199_210
    open_round = 4 * 3 * (2 * model + 2)  # bytes up of 3 clients: loss; gradient; delta, loss
    assert summary["communication"]["bytes_up"] == [2 * open_round] * 2
    assert summary["communication"]["additional_cost"] == [0.5, 0.5]


def test_several_seeds_are_the_single_runs(result, tmp_path):
    """The second of two seeds is bit-equal to the run of that seed alone, under the same client map."""
    alone = run.train(settings(seeds=(1,), validation=0.1, client_map="map"), tmp_path, plot=False)
    with np.load(result.folder / "clients.npz") as both, np.load(alone.folder / "clients.npz") as one:
        np.testing.assert_array_equal(both["accuracy"][1], one["accuracy"][0])
        np.testing.assert_array_equal(both["loss"][1], one["loss"][0])


def test_the_same_command_is_bit_identical(result, tmp_path):
    again = run.train(settings(seeds=(0, 1), validation=0.1), tmp_path, plot=False)
    for name in ("rounds.jsonl", "evals.jsonl"):
        assert (again.folder / name).read_bytes() == (result.folder / name).read_bytes()


def test_a_run_compiles_its_chunk_once(tmp_path):
    compiled = []

    def listener(event, duration, **context):
        if event == "/jax/core/compile/backend_compile_duration":
            compiled.append(context.get("fun_name"))

    jax.monitoring.register_event_duration_secs_listener(listener)
    try:
        run.train(settings("fedavg", seeds=(0,), rounds=4), tmp_path, plot=False)
    finally:
        jax.monitoring.unregister_event_duration_listener(listener)
    assert sum("train_chunk" in (name or "") for name in compiled) == 1


def test_separate_seeds_change_separate_things(tmp_path):
    def cohorts(name, **changes):
        folder = tmp_path / name
        run.train(settings("fedavg", **changes), folder, plot=False)
        rows = run_folder.read_rows(folder / "rounds.jsonl")
        return [row["cohort"] for row in rows], run_folder.read_rows(folder / "evals.jsonl")[0]["loss"]

    base = cohorts("base")
    assert cohorts("init", init_seed=5)[0] == base[0]
    assert cohorts("init2", init_seed=5)[1] != base[1]
    assert cohorts("sample", sample_seed=5)[0] != base[0]
    assert cohorts("data", data_seed=5)[0] == base[0]


def test_divergence_is_told_with_what_to_turn(tmp_path):
    diverging = settings(text="fair_scale=1000", lr=50.0, rounds=3)
    result = run.train(diverging, tmp_path, plot=False)
    assert result.diverged[0] in (1, 2, 3)
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert summary["diverged"] == {"0": result.diverged[0]}
    assert summary["last_evaluation"]["mean"]["values"] == [None]
    assert run_folder.read_rows(tmp_path / "evals.jsonl")[-1]["mean"] is None
    message = train.divergence(diverging, result.diverged)
    assert "seed 0 in round" in message
    assert "fair_scale" in message


@pytest.mark.parametrize("name", ALGORITHMS)
def test_every_algorithm_trains(name, tmp_path):
    result = run.train(settings(name, rounds=1), tmp_path, plot=False)
    assert {"global", "personal"} & set(result.last)
    assert all(0 <= figures["mean"][0] <= 100 for figures in result.last.values())
    assert not result.diverged


def test_ragged_clients_and_local_epochs_train(tmp_path):
    ragged = settings("prac_fedeba_plus", partition="dirichlet", local_epochs=1, rounds=1)
    result = run.train(ragged, tmp_path, plot=False)
    config = json.loads((tmp_path / "config.json").read_text())
    assert config["settings"]["task"]["test_split"] == "holdout"
    assert not result.diverged


BAD = [
    (["--cohort_size=60"], "--cohort_size=60 exceeds --clients=50"),
    (["--hparams=tau=0"], "tau=0 is not valid for fedeba_plus; give tau=1.0 (> 0)"),
    (["--hparams=alpha=1.5"], "alpha=1.5 is not valid"),
    (["--hparams=tau=abc"], "tau=abc is not valid"),
    (["--hparams=tau=nan"], "tau=nan is not valid"),
    (["--hparams=tua=1"], "fedeba_plus has no 'tua=1'; it takes tau=1.0 (> 0), alpha=0.9 (in [0, 1])"),
    (["--hparams=prior=sizes"], "give prior=none (none | examples)"),
    (["--algorithm=fedprox", "--hparams=tau=1"], "fedprox has no 'tau=1'; it takes mu=0.1"),
    (["--algorithm=nothing"], "--algorithm=nothing is not known; choose one of fedavg"),
    (["--task=nothing"], "--task=nothing is not known"),
    (["--model=nothing"], "--model=nothing is not known"),
    (["--dataset=nothing"], "--dataset=nothing is not known"),
    (["--rounds=0"], "--rounds=0 is not valid"),
    (["--lr=-1"], "--lr=-1.0 is not valid"),
    (["--validation=1"], "--validation=1.0 is not a fraction"),
    (["--seeds=0,0"], "must name different seeds"),
    (["--seeds=a"], "'a' is not a seed"),
    (["--client_map=fast"], "--client_map=fast is not valid; give auto"),
    (["--partition=random"], "--partition=random is not valid; choose one of shards, dirichlet"),
    (["--test_split=none"], "choose one of auto, sharded_official, holdout"),
]


@pytest.mark.parametrize(("arguments", "message"), BAD, ids=[" ".join(a) for a, _ in BAD])
def test_bad_flags_are_told_before_anything_runs(arguments, message):
    with flagsaver.flagsaver():
        flags.FLAGS(["train", f"--task={MINI}", *arguments])
        with pytest.raises(ValueError) as error:
            train.settings()
    assert message in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("algorithm", "text", "cohort_size"),
    [("afl", "participation=all", 50), ("aaggff", "variant=S", 50), ("afl", "", 5), ("fedavg", "", 5)],
)
def test_a_method_of_all_clients_gets_them(capsys, algorithm, text, cohort_size):
    with flagsaver.flagsaver():
        flags.FLAGS(["train", f"--task={MINI}", f"--algorithm={algorithm}", f"--hparams={text}"])
        assert train.settings().task.cohort_size == cohort_size
    note = f"{algorithm} as asked for uses every client in every round: cohort_size=50\n"
    assert capsys.readouterr().out == (note if cohort_size == 50 else "")


def test_every_model_of_a_run_is_evaluated(tmp_path):
    """AFL's mean iterate is its global model; the last iterate stands beside it."""
    run.train(settings("afl", "participation=all", cohort_size=10), tmp_path, plot=False)
    rows = run_folder.read_rows(tmp_path / "evals.jsonl")
    assert [(row["round"], row["model"]) for row in rows] == [(t, m) for t in (1, 2) for m in ("global", "iterate")]
    assert rows[0]["loss"] == rows[1]["loss"]  # the mean of one
    assert rows[2]["loss"] != rows[3]["loss"]


def test_missing_and_corrupt_data_are_told_with_the_remedy(tmp_path):
    missing = run.Settings("fedavg", {"weighting": "examples"}, "mnist_mlp", TASKS["mnist_mlp"], data_dir=str(tmp_path))
    out = tmp_path / "out"
    with pytest.raises(DataError, match=r"run `python -m experiments\.fetch --dataset=mnist"):
        run.train(missing, out)
    (tmp_path / "mnist").mkdir(exist_ok=True)
    (tmp_path / "mnist" / "train-images-idx3-ubyte").write_bytes(b"not idx")
    with pytest.raises(DataError, match=r"train-labels-idx1-ubyte.*missing"):
        run.train(missing, out)
    assert not out.exists(), "nothing is made, or replaced, before the data is there"


def test_a_folder_that_holds_a_run_is_not_overwritten_unasked(result, tmp_path):
    with pytest.raises(ValueError, match="already holds a run; give another folder, or --overwrite"):
        run_folder.create(result.folder, overwrite=False)
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(ValueError, match="not of a run"):
        run_folder.create(tmp_path, overwrite=True)
    assert (tmp_path / "notes.txt").exists()
    with pytest.raises(ValueError, match="is a file"):
        run_folder.create(tmp_path / "notes.txt", overwrite=True)


def test_the_binary_trains_lists_and_fails_in_one_line(tmp_path):
    """One process each: --list, a run from a flagfile, a bad flag (exit code 2, one line, no traceback)."""
    listed = binary("--list")
    assert listed.returncode == 0
    assert all(name in listed.stdout for name in [*ALGORITHMS, *TASKS, "cnn", "cifar10"])
    preset = tmp_path / "tiny.flags"
    preset.write_text("\n".join(f"--{k}={v}" for k, v in TINY.items()) + f"\n--task={MINI}\n--algorithm=fedavg\n")
    trained = binary(f"--flagfile={preset}", f"--out={tmp_path}/run", "--noplot", "--compilation_cache=")
    assert trained.returncode == 0, trained.stderr
    assert "global acc. %" in trained.stdout
    assert trained.stderr == ""
    again = binary(f"--flagfile={preset}", f"--out={tmp_path}/run")
    assert (again.returncode, again.stderr.count("\n")) == (2, 1)
    assert "already holds a run" in again.stderr
    unknown = binary("--aplha=1")
    assert (unknown.returncode, unknown.stderr.count("\n")) == (2, 1)
    assert "aplha" in unknown.stderr


BAD_LINES = [
    ("--aplha=1", "'--aplha=1' is not a flag; write --NAME=VALUE"),
    ("rounds=3", "'rounds=3' is not a flag; write --NAME=VALUE (--rounds?)"),
    ("--rounds=many", "--rounds=many is not valid"),
]


@pytest.mark.parametrize(("line", "message"), BAD_LINES)
def test_errors_in_flag_files_name_the_place(tmp_path, line, message):
    preset = tmp_path / "bad.flags"
    preset.write_text(f"# a comment\n\n--task={MINI}\n{line}\n")
    with pytest.raises(ValueError) as error:
        cli.check_flagfiles(["train", f"--flagfile={preset}"])
    assert str(error.value).startswith(f"{preset}:4: {message}")
    with pytest.raises(ValueError, match="cannot be read"):
        cli.check_flagfiles([f"--flagfile={tmp_path}/none.flags"])


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("--grid=prior=anneal(1, 0.1)", "--grid: prior=anneal(1, 0.1) is not valid for fedeba_plus"),
        ("--point=server=adamw", "--server=adamw is not known"),
        ("--lr=-3", "--lr=-3.0 is not valid"),
    ],
)
def test_errors_found_later_name_the_line_as_well(tmp_path, line, message):
    preset = tmp_path / "bad.flags"
    preset.write_text(f"--grid=alpha=0.1\n{line}\n--rounds=3\n")
    assert cli.with_place(message, [f"--flagfile={preset}"]) == f"{preset}:2: {message}"
    assert cli.with_place("--seeds: no", [f"--flagfile={preset}"]) == "--seeds: no"
    assert cli.with_place(message, ["sweep", line]) == message


@pytest.mark.parametrize("preset", sorted((ROOT / "experiments/configs").glob("*.flags")), ids=lambda p: p.stem)
def test_presets_are_sound(preset):
    """Every preset says what, how, how long; its flags make points or settings."""
    text = preset.read_text()
    assert all(f"# {word}" in text for word in ("Run:", "Time:"))
    assert f"--flagfile=experiments/configs/{preset.name}" in text
    cli.check_flagfiles([f"--flagfile={preset}"])
    with flagsaver.flagsaver():
        flags.FLAGS(["binary", f"--flagfile={preset}"])
        if "experiments.sweep" in text:
            assert len(sweep.all_points()) > 1
        else:
            assert train.settings().seeds


def test_maps_are_chosen_by_what_fills_the_cores():
    assert devices.choose("auto", "auto", 1) == ("sharded", "map")
    assert devices.choose("auto", "auto", 4) == ("map", "sharded")
    assert devices.choose("auto", "auto", 3) == ("sharded", "map")
    assert devices.choose("vmap", "auto", 2) == ("vmap", "sharded")
    assert devices.choose("sharded", "auto", 2) == ("sharded", "map")
    with pytest.raises(ValueError, match="shard one of the two axes"):
        devices.choose("sharded", "sharded(vmap)", 2)


@pytest.mark.parametrize(
    ("arguments", "folder"),
    [
        ([], "fedavg"),
        (["--hparams=weighting=uniform"], "fedavg-weighting=uniform"),
        (["--server=adam(0.02, b1=0.8)", "--label_noise=0.5"], "fedavg-server=adam(0.02,b1=0.8)-label_noise=0.5"),
    ],
)
def test_runs_that_differ_in_options_have_folders_of_their_own(arguments, folder):
    with flagsaver.flagsaver():
        flags.FLAGS(["train", "--task=fashion_mnist_mini_mlp", "--algorithm=fedavg", *arguments])
        assert train.folder(train.settings()) == f"runs/fashion_mnist_mini_mlp/{folder}"
