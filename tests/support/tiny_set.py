"""A data set of nine images, as files whole and broken, for tests of what reads them."""

import gzip
import hashlib
import struct
from pathlib import Path

import numpy as np

from fedeba_jax.data.sources.raw import ARRAYS, Raw, Spec, canonical
from fedeba_jax.data.sources.readers import read_idx

IDX = ("train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte")


def idx_bytes(array):
    return bytes([0, 0, 8, array.ndim]) + struct.pack(f">{array.ndim}i", *array.shape) + array.tobytes()


def write_idx(folder, arrays, compress=False):
    folder.mkdir(parents=True, exist_ok=True)
    for name, array in zip(IDX, ARRAYS, strict=True):
        data = idx_bytes(arrays[array].squeeze(-1) if array.startswith("x") else arrays[array])
        if compress:
            (folder / f"{name}.gz").write_bytes(gzip.compress(data))
        else:
            (folder / name).write_bytes(data)


def spec_of(arrays, **fields):
    """The spec that these arrays meet."""
    raw = canonical(Raw(arrays, {array: [Path(array)] for array in ARRAYS}))
    md5 = {array: hashlib.md5(np.ascontiguousarray(value)).hexdigest() for array, value in raw.arrays.items()}
    counts = [tuple(np.bincount(arrays[f"y_{split}"]).tolist()) for split in ("train", "test")]
    fields = {"read": read_idx, **fields}
    return Spec(arrays["x_train"].shape[1:], *counts, md5=md5, **fields)


def same(a, b):
    return all(np.array_equal(getattr(a, array), getattr(b, array)) for array in ARRAYS)


def break_file(path, how):
    data = path.read_bytes()
    if how == "truncate":
        data = data[: len(data) - 7]
    elif how == "magic":
        data = b"\x01" + data[1:]
    elif how == "flip":
        data = data[:-1] + bytes([data[-1] ^ 1])
    elif how == "empty":
        data = b""
    path.write_bytes(data)
