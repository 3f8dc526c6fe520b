"""Runs as their data has them."""

import numpy as np
import pytest

from experiments.command import opening
from fedeba_jax.data import custom
from tests.support.runs import make

X, Y = np.random.default_rng(0).normal(size=(60, 3)), np.arange(60) % 3
CLIENT = np.arange(60) // 10


@pytest.fixture
def path(tmp_path):
    """A file of six clients with ten examples each."""
    np.savez(tmp_path / "my.npz", x=X, y=Y, client=CLIENT)
    return str(tmp_path / "my.npz")


def own_runs(path, algorithm="fedavg", text="", **changes):
    left = {"dataset": f"custom({path})", "clients": 0, "partition": "auto", "model": "auto"}
    return make(algorithm, text, **left | changes)


def test_what_is_left_open_is_filled_in(path):
    (run,) = own_runs(path)
    assert (run.task.clients, run.task.partition, run.task.test_split, run.task.model) == (0, "auto", "auto", "auto")
    (opened,), datasets = opening.opened([run], None)
    task = opened.task
    assert (task.clients, task.partition, task.test_split, task.model) == (6, "natural", "holdout", "logistic")
    assert task.cohort_size == 3
    assert datasets.keys() == {f"custom({path})"}
    assert opened.id != run.id
    assert opening.settled(opened, datasets[task.dataset]) is opened


def test_runs_that_leave_nothing_open_stay_as_they_are():
    runs = make(["fedavg", "fedeba_plus"], seeds=(0, 1))
    opened, _ = opening.opened(runs, None)
    assert all(a is b for a, b in zip(opened, runs, strict=True))


def test_two_ways_to_say_the_same_are_one_run(path):
    runs = [*own_runs(path), *own_runs(path, clients=6, partition="natural", model="logistic")]
    assert len({run.id for run in runs}) == 2
    assert len(opening.opened(runs, None)[0]) == 1


def test_methods_of_all_clients_and_whole_cohorts_have_them(path):
    (run,), _ = opening.opened(own_runs(path, "afl", "participation=all"), None)
    assert run.task.cohort_size == 6
    (run,), _ = opening.opened(own_runs(path, cohort_size=0), None)
    assert run.task.cohort_size == 6
    (run,), _ = opening.opened(own_runs(path, cohort_size=0, clients=4), None)
    assert (run.task.clients, run.task.cohort_size) == (4, 4)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"cohort_size": 7}, "--cohort_size=7 exceeds --clients=6; lower --cohort_size"),
        ({"clients": 7, "cohort_size": 7}, "clients=7 is more than the 6 that .*my.npz has; lower --clients"),
        ({"privacy": "client(1, delta=0.5)"}, "delta=0.5 lets one of 6 clients be published"),
        ({"partition": "shards", "clients": 3, "test_split": "sharded_official"}, "has no test set with labels"),
    ],
)
def test_what_the_data_does_not_allow_is_one_clear_line(path, changes, message):
    with pytest.raises(ValueError, match=message):
        opening.opened(own_runs(path, **changes), None)


def test_data_without_clients_needs_their_number(tmp_path):
    np.savez(tmp_path / "my.npz", x=X, y=Y)
    with pytest.raises(ValueError, match=r"--clients=0: .*my.npz dealt by shards has .*; give --clients"):
        opening.opened(own_runs(tmp_path / "my.npz"), None)
    (run,), _ = opening.opened(own_runs(tmp_path / "my.npz", clients=5), None)
    assert (run.task.clients, run.task.partition, run.task.test_split) == (5, "shards", "holdout")


@pytest.mark.parametrize(
    ("shape", "y", "model"),
    [
        ((12,), Y, "logistic"),
        ((28, 28), Y, "cnn"),
        ((32, 32, 3), Y, "cnn"),
        ((8, 8), Y, "mlp"),
        ((5,), np.tile(Y[:, None], (1, 5)), "lstm_words"),
    ],
)
def test_the_network_goes_by_the_shape_of_an_example(shape, y, model):
    dataset = custom.from_arrays(np.zeros((60, *shape), np.uint8), y)
    assert opening.fitting_model(dataset) == model
