"""Runs that share a compilation, in batches; their data, noise and memory."""

import numpy as np
import pytest

from experiments.execution import batches, devices
from experiments.execution.batches import How, Kept
from fedeba_jax.data.sources import load
from tests.support.runs import execute, make


def test_batches_fill_the_cores_and_waste_least():
    assert batches.batch_size(200, 2) == 10
    assert batches.batch_size(16, 2) == 16
    assert batches.batch_size(7, 2) == 8
    assert batches.batch_size(1, 2) == 1
    assert batches.batch_size(32, 8) == 16


def test_batches_on_an_accelerator_fit_its_memory():
    asked = []

    def memory_of(runs):
        asked.append(runs)
        return 10 * runs

    assert batches.fitting(200, memory_of, limit=700) == 50
    assert asked == [200, 100, 50]
    assert batches.fitting(3, lambda runs: 10**9, limit=1) == 1


@pytest.fixture(scope="module")
def datasets():
    return {"fashion_mnist_mini": load("fashion_mnist_mini")}


def group(runs, datasets, done=frozenset(), how=How()):  # noqa: B008
    (made,) = batches.groups(runs, set(done), datasets, how, {})
    return made


def test_each_run_has_the_noise_of_its_data_seed(datasets):
    runs = make("fedeba", grid=("tau=0.1,1",), seeds=(0, 1), validation=0.1, label_noise=0.5)
    labels = group(runs, datasets).tables(runs).labels
    expected = {run.seed: run.dealing.split(datasets["fashion_mnist_mini"], run.seed).labels for run in runs}
    np.testing.assert_array_equal(labels, [expected[run.seed] for run in runs])
    assert (expected[0] != expected[1]).any()


def test_without_noise_nothing_of_it_reaches_the_program(datasets):
    runs = make("fedavg")
    assert group(runs, datasets).tables(runs).labels is None


def test_shapes_and_batches_follow_from_all_runs_finished_or_not(datasets):
    """Resumed runs go through the same program: ragged clients have the capacity of all seeds."""
    runs = make("fedavg", partition="dirichlet", seeds=(0, 1, 2, 3))
    every, rest = group(runs, datasets), group(runs, datasets, done={run.id for run in runs[:3]})
    assert (rest.missing, rest.batch_runs) == (runs[3:], every.batch_runs)
    assert rest.program.sizes == every.program.sizes
    assert [batch for batch in rest.batches()] == [runs[3:]]
    for one, other in zip(rest.tables(runs[3:]).train, every.tables(runs[3:]).train, strict=True):
        np.testing.assert_array_equal(one, other)


def test_a_short_batch_repeats_its_last_run(datasets):
    runs = make("fedavg", grid=("lr=0.1,0.2,0.3",))
    made = group(runs, datasets, how=How(batch_runs=2))
    assert [len(batch) for batch in made.batches()] == [2, 1]
    lr = [values.tolist() for values in made.stacked(runs[2:]).numbers if values[0] == np.float32(0.3)]
    assert lr == [pytest.approx([0.3, 0.3])]


def test_what_is_done_needs_no_group(datasets):
    runs = make("fedavg")
    assert batches.groups(runs, {runs[0].id}, datasets, How(), {}) == []


def test_an_estimate_has_memory_and_time(datasets):
    told = batches.estimate(group(make("fedavg", seeds=(0, 1)), datasets))
    assert " MiB, about " in told
    assert told.endswith("s for 1 round and an evaluation)")


def test_state_that_does_not_fit_is_told_before_anything_is_compiled(tmp_path, monkeypatch):
    """20 models of 199,210 numbers, divided among 2 devices, and the global one on both: 16.7 MiB."""
    monkeypatch.setattr(devices, "free_memory", lambda: 12 * 2**20)
    with pytest.raises(ValueError) as error:
        execute(make("ditto", model="mlp", clients=20), tmp_path / "run")
    assert str(error.value) == (
        "--algorithm=ditto keeps 0.02 GiB of state (20 clients x 1 runs x 1 copies), and 0.01 GiB are free; "
        "give --state_dtype=bfloat16 or fewer --clients"
    )
    assert not (tmp_path / "run").exists()
    rows = execute(make("ditto", model="mlp", clients=20, state_dtype="bfloat16"), tmp_path / "run")
    assert "personal" in {row["model"] for row in rows}
    with pytest.raises(ValueError, match=r"4 runs x 2 copies.*fewer runs at once"):
        execute(make("ditto", model="mlp", grid=("lam=0,0.5",), seeds=(0, 1)), tmp_path / "sweep")
    execute(make("fedavg", model="mlp", grid=("lr=0.1",)), tmp_path / "sweep")


def test_forgotten_programs_give_their_mappings_back(datasets, monkeypatch):
    kept = Kept()
    (made,) = batches.groups(make("fedavg"), set(), datasets, How(), kept.programs)
    before = devices.mapped()
    made.memory()
    taken = devices.mapped() - before
    monkeypatch.setattr(batches, "MOST_MAPPED", -1.0)
    kept.make_room()
    assert devices.mapped() - before <= taken / 2
