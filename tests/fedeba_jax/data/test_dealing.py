"""Who holds what for training, validation and test; label noise, and that nothing but training labels changes."""

import numpy as np
import pytest

from fedeba_jax.data import dealing
from fedeba_jax.data.dealing import Dealing
from fedeba_jax.data.sources import Dataset, load


@pytest.fixture(scope="module")
def dataset():
    return load("fashion_mnist_mini")


def split(dataset, seed=0, **changes):
    """How ten clients are dealt to, and what they get."""
    dealt = Dealing(**{"clients": 10, "validation": 0.1, "test_split": "auto", **changes}).settled(dataset)
    return dealt, dealt.split(dataset, seed)


@pytest.fixture(scope="module")
def with_clients():
    """Twelve clients with 3 to 36 examples of four labels; examples 0, 1, ... are the numbers 0, 1, ..."""
    owner = np.repeat(np.arange(12, dtype=np.int32), 3 * np.arange(1, 13))
    owner = np.random.default_rng(0).permutation(owner)
    x = np.arange(len(owner), dtype=np.float32)[:, None]
    y = np.random.default_rng(1).integers(0, 4, len(owner)).astype(np.int32)
    names = tuple("abcdefghijkl")
    return Dataset("few", x, y, x[:24], y[:24], 4, "here", {}, owner, np.repeat(np.arange(12), 2), names)


@pytest.mark.parametrize("partition", ["shards", "dirichlet", "iid", "quantity"])
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
    trained = np.concatenate([*noisy.train, *noisy.validation])
    assert dealing.flipped(pools, tables) == [(noisy.labels[trained] != dataset.y_train[trained]).sum()]
    for label in range(10):
        own = trained[dataset.y_train[trained] == label]
        assert (noisy.labels[own] != label).sum() == len(own) // 2


def test_the_noise_does_not_depend_on_how_much_is_held_back(dataset):
    labels = [split(dataset, label_noise=0.5, validation=v)[1].labels for v in (0.0, 0.3)]
    np.testing.assert_array_equal(*labels)


@pytest.mark.parametrize(
    "changes",
    [{"test_split": "holdout"}, *({"partition": name} for name in ("shards", "dirichlet", "iid", "quantity"))],
)
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


@pytest.mark.parametrize(
    ("partition", "expected"),
    [("shards", "sharded_official"), ("iid", "sharded_official"), ("dirichlet", "holdout"), ("quantity", "holdout")],
)
def test_the_test_split_follows_the_partition(dataset, partition, expected):
    assert Dealing(partition=partition, test_split="auto").settled(dataset).test_split == expected
    without = dataset._replace(x_test=dataset.x_test[:0], y_test=dataset.y_test[:0])
    assert Dealing(partition=partition, test_split="auto").settled(without).test_split == "holdout"


def test_data_with_clients_is_theirs(with_clients):
    dealt, own = split(with_clients, clients=0, partition="auto", validation=0.0)
    assert (dealt.clients, dealt.partition, dealt.test_split) == (12, "natural", "natural")
    for client, (train, test) in enumerate(zip(own.train, own.test, strict=True)):
        np.testing.assert_array_equal(train, np.flatnonzero(with_clients.client_train == client))
        assert test.tolist() == [2 * client, 2 * client + 1]
    np.testing.assert_array_equal(dealt.pools(with_clients).test[0], with_clients.x_test)


def test_data_with_clients_but_without_theirs_to_test_on_holds_some_back(with_clients):
    untested = with_clients._replace(client_test=None)
    dealt, own = split(untested, clients=0, partition="natural", label_noise=0.5)
    assert dealt.test_split == "holdout"
    whole = [np.sort(np.concatenate(parts)) for parts in zip(own.train, own.validation, own.test, strict=True)]
    for client, rows in enumerate(whole):
        np.testing.assert_array_equal(rows, np.flatnonzero(with_clients.client_train == client))
    np.testing.assert_array_equal(own.labels[own.test.flat], with_clients.y_train[own.test.flat])
    assert (own.labels != with_clients.y_train).sum() > 0


def test_of_some_clients_only_their_labels_are_flipped(with_clients):
    _, own = split(with_clients, clients=4, partition="natural", label_noise=1.0)
    assert len(own.train) == len(own.validation) == len(own.test) == 4
    wrong = np.flatnonzero(own.labels != with_clients.y_train)
    np.testing.assert_array_equal(wrong, np.sort(np.concatenate([own.train.flat, own.validation.flat])))


def test_sequences_are_dealt_to_their_own_clients_or_at_random(with_clients):
    text = with_clients._replace(y_train=with_clients.y_train[:, None], y_test=with_clients.y_test[:, None])
    assert split(text, partition="natural", clients=0)[0].test_split == "natural"
    assert split(text, partition="iid")[0].test_split == "holdout"
    for changes in ({"partition": "shards"}, {"partition": "dirichlet"}, {"partition": "iid", "label_noise": 0.5}):
        with pytest.raises(ValueError, match=r"has not one( label)?; "):
            split(text, **changes)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"partition": "natural"}, "partition=natural: fashion_mnist_mini has no clients of its own; choose another"),
        ({"clients": 0}, "clients=0: fashion_mnist_mini dealt by shards has no number of its own; give clients"),
        ({"test_split": "natural"}, "test_split=natural: .* has no test clients; choose holdout"),
        ({"partition": "alphabet"}, "partition=alphabet is not known; choose one of auto, shards"),
    ],
)
def test_what_cannot_be_dealt_is_one_clear_line(dataset, changes, message):
    with pytest.raises(ValueError, match=message):
        split(dataset, **changes)


def test_a_client_without_test_examples_is_named(with_clients):
    missing = with_clients._replace(client_test=np.where(with_clients.client_test == 5, 4, with_clients.client_test))
    with pytest.raises(ValueError, match="client 5 has no test example; give it one, or choose a holdout"):
        split(missing, partition="natural", clients=0)
