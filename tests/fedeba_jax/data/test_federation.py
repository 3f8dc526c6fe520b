"""Ragged lists of examples as arrays, by hand."""

import numpy as np
import pytest

from fedeba_jax.data.federation import federate, flat_list, held_out, index_table
from fedeba_jax.data.ragged import Ragged

OWNED = [np.array([4, 2]), np.array([0]), np.array([5, 1, 3])]
TABLE = [[4, 2, 4], [0, 0, 0], [5, 1, 3]]


def test_a_table_pads_rows_with_their_first_entry():
    table, count = index_table(OWNED)
    np.testing.assert_array_equal(table, TABLE)
    np.testing.assert_array_equal(count, [2, 1, 3])
    assert table.dtype == count.dtype == np.int32


def test_a_table_may_be_wider_than_its_rows():
    table, count = index_table(OWNED, capacity=5)
    np.testing.assert_array_equal(table, [[4, 2, 4, 4, 4], [0] * 5, [5, 1, 3, 5, 5]])
    np.testing.assert_array_equal(count, [2, 1, 3])


@pytest.mark.parametrize(("owned", "client"), [([], 0), ([np.array([1]), np.array([], int)], 1)])
def test_a_client_without_examples_is_an_error(owned, client):
    with pytest.raises(ValueError, match=f"client {client} holds no example"):
        index_table(owned)


def test_a_table_may_not_be_narrower_than_its_rows():
    with pytest.raises(ValueError, match="capacity=2 is less than the 3 examples of client 2"):
        index_table(OWNED, capacity=2)


def test_a_table_of_very_many_clients_is_that_of_few():
    """What a loop over the clients would give, without one: a million clients take seconds."""
    counts = np.random.default_rng(0).integers(1, 5, 50_000)
    owned = Ragged(np.random.default_rng(1).permutation(counts.sum()), counts)
    table, count = index_table(owned)
    np.testing.assert_array_equal(count, counts)
    for client in (0, 1, 49_999):
        own = owned[client]
        assert table[client].tolist() == own.tolist() + [own[0]] * (4 - len(own))
    example, owner = flat_list(table, count)
    np.testing.assert_array_equal(example, owned.flat)
    np.testing.assert_array_equal(owner, owned.owner)


def test_a_flat_list_names_every_example_once_with_its_owner():
    example, owner = flat_list(np.array(TABLE, np.int32), np.array([2, 1, 3]))
    np.testing.assert_array_equal(example, [4, 2, 0, 5, 1, 3])
    np.testing.assert_array_equal(owner, [0, 0, 1, 2, 2, 2])
    assert example.dtype == owner.dtype == np.int32


def test_a_longer_flat_list_ends_in_examples_of_nobody():
    example, owner = flat_list(np.array(TABLE, np.int32), np.array([2, 1, 3]), length=8)
    np.testing.assert_array_equal(example, [4, 2, 0, 5, 1, 3, 0, 0])
    np.testing.assert_array_equal(owner, [0, 0, 1, 2, 2, 2, 3, 3])


def test_a_federation_holds_the_examples_as_they_are():
    x, y = np.arange(12, dtype=np.uint8).reshape(6, 2), np.arange(6)
    federation = federate(x, y, OWNED)
    np.testing.assert_array_equal(federation.x, x)
    np.testing.assert_array_equal(federation.y, y)
    np.testing.assert_array_equal(federation.rows, TABLE)
    np.testing.assert_array_equal(federation.num_examples, [2, 1, 3])
    assert federation.x.dtype == np.uint8


def test_held_out_data_are_the_federation_and_its_list():
    federation = federate(np.zeros((6, 2)), np.zeros(6, int), OWNED)
    test = held_out(federation)
    assert test.federation is federation
    np.testing.assert_array_equal(test.example, [4, 2, 0, 5, 1, 3])
    np.testing.assert_array_equal(test.owner, [0, 0, 1, 2, 2, 2])


# What is no federation.

X, Y = np.zeros((6, 2)), np.arange(6)


def with_value(array, place, value):
    array = array.copy()
    array[place] = value
    return array


@pytest.mark.parametrize(
    ("x", "y", "owned", "message"),
    [
        (X[:5], Y, OWNED, "x has 5 examples, but y has 6 targets; give one target for each example"),
        (with_value(X, (3, 1), np.nan), Y, OWNED, "x[3] holds NaN or infinity; fill the gap, or leave the example out"),
        (X, with_value(Y / 2, 4, np.inf), OWNED, "y[4] holds NaN or infinity; fill the gap, or leave the example out"),
        (X, with_value(Y, 2, -1), OWNED, "y[2]=-1 is negative; labels count from 0"),
        (X, np.array(list("abcdef")), OWNED, "y is <U1[6]; give an array of numbers, one row an example"),
        (X, Y, [[0], [6]], "owned[1] lists example 6, but there are 6; count from 0 to 5"),
        (X, Y, [[0], [1, -1]], "owned[1] lists example -1, but there are 6; count from 0 to 5"),
        (
            X,
            Y,
            Ragged(np.array([0, 7]), np.array([1, 1])),
            "owned[1] lists example 7, but there are 6; count from 0 to 5",
        ),
        (X, Y, [[0], Y > 3], "owned[1] is a boolean mask; give positions: np.flatnonzero(mask)"),
        (X, Y, [[0.0, 1.5]], "owned[0] is float64[2]; give a list of positions, as [0, 3, 4]"),
        (X, Y, [[[0, 1]]], "owned[0] is int64[1, 2]; give a list of positions, as [0, 3, 4]"),
        (X, Y, [0, 1], "owned[0] is int64[]; give a list of positions, as [0, 3, 4]"),
        (X, Y, [[0], []], "client 1 holds no example; use fewer clients"),
    ],
)
def test_what_is_no_federation_is_told(x, y, owned, message):
    with pytest.raises(ValueError) as error:
        federate(x, y, owned)
    assert str(error.value) == message


def test_targets_of_sequences_may_be_minus_one_and_lists_are_arrays():
    federate(np.zeros((2, 3), np.uint8), np.array([[1, -1, 2], [0, 1, -1]]), [[0], [1]])
    federation = federate([[0.5], [1.5]], [0, 1], [[1, 0, 1]])
    np.testing.assert_array_equal(federation.rows, [[1, 0, 1]])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"num_examples": np.array([2, 0, 3])}, "num_examples[1]=0 is not valid; rows has room for 1 to 3"),
        ({"num_examples": np.array([2, 1, 4])}, "num_examples[2]=4 is not valid; rows has room for 1 to 3"),
        ({"y": np.zeros(5, int)}, "rows lists example 5, but there are 5; count from 0 to 4"),
    ],
)
def test_held_out_data_that_do_not_fit_are_told(changes, message):
    with pytest.raises(ValueError) as error:
        held_out(federate(X, Y, OWNED)._replace(**changes))
    assert str(error.value) == message


def test_held_out_data_are_a_federation():
    with pytest.raises(ValueError, match=r"held_out takes a Federation, not a ndarray; make it by federate"):
        held_out(X)
