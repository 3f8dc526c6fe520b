"""Who holds what for training, validation and test; label noise, and that nothing but training labels changes."""

import numpy as np
import pytest

from fedeba_jax.data import dealing
from fedeba_jax.data.dealing import Dealing
from fedeba_jax.data.sources import load


@pytest.fixture(scope="module")
def dataset():
    return load("fashion_mnist_mini")


def split(dataset, seed=0, **changes):
    """How ten clients are dealt to, and what they get."""
    if changes.get("partition") == "dirichlet":
        changes.setdefault("test_split", "holdout")
    dealt = Dealing(**{"clients": 10, "validation": 0.1, **changes})
    return dealt, dealt.split(dataset, seed)


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
    dealt, noisy = split(dataset, label_noise=0.5, test_split=test_split)
    pools = dealt.pools(dataset)
    tables = dealing.stack([noisy])
    one = dealing.Tables(*(dealing.Owned(*(leaf[0] for leaf in part)) for part in tables[:3]), tables.labels[0])
    train, held_out = dealing.assemble(pools, one)
    validation, test = held_out["validation"], held_out["test"]
    np.testing.assert_array_equal(pools.train[1], dataset.y_train)
    true_test = dataset.y_train if test_split == "holdout" else dataset.y_test
    np.testing.assert_array_equal(test.federation.y[test.example], true_test[np.concatenate(noisy.test)])
    for part, owned in ((train, noisy.train), (validation.federation, noisy.validation)):
        rows = np.concatenate(owned)
        np.testing.assert_allclose((part.y[rows] != dataset.y_train[rows]).mean(), 0.5, atol=0.05)
    trained = np.concatenate(noisy.train + noisy.validation)
    assert dealing.flipped(pools, tables) == [(noisy.labels[trained] != dataset.y_train[trained]).sum()]
    for label in range(10):
        own = trained[dataset.y_train[trained] == label]
        assert (noisy.labels[own] != label).sum() == len(own) // 2


def test_the_noise_does_not_depend_on_how_much_is_held_back(dataset):
    labels = [split(dataset, label_noise=0.5, validation=v)[1].labels for v in (0.0, 0.3)]
    np.testing.assert_array_equal(*labels)


@pytest.mark.parametrize("changes", [{}, {"partition": "dirichlet"}, {"test_split": "holdout"}])
def test_nobody_is_tested_or_validated_on_what_is_trained_on(dataset, changes):
    dealt, own = split(dataset, **changes)
    train, validation, test = (np.concatenate(part) for part in (own.train, own.validation, own.test))
    assert len(np.unique(train)) == len(train)
    assert not np.intersect1d(train, validation).size
    if dealt.test_split == "holdout":
        assert not np.intersect1d(np.concatenate([train, validation]), test).size
    assert len(own.train) == len(own.validation) == len(own.test) == dealt.clients


def test_tables_of_several_runs_have_the_shape_that_all_fit(dataset):
    """Runs that are left to do go through the program of all."""
    splits = [split(dataset, seed=seed, partition="dirichlet")[1] for seed in (0, 1)]
    both, one = dealing.stack(splits), dealing.stack(splits[1:], like=splits)
    for all_leaves, own_leaves in zip(both[:3], one[:3], strict=True):
        for together, alone in zip(all_leaves, own_leaves, strict=True):
            np.testing.assert_array_equal(together[1], alone[0])
    capacity = max(len(rows) for own in splits for rows in own.train)
    assert both.train.rows.shape == (2, 10, capacity)
