"""idx files: a broken one is named in the error."""

import struct

import pytest

from fedeba_jax.data import sources
from fedeba_jax.data.sources.raw import DataError
from tests.support.tiny_set import IDX, break_file, write_idx


@pytest.mark.parametrize("compress", [False, True])
@pytest.mark.parametrize("how", ["truncate", "magic", "empty"])
@pytest.mark.parametrize("name", IDX)
def test_a_broken_file_is_named(data_dir, arrays, name, how, compress):
    write_idx(data_dir / "tiny", arrays, compress)
    break_file(data_dir / "tiny" / (name + ".gz" * compress), how)
    with pytest.raises(DataError, match=rf"{name}.*source: raw files\); delete the raw files") as error:
        sources.load("tiny", data_dir)
    assert "\n" not in str(error.value)


def test_an_incomplete_set_names_what_is_missing(data_dir, arrays):
    write_idx(data_dir / "tiny", arrays)
    (data_dir / "tiny" / IDX[3]).unlink()
    with pytest.raises(DataError, match=f"{IDX[3]}: missing"):
        sources.load("tiny", data_dir)


@pytest.mark.parametrize("shape", [(0, 4, 5), (-6, -4, 5)])
def test_an_absurd_header_is_refused(data_dir, arrays, shape):
    write_idx(data_dir / "tiny", arrays)
    payload = bytes(abs(shape[0] * shape[1] * shape[2]))
    (data_dir / "tiny" / IDX[0]).write_bytes(bytes([0, 0, 8, 3]) + struct.pack(">3i", *shape) + payload)
    with pytest.raises(DataError, match=IDX[0]):
        sources.load("tiny", data_dir)
