"""Every split has one order that follows from its content, and arrays that are not the set's are refused."""

import hashlib
from pathlib import Path

import numpy as np
import pytest

from fedeba_jax.data import sources
from fedeba_jax.data.sources.raw import ARRAYS, DataError, Raw, canonical
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
