"""Partitions: who gets which example, worked out by hand on small sets and as laws on random ones."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedeba_jax.data import partition

MNIST_TRAIN = np.repeat(np.arange(10), (5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949))
MNIST_TEST = np.repeat(np.arange(10), (980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009))


def disjoint(clients):
    together = np.concatenate(clients)
    return len(np.unique(together)) == len(together)


def equal(a, b):
    return len(a) == len(b) and all(np.array_equal(x, y) for x, y in zip(a, b, strict=True))


def shuffled(labels, seed=0):
    return np.random.default_rng(seed).permutation(labels)


# Shards.


def test_shards_by_hand():
    labels = np.array([1, 0, 1, 0, 2, 2, 0, 1, 2])  # by label: 1 3 6 | 0 2 7 | 4 5 8; shards of 2, so 8 goes
    shards = [[1, 3], [6, 0], [2, 7], [4, 5]]
    deal = np.random.default_rng(5).permutation(4)
    expected = [shards[deal[0]] + shards[deal[1]], shards[deal[2]] + shards[deal[3]]]
    assert [own.tolist() for own in partition.label_shards(labels, 2, seed=5)] == expected


def test_shards_of_a_balanced_set_are_the_papers():
    labels = shuffled(np.repeat(np.arange(10), 6000))
    clients = partition.label_shards(labels, 100, seed=0)
    assert [len(own) for own in clients] == [600] * 100
    assert disjoint(clients)
    assert all(len(np.unique(labels[own])) <= 2 for own in clients)
    assert equal(clients, partition.label_shards(labels, 100, seed=0))
    assert not equal(clients, partition.label_shards(labels, 100, seed=1))


def test_aligned_test_shards_have_the_same_ids_as_the_train_shards():
    train, test = shuffled(np.repeat(np.arange(10), 600)), shuffled(np.repeat(np.arange(10), 100), 1)
    split = partition.split_by_shards(train, test, num_clients=100, seed=3)
    assert equal(split.train, partition.label_shards(train, 100, seed=3))
    assert equal(split.test, partition.label_shards(test, 100, seed=3))  # the same deal


def test_unbalanced_test_examples_by_hand():
    train = np.array([0, 0, 0, 1, 1, 1, 1, 1])  # four shards of two: 00, 01, 11, 11
    test = np.array([0, 0, 0, 1, 1, 1, 1, 1, 1])
    # label 0: shares 2/3, 1/3 of 3 -> 0 1 | 2
    # label 1: shares 1/5, 2/5, 2/5 of 6, cut at 6/5 and 18/5 -> 3 | 4 5 | 6 7 8
    shards = [[0, 1], [2, 3], [4, 5], [6, 7, 8]]
    deal = np.random.default_rng(0).permutation(4)
    split = partition.split_by_shards(train, test, num_clients=2, seed=0)
    assert [own.tolist() for own in split.test] == [
        shards[deal[0]] + shards[deal[1]],
        shards[deal[2]] + shards[deal[3]],
    ]


def test_mnist_clients_are_tested_on_their_own_labels_in_proportion():
    train, test = shuffled(MNIST_TRAIN), shuffled(MNIST_TEST, 1)
    split = partition.split_by_shards(train, test, num_clients=100, seed=0)
    assert {len(own) for own in split.train} == {600}
    assert sorted(np.concatenate(split.test).tolist()) == list(range(10000))  # all of it, once
    for own, tests in zip(split.train, split.test, strict=True):
        assert set(test[tests]) <= set(train[own])
        assert 90 <= len(tests) <= 110
        expected = np.bincount(train[own], minlength=10) * np.bincount(test) / np.bincount(train)
        assert np.abs(np.bincount(test[tests], minlength=10) - expected).max() <= 2.5  # two shards, rounding


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, 4), min_size=12, max_size=80), st.integers(1, 6), st.integers(1, 2), st.integers(0, 99))
def test_shards_are_disjoint_and_equal(labels, num_clients, shards_per_client, seed):
    labels = np.array(labels)
    clients = partition.label_shards(labels, num_clients, seed, shards_per_client)
    size = len(labels) // (num_clients * shards_per_client)
    assert [len(own) for own in clients] == [size * shards_per_client] * num_clients
    assert disjoint(clients)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, 4), min_size=8, max_size=80), st.integers(1, 4), st.integers(0, 99))
def test_dealing_the_train_set_itself_gives_every_client_its_own_counts(labels, num_clients, seed):
    labels = np.array(labels)
    train = partition.label_shards(labels, num_clients, seed, 1)
    held = labels[np.sort(np.concatenate(train))]  # the test set: the same labels, without what was dropped
    test = partition.deal_like(held, labels, train)
    assert disjoint(test)
    for own, tests in zip(train, test, strict=True):
        assert sorted(held[tests]) == sorted(labels[own])


def test_deal_like_by_hand():
    train, test = np.array([0, 0, 0, 1, 1]), np.array([1, 0, 0, 1, 0, 0, 2])
    clients = [np.array([0, 3]), np.array([1, 2]), np.array([4])]
    # label 0 is at 1 2 4 5, shares 1/3, 2/3, 0, cut at 4/3; label 1 at 0 3, shares 1/2, 0, 1/2; nobody has 2
    assert [own.tolist() for own in partition.deal_like(test, train, clients)] == [[1, 0], [2, 4, 5], [3]]


def test_a_client_without_test_examples_is_an_error():
    train, test = np.zeros(10, int), np.zeros(2, int)
    with pytest.raises(ValueError, match=r"client 0 with 1 train examples gets no test example.*holdout"):
        partition.deal_like(test, train, [np.array([0]), np.arange(1, 10)])


# Dirichlet.


def test_dirichlet_is_a_partition():
    labels = shuffled(np.repeat(np.arange(10), 300))
    clients = partition.dirichlet(labels, num_clients=20, alpha=0.3, seed=0)
    assert sorted(np.concatenate(clients).tolist()) == list(range(3000))
    assert min(map(len, clients)) >= 10
    assert equal(clients, partition.dirichlet(labels, num_clients=20, alpha=0.3, seed=0))
    assert not equal(clients, partition.dirichlet(labels, num_clients=20, alpha=0.3, seed=1))


def test_dirichlet_goes_from_few_labels_to_all_with_alpha():
    labels = np.repeat(np.arange(10), 1000)

    def largest_share(alpha):
        clients = partition.dirichlet(labels, num_clients=10, alpha=alpha, seed=0, min_size=1)
        return np.mean([np.bincount(labels[own]).max() / len(own) for own in clients])

    assert largest_share(0.05) > 0.5
    assert largest_share(1000.0) < 0.15


def test_dirichlet_leaves_out_clients_that_have_enough():
    rng = np.random.default_rng(0)
    for _ in range(20):
        sizes = partition._dirichlet_sizes(rng, np.full(10, 100), 5, 1.0)
        held = np.cumsum(sizes, axis=0) - sizes  # before each class
        assert np.all(sizes[held >= 200] == 0)
        assert np.all(sizes.sum(axis=1) == 100)


def test_dirichlet_with_one_client_gives_it_all():
    clients = partition.dirichlet(np.zeros(30, int), num_clients=1, alpha=0.1, seed=0)
    assert sorted(clients[0].tolist()) == list(range(30))


def test_dirichlet_gives_up_with_a_remedy():
    with pytest.raises(ValueError, match=r"alpha=0.001 .*min_size=100 .*7 tries; raise alpha"):
        partition.dirichlet(np.zeros(1000, int), num_clients=10, alpha=0.001, seed=0, min_size=100, max_tries=7)


def test_dirichlet_test_sets_in_proportion():
    train, test = np.repeat(np.arange(10), 600), np.repeat(np.arange(10), 100)
    clients = partition.dirichlet(train, num_clients=10, alpha=0.5, seed=0)
    dealt = partition.deal_like(test, train, clients)
    assert sorted(np.concatenate(dealt).tolist()) == list(range(1000))
    for own, tests in zip(clients, dealt, strict=True):
        expected = np.bincount(train[own], minlength=10) / 6
        assert np.abs(np.bincount(test[tests], minlength=10) - expected).max() < 1


# At random, in equal and in unequal numbers.


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 200), st.integers(1, 20), st.integers(0, 99))
def test_iid_deals_everything_once_in_equal_numbers(num_examples, num_clients, seed):
    num_examples += num_clients
    clients = partition.iid(num_examples, num_clients=num_clients, seed=seed)
    assert sorted(np.concatenate(clients).tolist()) == list(range(num_examples))
    sizes = [len(own) for own in clients]
    assert max(sizes) - min(sizes) <= 1
    assert equal(clients, partition.iid(num_examples, num_clients=num_clients, seed=seed))


def test_iid_mixes_the_labels():
    labels = np.repeat(np.arange(10), 1000)
    clients = partition.iid(len(labels), num_clients=10, seed=0)
    shares = np.array([np.bincount(labels[own], minlength=10) / len(own) for own in clients])
    assert np.abs(shares - 0.1).max() < 0.05  # five standard deviations
    assert not equal(clients, partition.iid(len(labels), num_clients=10, seed=1))


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 500), st.integers(1, 20), st.sampled_from([0.01, 0.3, 100.0]), st.integers(0, 99))
def test_quantity_deals_everything_once_and_the_least_to_everyone(extra, num_clients, alpha, seed):
    number = 10 * num_clients + extra
    clients = partition.quantity(number, num_clients=num_clients, alpha=alpha, seed=seed)
    assert sorted(np.concatenate(clients).tolist()) == list(range(number))
    assert min(len(own) for own in clients) >= 10
    assert equal(clients, partition.quantity(number, num_clients=num_clients, alpha=alpha, seed=seed))


def test_quantity_goes_from_few_rich_clients_to_equal_ones_with_alpha():
    def largest(alpha):
        return partition.quantity(10_000, num_clients=20, alpha=alpha, seed=0).counts.max()

    assert largest(0.05) > 3000
    assert largest(1000.0) < 600


# By the data's own clients.


def test_natural_clients_keep_what_they_came_with():
    owner = np.array([2, 0, 1, 0, 2, 2])
    clients = partition.natural(owner, num_clients=3, of=3, seed=0)
    assert [own.tolist() for own in clients] == [[1, 3], [2], [0, 4, 5]]


def test_fewer_natural_clients_are_some_of_them_whole():
    owner = np.random.default_rng(0).integers(0, 30, 400)
    all_of_them = [own.tolist() for own in partition.natural(owner, num_clients=30, of=30, seed=0)]
    some = [own.tolist() for own in partition.natural(owner, num_clients=8, of=30, seed=0)]
    places = [all_of_them.index(own) for own in some]
    assert len(places) == 8
    assert places == sorted(places)
    test = partition.natural(owner[::-1].copy(), num_clients=8, of=30, seed=0)  # other examples, the same clients
    assert [set(owner[::-1][own]) for own in test] == [{place} for place in places]
    assert some != [own.tolist() for own in partition.natural(owner, num_clients=8, of=30, seed=1)]


# Holdout.


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(2, 30), min_size=1, max_size=6), st.floats(0.01, 0.99), st.integers(0, 99))
def test_holdout_splits_each_client(sizes, fraction, seed):
    clients = np.split(np.arange(sum(sizes)), np.cumsum(sizes)[:-1])
    kept, held = partition.holdout(clients, fraction=fraction, seed=seed)
    for own, keep, hold in zip(clients, kept, held, strict=True):
        assert sorted([*keep, *hold]) == own.tolist()
        assert len(hold) == min(max(round(fraction * len(own)), 1), len(own) - 1)


def test_holdout_of_the_papers_shards():
    clients = [np.arange(600), np.arange(600, 1200)]
    kept, held = partition.holdout(clients, fraction=0.2, seed=0)
    assert [len(own) for own in [*kept, *held]] == [480, 480, 120, 120]
    again = partition.holdout(clients, fraction=0.2, seed=0)
    assert equal([*kept, *held], [*again[0], *again[1]])
    assert not equal(held, partition.holdout(clients, fraction=0.2, seed=1)[1])


# Arguments.


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda y: partition.label_shards(y, 0, 0), "num_clients=0 is less than 1; raise"),
        (lambda y: partition.label_shards(y, 2, 0, 0), "shards_per_client=0 is less than 1"),
        (lambda y: partition.label_shards(y, 11, 0), "num_clients=11 .*needs 22 examples.* 20; lower"),
        (lambda y: partition.label_shards(y[:0], 1, 0), "labels is .*non-empty vector of integers"),
        (lambda y: partition.label_shards(y / 2, 1, 0), "labels is float64"),
        (lambda y: partition.split_by_shards(y, y[None], num_clients=2, seed=0), "test_labels is .*1, 20"),
        (lambda y: partition.dirichlet(y, num_clients=2, alpha=0.0, seed=0), "alpha=0.0 is not a positive"),
        (lambda y: partition.dirichlet(y, num_clients=2, alpha=np.nan, seed=0), "alpha=nan"),
        (lambda y: partition.dirichlet(y, num_clients=3, alpha=1.0, seed=0), "min_size=10 .*num_clients=3 "),
        (lambda y: partition.dirichlet(y, num_clients=-1, alpha=1.0, seed=0), "num_clients=-1"),
        (lambda y: partition.iid(5, num_clients=6, seed=0), "num_clients=6 needs more examples than the 5"),
        (lambda y: partition.iid(5, num_clients=0, seed=0), "num_clients=0 is less than 1"),
        (lambda y: partition.quantity(20, num_clients=3, alpha=1.0, seed=0), "min_size=10 for num_clients=3"),
        (lambda y: partition.quantity(20, num_clients=1, alpha=0.0, seed=0), "alpha=0.0 is not a positive"),
        (lambda y: partition.natural(y, num_clients=3, of=2, seed=0), "num_clients=3 is more than the 2"),
        (lambda y: partition.natural(y, num_clients=0, of=2, seed=0), "num_clients=0 is less than 1"),
        (lambda y: partition.holdout([y], fraction=1.0, seed=0), "fraction=1.0 is not between 0 and 1"),
        (lambda y: partition.holdout([y, y[:1]], fraction=0.5, seed=0), r"clients\[1\] has 1 examples"),
    ],
)
def test_errors_name_argument_value_and_remedy(call, message):
    with pytest.raises(ValueError, match=message):
        call(np.arange(20) % 2)
