"""The MNIST family: idx files."""

import gzip
import zlib
from pathlib import Path

import numpy as np

from fedeba_jax.data.sources.archives import MOST
from fedeba_jax.data.sources.raw import ARRAYS, DataError, Log, Raw, from_each, quiet
from fedeba_jax.data.sources.readers.files import found

NAMES = ("train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte")


def read_idx(folder: Path, log: Log = quiet) -> Raw | None:
    """The four idx files, plain or .gz."""
    files = found([(folder / name, folder / f"{name}.gz") for name in NAMES])
    if files is None:
        return None
    values = [_idx(file) for file in files]
    values[0], values[2] = values[0][..., None], values[2][..., None]
    return Raw(dict(zip(ARRAYS, values, strict=True)), from_each(files))


def _idx(file: Path) -> np.ndarray:
    """One idx file of bytes: magic 0, 0, 8, rank; the sizes as big-endian int32; the values."""
    try:
        with gzip.open(file) if file.suffix == ".gz" else open(file, "rb") as content:
            data = content.read(MOST)  # more is a trap; the sizes that it says are compared below
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{file}: truncated or not gzip ({error})") from None
    rank = 3 if "idx3" in file.name else 1
    if data[:4] != bytes([0, 0, 8, rank]) or len(data) < 4 + 4 * rank:
        raise DataError(f"{file}: not an idx file of bytes of rank {rank} (starts with {data[:4].hex()!r})")
    shape = np.frombuffer(data, ">i4", rank, offset=4).tolist()
    size = 4 + 4 * rank + int(np.prod(shape, dtype=np.int64))
    if min(shape) < 1 or len(data) != size:
        raise DataError(f"{file}: has {len(data)} bytes, its header says {size}")
    return np.frombuffer(data, np.uint8, offset=4 + 4 * rank).reshape(shape)
