"""Every split has one order that follows from its content, and arrays that are not the set's are refused."""

import hashlib
from pathlib import Path

import numpy as np
import pytest

from fedeba_jax.data import sources
from fedeba_jax.data.sources.raw import ARRAYS, CLIENTS, DataError, Raw, Spec, canonical, check, file_names
from tests.support.tiny_set import IDX, break_file, write_idx


def test_canonical_order_is_by_md5_of_the_image_then_label():
    x = np.array([7, 3, 7, 5], np.uint8).reshape(4, 1, 1, 1)
    y = np.array([1, 0, 0, 2])
    files = {array: [Path(array)] for array in ARRAYS}
    got = canonical(Raw({"x_train": x, "y_train": y, "x_test": x, "y_test": y}, files)).arrays
    expected = sorted(
        zip(x.ravel().tolist(), y.tolist(), strict=True),
        key=lambda pair: (hashlib.md5(bytes([pair[0]])).digest(), pair[1]),
    )
    assert list(zip(got["x_train"].ravel().tolist(), got["y_train"].tolist(), strict=True)) == expected
    assert got["y_train"].dtype == np.int32


@pytest.mark.parametrize("name", IDX)
def test_a_flipped_byte_is_found_and_its_file_named(data_dir, arrays, name):
    write_idx(data_dir / "tiny", arrays)
    break_file(data_dir / "tiny" / name, "flip")
    with pytest.raises(DataError, match=f"{name}: ._t"):
        sources.load("tiny", data_dir)
    assert not (data_dir / "tiny" / "cache").exists()


def test_another_data_set_under_this_name_is_refused(data_dir, arrays):
    write_idx(data_dir / "tiny", {**arrays, "x_train": arrays["x_train"][:, :3]})
    with pytest.raises(DataError, match=r"uint8\[6, 3, 5, 1\], expected uint8\[6, 4, 5, 1\]"):
        sources.load("tiny", data_dir)
    write_idx(data_dir / "tiny", {**arrays, "y_train": arrays["y_train"][:5]})
    with pytest.raises(DataError, match="5 labels for 6 images"):
        sources.load("tiny", data_dir)
    write_idx(data_dir / "tiny", {**arrays, "y_test": arrays["y_test"] + 100})
    with pytest.raises(DataError, match=r"t10k-labels-idx1-ubyte: y_test has 102, expected values in \[0, 2\]"):
        sources.load("tiny", data_dir)
    write_idx(data_dir / "tiny", {**arrays, "y_test": np.array([1, 1, 2], np.uint8)})
    with pytest.raises(DataError, match=r"wrong number of examples in some class \(0 of class 0, expected 1\)"):
        sources.load("tiny", data_dir)


# Sequences of tokens, which come with clients.


def sequences(**changes):
    """Three sequences of two clients in each part, with some arrays changed."""
    tokens, clients = np.full((3, 4), 5, np.int32), np.array([0, 0, 1], np.int32)
    arrays = {array: tokens for array in ARRAYS} | {array: clients for array in CLIENTS} | changes
    return Raw(arrays, {array: [Path(f"{array}.json")] for array in arrays}, num_classes=6, client_names=("a", "b"))


SEQUENCES = Spec((4,), (), (), {}, lambda folder, log: None, tfds=False)


def test_sequences_keep_their_order_and_have_an_md5_each():
    clients = np.array([1, 0, 0], np.int32)
    raw = canonical(sequences(client_train=clients))
    assert raw.arrays["client_train"] is clients
    assert set(check(raw, SEQUENCES)) == {*ARRAYS, *CLIENTS}


def test_targets_that_do_not_count_are_allowed():
    check(sequences(y_train=np.full((3, 4), -1, np.int32)), SEQUENCES)


@pytest.mark.parametrize(
    ("array", "value", "message"),
    [
        ("x_train", np.full((3, 4), 6, np.int32), r"x_train has 6, expected values in \[0, 5\]"),
        ("x_train", np.full((3, 4), -1, np.int32), r"x_train has -1, expected values in \[0, 5\]"),
        ("y_test", np.full((3, 4), -2, np.int32), r"y_test has -2, expected values in \[-1, 5\]"),
        ("x_test", np.full((3, 5), 1, np.int32), r"x_test is int32\[3, 5\], expected int32\[3, 4\]"),
        ("y_train", np.full((3, 4), 1.5), r"y_train is float64\[3, 4\], expected int32"),
        ("client_test", np.array([0, 1], np.int32), r"client_test is int32\[2\], expected int32\[3\]"),
        ("client_train", np.array([0, 1, 2], np.int32), r"client_train has 2, expected values in \[0, 1\]"),
        ("client_train", np.array([0, 0, 0], np.int32), "client 'b' has no train examples"),
        ("client_test", np.array([1, 1, 1], np.int32), "client 'a' has no test examples"),
    ],
)
def test_wrong_sequences_are_refused(array, value, message):
    with pytest.raises(DataError, match=rf"{array}\.json: .*{message}"):
        check(sequences(**{array: value}), SEQUENCES)


def test_an_empty_part_is_refused():
    nothing = {"x_test": np.zeros((0, 4), np.int32), "y_test": np.zeros((0, 4), np.int32)}
    with pytest.raises(DataError, match="x_test is empty"):
        check(sequences(**nothing, client_test=np.zeros(0, np.int32)), SEQUENCES)


def test_many_files_are_named_by_the_first():
    assert file_names([Path(str(i)) for i in range(9)]) == "0, 1, 2 and 6 more"
