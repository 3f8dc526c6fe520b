"""Sweeps: plans, one compilation, the same results as `train`, and stop and go at any moment."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import jax
import numpy as np
import pytest
from absl import flags
from absl.testing import flagsaver

from experiments import checkpoint, points, run, run_folder, sweep, sweep_run
from experiments.program import Seeds
from experiments.tasks import resolve
from fedeba_jax.data.sources import load

ROOT = Path(__file__).parent.parent
MINI = "fashion_mnist_mini_mlp"
TINY = {"clients": 10, "cohort_size": 3, "steps": 2, "batch_size": 10, "rounds": 2, "eval_every": 1}


@pytest.fixture(scope="module", autouse=True)
def parsed_flags():
    flags.FLAGS(["test"])


def make(algorithms=("fedeba_plus",), grid=("tau=0.5,1", "alpha=0.1,0.9"), seeds=(0, 1), validation=0.0, **changes):
    return points.make(
        algorithms, points.grid([points.parse_axis(text) for text in grid]), task_name=MINI,
        task=resolve(MINI, TINY | changes), seeds=seeds, seeds_of=lambda s: Seeds(s, s, s), validation=validation,
    )  # fmt: skip


def execute(wanted, folder, batch_runs=0, tell=lambda chunk: None, **maps):
    maps = {"client_map": "auto", "run_map": "auto"} | maps
    sweep_run.execute(sweep_run.Sweep(wanted, load("fashion_mnist_mini"), **maps, batch_runs=batch_runs), folder, tell)
    return run_folder.read_rows(folder / "results.jsonl")


def test_points_group_by_what_is_static():
    traced = make(grid=("tau=0.1,1", "alpha=0,0.5", "theta=0,15", "lr=0.1,0.2", "fair_scale=0.1,1"))
    assert len(traced) == 2 * 2 * 2 * 2 * 2 * 2
    assert len(points.grouped(traced)) == 1
    assert len(points.grouped(make(grid=("tau=0.1,1", "steps=2,3", "prior=none,examples")))) == 4
    assert len(points.grouped(make(grid=("fair_scale=none,1",)))) == 2  # none is not a number
    assert len(points.grouped(make(("fedavg", "fedprox", "fedeba"), grid=("mu=0,1", "tau=1,2")))) == 3


def test_points_of_a_method_of_all_clients_have_full_cohorts():
    wanted = make(("afl",), grid=("participation=block,all", "cohort_size=2,3"), seeds=(0,))
    found = [(p.hparams["participation"], p.task.cohort_size) for p in wanted]
    assert found == [("block", 2), ("block", 3), ("all", 10)]


def test_a_name_counts_for_the_algorithms_that_take_it():
    wanted = make(("fedavg", "fedprox"), grid=("mu=0,1",), seeds=(0,))
    assert [p.algorithm for p in wanted] == ["fedavg", "fedprox", "fedprox"]
    assert points.varying(wanted) == ["mu"]
    assert wanted[1].label(["mu"]) == "fedprox mu=0"


def test_random_points_are_reproducible_and_in_range():
    axes = [points.parse_axis(text) for text in ("tau=0.01..10:log", "alpha=0..1", "theta=0,15")]
    drawn = points.sampled(axes, 50, seed=3)
    assert drawn == points.sampled(axes, 50, seed=3)
    tau = np.array([float(p["tau"]) for p in drawn])
    assert tau.min() >= 0.01
    assert tau.max() <= 10
    assert np.mean(tau < 0.32) > 0.25  # log-uniform: half below the geometric mean; uniform would give 3 %
    assert {p["theta"] for p in drawn} == {"0", "15"}


def test_batches_fill_the_cores_and_waste_least():
    assert sweep_run.batch_size(200, 2) == 10
    assert sweep_run.batch_size(16, 2) == 16
    assert sweep_run.batch_size(7, 2) == 8
    assert sweep_run.batch_size(1, 2) == 1
    assert sweep_run.batch_size(32, 8) == 16


def test_batches_on_an_accelerator_fit_its_memory():
    asked = []

    def memory_of(runs):
        asked.append(runs)
        return 10 * runs

    assert sweep_run.fitting(200, memory_of, limit=700) == 50
    assert asked == [200, 100, 50]
    assert sweep_run.fitting(3, lambda runs: 10**9, limit=1) == 1


@pytest.fixture(scope="module")
def swept(tmp_path_factory):
    """8 points and 2 of FedAvg, in batches of 4: the last of each group is padded or short."""
    folder = tmp_path_factory.mktemp("sweep")
    compiled = []

    def listener(event, duration, **context):
        if event == "/jax/core/compile/backend_compile_duration":
            compiled.append(str(context.get("fun_name")))

    jax.monitoring.register_event_duration_secs_listener(listener)
    try:
        rows = execute(make(grid=("tau=0.5,1,2", "alpha=0.1,0.9")), folder, batch_runs=4)
    finally:
        jax.monitoring.unregister_event_duration_listener(listener)
    return folder, rows, [name for name in compiled if "train_chunk" in name]


def test_one_compilation_serves_all_points(swept):
    assert len(swept[2]) == 1


def test_a_row_for_each_point_and_evaluation(swept):
    _, rows, _ = swept
    assert len(rows) == 12 * 2
    assert {(row["hparams"]["tau"], row["hparams"]["alpha"], row["seed"]) for row in rows} == {
        (tau, alpha, seed) for tau in (0.5, 1.0, 2.0) for alpha in (0.1, 0.9) for seed in (0, 1)
    }
    final = [row for row in rows if row["final"]]
    assert len(final) == 12
    assert all(len(row["client_accuracy"]) == 10 for row in final)
    assert final[0]["exchanges"] == 4


@pytest.mark.parametrize("algorithm", ["fedeba_plus", "fedavg"])
def test_swept_equals_trained_to_the_bit(algorithm, tmp_path):
    wanted = make((algorithm,), grid=("lr=0.05,0.1",), seeds=(3, 4))
    rows = execute(wanted, tmp_path / "sweep", batch_runs=2, run_map="map", client_map="map")
    for i, point in enumerate(wanted):
        settings = run.Settings(algorithm, point.hparams, MINI, point.task, seeds=(point.seed,), client_map="map")
        trained = run.train(settings, tmp_path / str(i), plot=False)
        with np.load(trained.folder / "clients.npz") as clients:
            (row,) = [row for row in rows if row["point"] == point.id and row["final"]]
            assert row["client_accuracy"] == pytest.approx(clients["accuracy"][0].tolist(), rel=1e-6)
        evals = run_folder.read_rows(trained.folder / "evals.jsonl")
        keys = ("mean", "variance", "loss", "loss_std", "pooled_accuracy")
        last = [row for row in rows if row["point"] == point.id][-1]
        assert [evals[-1][k] for k in keys] == [last[k] for k in keys]


class Killed(Exception):
    pass


@pytest.mark.parametrize("after", [1, 3, 4])
def test_stopped_and_started_again_ends_with_the_same_bytes(swept, tmp_path, after):
    """Stopped after any chunk, or in the middle of writing the next rows."""
    folder, _, _ = swept
    wanted, told = make(grid=("tau=0.5,1,2", "alpha=0.1,0.9")), []

    def tell(chunk):
        told.append(chunk)
        if len(told) == after:
            raise Killed

    with pytest.raises(Killed):
        execute(wanted, tmp_path, batch_runs=4, tell=tell)
    with open(tmp_path / "results.jsonl", "a") as table:
        table.write('{"point": "half a li')
    again = []
    execute(wanted, tmp_path, batch_runs=4, tell=again.append)
    assert len(again) == 6 - after
    assert (tmp_path / "results.jsonl").read_bytes() == (folder / "results.jsonl").read_bytes()


def test_a_larger_grid_runs_only_what_is_missing(tmp_path):
    execute(make(("fedavg",), grid=("lr=0.1,0.2",), seeds=(0,)), tmp_path)
    told = []
    rows = execute(make(("fedavg",), grid=("lr=0.1,0.2",), seeds=(0, 1)), tmp_path, tell=told.append)
    assert {p.seed for chunk in told for p in chunk.points} == {1}
    assert len({row["point"] for row in rows}) == 4
    again = []
    execute(make(("fedavg",), grid=("lr=0.1,0.2",), seeds=(0, 1)), tmp_path, tell=again.append)
    assert not again
    assert len(json.loads((tmp_path / "sweep.json").read_text())["points"]) == 4


def test_a_diverged_point_is_marked_and_leaves_its_neighbours_alone(tmp_path):
    wanted = make(("fedavg",), grid=("lr=0.1,1e30",), seeds=(0,), rounds=3)
    rows = execute(wanted, tmp_path / "both", batch_runs=2, run_map="map", client_map="map")
    good, bad = ([row for row in rows if row["settings"]["lr"] == lr] for lr in (0.1, 1e30))
    assert {row["status"] for row in bad} == {"diverged"}
    assert bad[-1]["diverged_round"] in (1, 2)
    assert bad[-1]["mean"] is None
    alone = execute(wanted[:1], tmp_path / "alone", batch_runs=2, run_map="map", client_map="map")
    assert good == alone


def test_two_sweeps_in_one_folder_are_refused(tmp_path):
    with sweep_run.locked(tmp_path), pytest.raises(ValueError, match="another sweep is running in this folder"):
        execute(make(), tmp_path)


def test_a_flipped_bit_in_the_checkpoint_is_noticed(tmp_path):
    path = tmp_path / "checkpoint.bin"
    checkpoint.save(path, {"offset": 0}, {"a": np.arange(3.0)})
    assert checkpoint.load(path)[1][0].tolist() == [0, 1, 2]
    for position in (0, 40, path.stat().st_size - 1):
        data = bytearray(path.read_bytes())
        data[position] ^= 1
        (tmp_path / "bad.bin").write_bytes(data)
        with pytest.raises(ValueError, match="damaged"):
            checkpoint.load(tmp_path / "bad.bin")


BAD = [
    (["--grid=tau="], "--grid=tau= is not NAME=VALUE"),
    (["--grid=tau"], "--grid=tau is not NAME=VALUE"),
    (["--grid=tau=1,1"], "names a value twice"),
    (["--grid=tau=1", "--grid=tau=2"], "--grid=tau=... is given twice"),
    (["--grid=tua=1"], "nothing is called 'tua'; fedeba_plus takes tau=1.0"),
    (["--grid=tau=fast"], "--grid: tau=fast is not valid for fedeba_plus"),
    (["--grid=tau=-1"], "--grid: tau=-1 is not valid"),
    (["--grid=steps=0.5"], "--grid=steps=0.5 is not valid; steps takes int values"),
    (["--grid=cohort_size=5,80"], "--cohort_size=80 exceeds --clients=50"),
    (["--grid=tau=0.1..1"], "ranges need --random"),
    (["--grid=tau=1..0.1", "--random=3"], "is not a range; write LOW..HIGH"),
    (["--point=tau"], "--point=tau is not NAME=VALUE"),
    (["--point=tau=1", "--grid=alpha=0,1"], "--point and --grid are both given"),
    (["--random=-1"], "--random=-1 is not valid"),
    (["--algorithm=nothing"], "--algorithm=nothing is not known"),
    (["--validation=0"], "--select_on=validation needs a validation split"),
    (["--seeds=3:3"], "must name different seeds"),
]


@pytest.mark.slow
def test_killed_at_random_moments_ends_with_the_same_bytes(tmp_path):
    """kill -9, twenty times, at moments drawn over the length of a run."""
    arguments = [f"--{k}={v}" for k, v in (TINY | {"rounds": 12, "eval_every": 2, "task": MINI}).items()]
    arguments += ["--grid=tau=0.5,1,2", "--seeds=0:2", "--batch_runs=2"]

    def start(folder):
        command = [sys.executable, "-m", "experiments.sweep", *arguments, f"--out={folder}"]
        environment = os.environ | {"PYTHONPATH": str(ROOT)}
        return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, env=environment)

    begun = time.monotonic()
    assert start(tmp_path / "whole").wait() == 0
    length, kills, rng = time.monotonic() - begun, 0, random.Random(0)
    expected = (tmp_path / "whole" / "results.jsonl").read_bytes()
    while kills < 20:
        folder = tmp_path / f"killed{kills}"
        for _ in range(4):
            process = start(folder)
            time.sleep(rng.uniform(0.1, 1) * length)
            if process.poll() is None:
                process.send_signal(signal.SIGKILL)
                kills += 1
            process.wait()
        assert start(folder).wait() == 0
        assert (folder / "results.jsonl").read_bytes() == expected


@pytest.mark.parametrize(("arguments", "message"), BAD, ids=[" ".join(a) for a, _ in BAD])
def test_bad_sweeps_are_told_in_one_line(arguments, message):
    with flagsaver.flagsaver():
        flags.FLAGS(["sweep", f"--task={MINI}", *arguments])
        with pytest.raises(ValueError) as error:
            sweep.all_points()
    assert message in str(error.value)
    assert "\n" not in str(error.value)
