"""Lists of unequal length in one array read like a list of arrays."""

import numpy as np
import pytest

from fedeba_jax.data.ragged import Ragged

LISTS = [np.array([4, 2]), np.array([], int), np.array([5, 1, 3])]


@pytest.fixture
def lists():
    return Ragged.of(LISTS)


def test_it_is_the_list_of_its_arrays(lists):
    assert len(lists) == 3
    for own, expected in zip(lists, LISTS, strict=True):
        np.testing.assert_array_equal(own, expected)
    assert lists[2].tolist() == lists[-1].tolist() == [5, 1, 3]
    assert [own.tolist() for own in lists[1:]] == [[], [5, 1, 3]]
    with pytest.raises(IndexError):
        lists[3]


def test_its_arrays(lists):
    assert lists.flat.tolist() == [4, 2, 5, 1, 3]
    assert lists.counts.tolist() == [2, 0, 3]
    assert lists.starts.tolist() == [0, 2, 2]
    assert lists.owner.tolist() == [0, 0, 2, 2, 2]


def test_it_is_made_from_anything_that_has_lists(lists):
    assert Ragged.of(lists) is lists
    assert Ragged.of(own for own in LISTS).flat.tolist() == lists.flat.tolist()
    assert len(Ragged.of([])) == 0


def test_positions_by_owner():
    lists = Ragged.by_owner(np.array([1, -1, 0, 3, 1, 2]), 3)  # -1 and 3 are nobody
    assert [own.tolist() for own in lists] == [[2], [0, 4], [5]]
    assert [own.tolist() for own in Ragged.by_owner(np.array([2, 2]), 4)] == [[], [], [0, 1], []]


def test_some_of_the_lists(lists):
    some = lists.take(np.array([2, 0, 2]))
    assert [own.tolist() for own in some] == [[5, 1, 3], [4, 2], [5, 1, 3]]
