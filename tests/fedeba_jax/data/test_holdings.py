"""What clients hold, by hand and in the limits."""

import numpy as np
import pytest

from fedeba_jax.data import holdings, partition
from fedeba_jax.data.holdings import label_counts, most_common, shuffled
from fedeba_jax.data.ragged import Ragged

OWNED = Ragged.of([[0, 1, 2, 3], [4, 5], [6, 7]])
Y = np.array([0, 0, 1, 1, 2, 2, 0, 2, 1, 1])  # 8 and 9 are nobody's


@pytest.fixture(params=[2**24, 4])
def at_once(request, monkeypatch):
    """All clients at once, or one by one: the same."""
    monkeypatch.setattr(holdings, "AT_ONCE", request.param)


@pytest.mark.usefixtures("at_once")
def test_holdings_by_hand():
    held = holdings.holdings(OWNED, Y, 3)
    assert held.examples.tolist() == held.targets.tolist() == [4, 2, 2]
    assert held.labels.tolist() == [2, 1, 2]
    # all: (3, 2, 3) / 8; clients: (1/2, 1/2, 0), (0, 0, 1), (1/2, 0, 1/2)
    np.testing.assert_allclose(held.distance, [3 / 8, 5 / 8, 1 / 4])


@pytest.mark.usefixtures("at_once")
def test_of_sequences_the_tokens_that_count_are_counted():
    y = np.stack([Y, np.where(Y == 0, -1, Y)], axis=1)
    held = holdings.holdings(OWNED, y, 3)
    assert held.examples.tolist() == [4, 2, 2]
    assert held.targets.tolist() == [6, 4, 3]
    assert label_counts(OWNED, y, np.array([1]), 3).tolist() == [[4, 2], [0, 4], [0, 3]]


@pytest.mark.usefixtures("at_once")
def test_counts_of_some_labels_and_of_the_rest():
    assert most_common(OWNED, Y, 3, 2).tolist() == [0, 2]
    assert label_counts(OWNED, Y, np.array([0, 2]), 3).tolist() == [[2, 0, 2], [0, 2, 0], [1, 1, 0]]
    assert label_counts(OWNED, Y, np.arange(3), 3)[:, 3].tolist() == [0, 0, 0]


def test_the_distance_is_that_of_the_deal():
    labels = np.repeat(np.arange(10), 500)
    apart = partition.label_shards(labels, 10, seed=0, shards_per_client=1)
    np.testing.assert_allclose(holdings.holdings(apart, labels, 10).distance, 0.9)
    by_chance = holdings.holdings(shuffled(apart, seed=0), labels, 10).distance.mean()
    dealt = holdings.holdings(partition.iid(5000, num_clients=10, seed=0), labels, 10).distance.mean()
    assert 0.02 < by_chance < 0.07
    assert abs(by_chance - dealt) < 0.02
    alone = holdings.holdings(Ragged.of([np.arange(5000)]), labels, 10)
    assert alone.distance.tolist() == [0.0]


def test_shuffled_examples_are_the_same_in_the_same_numbers():
    other = shuffled(OWNED, seed=1)
    assert sorted(other.flat.tolist()) == sorted(OWNED.flat.tolist())
    assert other.counts.tolist() == OWNED.counts.tolist()
