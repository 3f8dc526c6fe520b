"""Symmetric label noise: how many, which and to what; and that nothing but training labels changes."""

import json

import numpy as np
import pytest

from experiments import federations, hparams, points, run, sweep_run
from experiments.program import Seeds
from experiments.tasks import resolve
from fedeba_jax.data.noise import flip_symmetric
from fedeba_jax.data.sources import load

MINI = "fashion_mnist_mini_mlp"
TINY = {"clients": 10, "cohort_size": 3, "steps": 2, "batch_size": 10, "rounds": 2, "eval_every": 1}
LABELS = np.random.default_rng(0).permutation(np.repeat(np.arange(5, dtype=np.int32), [101, 50, 1, 7, 400]))


@pytest.mark.parametrize(("rate", "flips"), [(0.5, [50, 25, 0, 3, 200]), (0.29, [29, 14, 0, 2, 116]), (1, None)])
def test_each_class_has_its_exact_count_of_flips(rate, flips):
    noisy = flip_symmetric(LABELS, rate=rate, num_classes=5, seed=3)
    wrong = [int((noisy[label == LABELS] != label).sum()) for label in range(5)]
    assert wrong == (flips or [101, 50, 1, 7, 400])  # none lands on the truth, or there would be fewer
    assert noisy.dtype == LABELS.dtype
    assert (noisy.min(), noisy.max()) == (0, 4)


def test_a_flip_goes_to_each_other_class_alike():
    labels = np.full(90_000, 2)
    noisy = flip_symmetric(labels, rate=0.5, num_classes=10, seed=0)
    counts = np.bincount(noisy, minlength=10)
    assert counts[2] == 45_000
    np.testing.assert_allclose(np.delete(counts, 2) / 90_000, 0.5 / 9, rtol=0.06)  # 4 standard deviations


def test_independent_flips_have_the_rate_on_average():
    labels = np.repeat(np.arange(10), 5000)
    noisy = flip_symmetric(labels, rate=0.3, num_classes=10, seed=0, exact_per_class=False)
    wrong = (noisy != labels).reshape(10, -1).sum(axis=1)
    assert len(set(wrong.tolist())) > 1
    np.testing.assert_allclose(wrong.sum() / 50_000, 0.3, atol=0.009)


@pytest.mark.parametrize("exact", [True, False])
def test_rate_0_is_the_identity(exact):
    np.testing.assert_array_equal(
        flip_symmetric(LABELS, rate=0.0, num_classes=5, seed=1, exact_per_class=exact), LABELS
    )


def test_a_draw_belongs_to_its_seed_and_leaves_the_true_labels_alone():
    before = LABELS.copy()
    first, again, other = (flip_symmetric(LABELS, rate=0.5, num_classes=5, seed=s) for s in (1, 1, 2))
    np.testing.assert_array_equal(first, again)
    assert (first != other).any()
    np.testing.assert_array_equal(LABELS, before)


def test_only_the_given_rows_are_flipped_and_counted():
    rows = np.flatnonzero(np.arange(len(LABELS)) % 3)
    noisy = flip_symmetric(LABELS, rate=0.5, num_classes=5, seed=1, rows=rows[::-1])
    others = np.setdiff1d(np.arange(len(LABELS)), rows)
    np.testing.assert_array_equal(noisy[others], LABELS[others])
    for label in range(5):
        own = rows[LABELS[rows] == label]
        assert (noisy[own] != label).sum() == len(own) // 2


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"rate": 1.5}, "rate=1.5 is not a share"),
        ({"rate": float("nan")}, "rate=nan is not a share"),
        ({"num_classes": 1}, "num_classes=1 leaves no other label"),
        ({"labels": np.zeros((3, 2), int)}, "give a vector of integers"),
    ],
)
def test_wrong_arguments_are_told(changes, message):
    with pytest.raises(ValueError, match=message):
        flip_symmetric(**({"labels": LABELS, "rate": 0.5, "num_classes": 5, "seed": 0} | changes))


@pytest.fixture(scope="module")
def dataset():
    return load("fashion_mnist_mini")


def split(dataset, seed=0, validation=0.1, **changes):
    task = resolve(MINI, TINY | changes)
    return task, federations.split(dataset, task, seed=seed, validation=validation)


@pytest.mark.parametrize("partition", ["shards", "dirichlet"])
def test_who_holds_what_does_not_depend_on_the_noise(dataset, partition):
    _, clean = split(dataset, partition=partition)
    _, noisy = split(dataset, partition=partition, label_noise=0.5)
    for part in ("train", "validation", "test"):
        for a, b in zip(getattr(clean, part), getattr(noisy, part), strict=True):
            np.testing.assert_array_equal(a, b)
    assert clean.labels is None


@pytest.mark.parametrize("test_split", ["sharded_official", "holdout"])
def test_training_and_validation_labels_are_noisy_and_test_labels_true(dataset, test_split):
    task, noisy = split(dataset, label_noise=0.5, test_split=test_split)
    pools = federations.pools(dataset, task)
    tables = federations.stack([noisy])
    one = federations.Tables(*(federations.Owned(*(leaf[0] for leaf in part)) for part in tables[:3]), tables.labels[0])
    train, validation, test = federations.assemble(pools, one)
    np.testing.assert_array_equal(pools.train[1], dataset.y_train)
    true_test = dataset.y_train if test_split == "holdout" else dataset.y_test
    np.testing.assert_array_equal(test.federation.y[test.example], true_test[np.concatenate(noisy.test)])
    for part, owned in ((train, noisy.train), (validation.federation, noisy.validation)):
        rows = np.concatenate(owned)
        np.testing.assert_allclose((part.y[rows] != dataset.y_train[rows]).mean(), 0.5, atol=0.05)
    trained = np.concatenate(noisy.train + noisy.validation)
    assert federations.flipped(pools, tables) == [(noisy.labels[trained] != dataset.y_train[trained]).sum()]
    for label in range(10):
        own = trained[dataset.y_train[trained] == label]
        assert (noisy.labels[own] != label).sum() == len(own) // 2


def test_the_noise_does_not_depend_on_how_much_is_held_back(dataset):
    labels = [split(dataset, label_noise=0.5, validation=v)[1].labels for v in (0.0, 0.3)]
    np.testing.assert_array_equal(*labels)


def settings(**changes):
    task = {k: changes.pop(k) for k in list(changes) if k in ("label_noise", "partition")}
    return run.Settings("fedavg", hparams.parse("fedavg", ""), MINI, resolve(MINI, TINY | task), **changes)


@pytest.fixture(scope="module")
def noisy_run(tmp_path_factory):
    return run.train(settings(label_noise=0.5, seeds=(0, 1)), tmp_path_factory.mktemp("runs") / "noisy", plot=False)


def test_a_run_tells_how_many_labels_are_wrong(noisy_run):
    config = json.loads((noisy_run.folder / "config.json").read_text())
    assert config["settings"]["task"]["label_noise"] == 0.5
    assert config["flipped_labels"] == [5000, 5000]


def test_each_seed_has_its_own_noise(noisy_run, tmp_path):
    """The second of two seeds is bit-equal to the run of that seed alone, and differs from the run without noise."""
    alone = run.train(settings(label_noise=0.5, seeds=(1,), client_map="map"), tmp_path / "alone", plot=False)
    with np.load(noisy_run.folder / "clients.npz") as both, np.load(alone.folder / "clients.npz") as one:
        np.testing.assert_array_equal(both["loss"][1], one["loss"][0])
        assert (both["loss"][0] != one["loss"][0]).any()
    clean = run.train(settings(seeds=(1,), client_map="map"), tmp_path / "clean", plot=False)
    assert json.loads((clean.folder / "config.json").read_text())["flipped_labels"] is None
    with np.load(clean.folder / "clients.npz") as without, np.load(alone.folder / "clients.npz") as one:
        assert (without["loss"] != one["loss"]).any()


def test_without_noise_nothing_of_it_reaches_the_program(dataset):
    assert run.prepare(settings(), dataset)[1].tables.labels is None


def test_a_sweep_gives_each_point_the_noise_of_its_data_seed(dataset):
    task = resolve(MINI, TINY | {"label_noise": 0.5})
    made = points.make(
        ["fedeba"], points.grid([("tau", ["0.1", "1"])]), task_name=MINI, task=task, seeds=(0, 1),
        seeds_of=lambda s: Seeds(s, s, s), validation=0.1,
    )  # fmt: skip
    (group,) = sweep_run.Sweep(made, dataset, "auto", "auto", 0).groups(set())
    labels = group.runs(made).tables.labels
    expected = {seed: split(dataset, seed=seed, label_noise=0.5)[1].labels for seed in (0, 1)}
    np.testing.assert_array_equal(labels, [expected[point.seed] for point in made])
    assert (expected[0] != expected[1]).any()


@pytest.mark.parametrize("value", [-0.1, 1.5, float("nan")])
def test_a_rate_that_is_no_share_is_told(value):
    with pytest.raises(ValueError, match=r"--label_noise=.* is not valid; give a share in \[0, 1\]"):
        resolve(MINI, {"label_noise": value})
