"""Your own data: files, folders and arrays become data sets; whatever is wrong with them is one clear line."""

import jax
import numpy as np
import pytest

import fedeba_jax
from fedeba_jax.data import custom
from fedeba_jax.data.dealing import Dealing
from fedeba_jax.data.sources.raw import DataError

RNG = np.random.default_rng(0)
X = RNG.normal(size=(12, 3))
Y = np.arange(12) % 3
CLIENT = np.array(["zoe", "ann", "bob"])[np.arange(12) // 2 % 3]
TESTS = {"x_test": X[:6], "y_test": Y[:6], "client_test": CLIENT[:6]}


def saved(path, **arrays):
    np.savez(path, **arrays)
    return str(path)


# What is taken.


def test_a_file_of_features(tmp_path):
    path = saved(tmp_path / "mine.npz", x=X, y=Y)
    data = custom.load(path)
    assert (data.name, data.source, data.num_classes) == ("custom", path, 3)
    assert data.x_train.dtype == np.float32
    assert data.y_train.dtype == np.int32
    np.testing.assert_array_equal(data.x_train, X.astype(np.float32))
    assert len(data.x_test) == len(data.y_test) == 0
    assert data.client_train is None
    assert data.md5.keys() == {"x_train", "y_train"}
    assert data.md5 == custom.from_arrays(X, Y).md5
    assert data.md5 != custom.from_arrays(X + 1, Y).md5


def test_clients_are_numbered_in_the_order_of_their_names(tmp_path):
    data = custom.load(saved(tmp_path / "mine.npz", x=X, y=Y, client=CLIENT, **TESTS))
    assert data.client_names == ("ann", "bob", "zoe")
    assert [data.client_names[number] for number in data.client_train] == CLIENT.tolist()
    assert [data.client_names[number] for number in data.client_test] == CLIENT[:6].tolist()
    assert data.client_train.dtype == np.int32
    assert data.md5.keys() == {"x_train", "y_train", "x_test", "y_test", "client_train", "client_test"}


def test_clients_may_be_any_integers_or_bytes():
    data = custom.from_arrays(X, Y, np.array([70, -5, 1000])[np.arange(12) % 3])
    assert data.client_names == ("-5", "70", "1000")
    assert custom.from_arrays(X, Y, CLIENT.astype("S3")).client_names == ("ann", "bob", "zoe")


def test_a_folder_of_one_file_for_each_client(tmp_path):
    for name in ("zoe", "ann"):
        own = name == CLIENT
        saved(tmp_path / f"{name}.npz", x=X[own], y=Y[own], x_test=X[:2], y_test=Y[:2])
    data = custom.load(str(tmp_path))
    assert data.client_names == ("ann", "zoe")
    assert data.client_train.tolist() == [0] * 4 + [1] * 4
    assert data.client_test.tolist() == [0, 0, 1, 1]
    np.testing.assert_array_equal(data.x_train[4:], X[CLIENT == "zoe"].astype(np.float32))
    assert data.source == str(tmp_path)


@pytest.mark.parametrize(
    ("x", "shape", "dtype"),
    [
        (np.zeros((12, 4, 5), np.uint8), (4, 5, 1), np.uint8),
        (np.zeros((12, 4, 5, 3), np.uint8), (4, 5, 3), np.uint8),
        (np.zeros((12, 4, 5, 3), np.float16), (4, 5, 3), np.float32),
        (np.zeros((12, 4), np.int64), (4,), np.float32),
        (np.zeros((12, 4), bool), (4,), np.float32),
    ],
)
def test_images_and_features(x, shape, dtype):
    data = custom.from_arrays(x, Y)
    assert data.x_train.shape == (12, *shape)
    assert data.x_train.dtype == dtype


def test_text_is_tokens_with_a_target_for_each():
    x = np.arange(24).reshape(12, 2)
    y = np.where(x % 5 == 0, -1, x + 1)
    data = custom.from_arrays(x, y)
    assert data.x_train.dtype == data.y_train.dtype == np.int32
    assert data.num_classes == 25
    np.testing.assert_array_equal(data.y_train, y)


# From arrays to what `simulate` takes.


def test_a_federation_in_one_call():
    train, test = fedeba_jax.federation_from(X, Y, CLIENT, **TESTS)
    assert train.num_examples.tolist() == [4, 4, 4]
    np.testing.assert_array_equal(train.x[train.rows[2]], X[CLIENT == "zoe"].astype(np.float32))
    assert test.federation.num_examples.tolist() == [2, 2, 2]
    np.testing.assert_array_equal(test.federation.x[test.example], X[[2, 3, 4, 5, 0, 1]].astype(np.float32))
    assert all(isinstance(leaf, jax.Array) for leaf in jax.tree.leaves((train, test)))


def test_without_test_examples_some_of_each_client_are_held_out():
    train, test = fedeba_jax.federation_from(X, Y, CLIENT)
    assert train.num_examples.tolist() == [3, 3, 3]
    assert test.federation.num_examples.tolist() == [1, 1, 1]
    for client in range(3):
        both = [*train.rows[client, :3].tolist(), int(test.federation.rows[client, 0])]
        assert sorted(both) == np.flatnonzero(np.unique(CLIENT)[client] == CLIENT).tolist()
    other = fedeba_jax.federation_from(X, Y, CLIENT, seed=1)[0]
    assert not np.array_equal(other.rows, train.rows)


def test_examples_of_nobody_are_dealt():
    dealing = Dealing(clients=2, partition="iid", test_split="auto")
    train, test = fedeba_jax.federation_from(X, Y, dealing=dealing)
    assert train.num_examples.tolist() == [5, 5]
    assert test.federation.num_examples.tolist() == [1, 1]
    with pytest.raises(ValueError, match="clients=0: arrays dealt by shards has no number of its own; give clients"):
        fedeba_jax.federation_from(X, Y)
    with pytest.raises(ValueError, match=r"dealing.validation=0.1: there is no place for it; give 0"):
        fedeba_jax.federation_from(X, Y, CLIENT, dealing=Dealing(validation=0.1))


# What is refused.


def with_value(array, place, value):
    changed = np.array(array)
    changed[place] = value
    return changed


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"x": X}, "there is no array 'y'; save x and y; there is x"),
        ({"x": X, "y": Y, "labels": Y}, "has an array 'labels'; name the arrays x, y, client, x_test"),
        ({"x": X, "y": Y[:5]}, "x has 12 examples and y 5 entries; give one for each"),
        ({"x": X[:, 0], "y": Y}, r"x is float64\[12\]; give features \[N, D\], images"),
        ({"x": X[:0], "y": Y[:0]}, r"x is float64\[0, 3\]; give at least one example"),
        ({"x": X.astype(str), "y": Y}, r"x is <U\d+\[12, 3\]; give numbers"),
        ({"x": X, "y": Y[:, None]}, r"y is int64\[12, 1\]; give one label for each example"),
        ({"x": X, "y": Y / 2}, r"y is float64\[12\]; give integer labels 0, 1, \.\.\., as y.astype\(int\)"),
        ({"x": X, "y": Y - 1}, r"y\[0\] is less than 0; give numbers 0, 1"),
        ({"x": X, "y": with_value(Y, 3, 10**6)}, r"y has label 1000000 among 12; number the labels 0, 1, 2"),
        ({"x": X, "y": with_value(Y, 3, 2**40)}, r"y has 1099511627776; number the labels"),
        ({"x": X, "y": 0 * Y}, "y has the label 0 alone; give at least two labels"),
        ({"x": with_value(X, (7, 1), np.nan), "y": Y}, r"x\[7\] holds NaN or a number that is not finite; replace"),
        ({"x": with_value(X, (2, 0), np.inf), "y": Y}, r"x\[2\] holds NaN or a number that is not finite"),
        ({"x": with_value(X, (4, 0), 1e300), "y": Y}, r"x\[4\] holds NaN or a number that is not finite"),
        ({"x": X, "y": Y, "client": CLIENT[:5]}, "x has 12 examples and client 5 entries"),
        ({"x": X, "y": Y, "client": X[:, 0]}, r"client is float64\[12\]; give one integer or string"),
        ({"x": X, "y": Y, "client_test": CLIENT}, "client_test is there, and client is not; give both, or none"),
        ({"x": X, "y": Y, "x_test": X}, "only one of x_test and y_test is there; give both, or none"),
        ({"x": X, "y": Y, "client": CLIENT, "client_test": CLIENT}, "client_test is there, and x_test is not"),
        (
            {"x": X, "y": Y, "client": CLIENT, "x_test": X, "y_test": Y},
            "client and x_test are there, and client_test is not; give it, or leave x_test out: 20 %",
        ),
        (
            {"x": X, "y": Y, "client": CLIENT, **TESTS, "client_test": with_value(CLIENT[:6], 4, "eve")},
            r"client_test\[4\] is 'eve', who has no training example; spell clients alike",
        ),
        (
            {"x": X, "y": Y, "client": CLIENT, **TESTS, "client_test": np.repeat(["ann", "bob"], 3)},
            "client 'zoe' has no test example; add some, or leave x_test out",
        ),
        (
            {"x": X, "y": Y, "client": CLIENT, **TESTS, "client_test": np.arange(6)},
            "client is <U3, and client_test int64; give both as integers or as strings",
        ),
        ({"x": X, "y": Y, "x_test": X[:, :2], "y_test": Y}, r"x_test is float64\[12, 2\], and x float64\[12, 3\]"),
        ({"x": X, "y": Y, "x_test": X, "y_test": Y[:3]}, "x_test has 12 examples and y_test 3 entries"),
        ({"x": X, "y": np.tile(Y[:, None], 3)}, r"x is float64\[12, 3\], and y has a target for each.*integers"),
        ({"x": np.tile(Y[:, None], 3) - 1, "y": np.tile(Y[:, None], 3)}, r"x\[0\] is less than 0"),
        ({"x": np.tile(Y[:, None], 3), "y": np.tile(Y[:, None], 3) - 2}, r"y\[0\] is less than -1; give targets from"),
    ],
)
def test_what_is_wrong_is_one_line_with_file_and_remedy(tmp_path, arrays, message):
    path = saved(tmp_path / "mine.npz", **arrays)
    with pytest.raises(DataError, match=message) as error:
        custom.load(path)
    assert str(error.value).startswith(f"{path}: ")
    assert "\n" not in str(error.value)


def test_python_objects_are_not_read(tmp_path):
    path = saved(tmp_path / "mine.npz", x=X, y=Y, client=np.array([*CLIENT], object))
    with pytest.raises(DataError, match=r"mine.npz: client is pickled Python objects; save plain arrays"):
        custom.load(path)
    with pytest.raises(DataError, match="arrays: client is an array of Python objects; give a plain array"):
        custom.from_arrays(X, Y, np.array([*CLIENT], object))


def test_files_that_are_no_npz_files(tmp_path):
    with pytest.raises(DataError, match="no such file or folder; give the path of an npz file"):
        custom.load(str(tmp_path / "nothing.npz"))
    whole = (tmp_path / "whole.npz", saved(tmp_path / "whole.npz", x=X, y=Y))[0].read_bytes()
    np.save(tmp_path / "one.npy", X)
    for content in (b"", b"x,y\n1,2\n", (tmp_path / "one.npy").read_bytes(), whole[:400]):
        (tmp_path / "wrong.npz").write_bytes(content)
        with pytest.raises(DataError, match=r"wrong.npz: is no npz file, or not a whole one; save it by np.savez"):
            custom.load(str(tmp_path / "wrong.npz"))
    middle = len(whole) // 2
    (tmp_path / "wrong.npz").write_bytes(whole[: middle - 20] + bytes(40) + whole[middle + 20 :])
    with pytest.raises(DataError, match=r"wrong.npz: [xy] cannot be read \(.*CRC.*\); save it by np.savez"):
        custom.load(str(tmp_path / "wrong.npz"))


@pytest.mark.parametrize(
    ("second", "message"),
    [
        ({"x": X[:0], "y": Y[:0]}, "x has no example; add some, or remove the file"),
        ({"x": X, "y": Y[:3]}, "x has 12 examples and y 3 entries"),
        ({"x": X[:, :2], "y": Y}, r"x is float64\[12, 2\], and float64\[12, 3\] in ann.npz; give all the same"),
        ({"x": X, "y": Y, "x_test": X, "y_test": Y}, "holds x, y, x_test, y_test, and ann.npz x, y; give all the same"),
        ({"x": X, "y": Y, "client": CLIENT}, "has an array 'client'; name the arrays x, y, x_test, y_test"),
    ],
)
def test_the_file_of_a_folder_that_is_wrong_is_named(tmp_path, second, message):
    saved(tmp_path / "ann.npz", x=X, y=Y)
    path = saved(tmp_path / "bob.npz", **second)
    with pytest.raises(DataError, match=message) as error:
        custom.load(str(tmp_path))
    assert str(error.value).startswith(f"{path}: ")


def test_an_empty_folder_is_told(tmp_path):
    with pytest.raises(DataError, match="no npz file in this folder; give a folder with one npz file for each client"):
        custom.load(str(tmp_path))
