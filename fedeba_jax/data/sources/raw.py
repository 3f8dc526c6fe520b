"""Decoded arrays, the one order they are put in, and the check that they are what their data set's name says.

Notes:
  Order. tfds shuffles its records and keeps no index for some sets, so the official order cannot be had
  from every source. Every split is therefore sorted by the md5 of its images (ties by label): an order
  that follows from content alone, so an index-based partition is the same federation everywhere.
  The check. Counts of each class, shapes, dtypes and one md5 an array, after every load.
"""

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np

ARRAYS = ("x_train", "y_train", "x_test", "y_test")
Files = dict[str, list[Path]]  # array name -> the files it was decoded from


class DataError(ValueError):
    """Data that is missing, broken or not what its name says; the message is one line with a remedy."""


class Unavailable(Exception):
    """A source that cannot be tried here (no client, no network): logged, then the next one is tried."""


class Raw(NamedTuple):
    """What a reader decoded, in the files' order, and which files: errors name them."""

    arrays: dict[str, np.ndarray]
    files: Files
    source: str = ""  # the cache tells what it is a cache of


class Package(NamedTuple):
    """A package that carries a data set, and where in it the raw files lie."""

    client: str  # "apt" or "npm"
    name: str
    path: str


class Spec(NamedTuple):
    """What a data set must look like, and where it can be had."""

    shape: tuple[int, int, int]
    train_counts: tuple[int, ...]  # examples of each class
    test_counts: tuple[int, ...]
    md5: dict[str, str]
    read: Callable[[Path], Raw | None]  # raw files of a folder; None where there are none
    package: Package | None = None
    system: Path | None = None
    tfds: bool = True  # tfds has it under the same name
    embedded: bool = False


def canonical(raw: Raw) -> Raw:
    """The same examples, each split sorted by md5 of the image, then label (see the module's Notes)."""
    arrays = {}
    for split in ("train", "test"):
        x, y = raw.arrays[f"x_{split}"], raw.arrays[f"y_{split}"]
        if len(x) != len(y):
            raise DataError(f"{file_names(raw.files[f'y_{split}'])}: {len(y)} labels for {len(x)} images")
        digests = b"".join(_md5(image).digest() for image in np.ascontiguousarray(x))
        high, low = np.frombuffer(digests, ">u8").reshape(-1, 2).T
        order = np.lexsort((y, low, high))
        arrays[f"x_{split}"] = x[order]
        arrays[f"y_{split}"] = y[order].astype(np.int32)
    return Raw(arrays, raw.files)


def check(raw: Raw, spec: Spec) -> dict[str, str]:
    """The arrays' md5, if they are what the spec says; a `DataError` that names the file otherwise."""
    digests = {}
    for array in ARRAYS:
        value, split, file = raw.arrays[array], array[2:], file_names(raw.files[array])
        counts = spec.train_counts if split == "train" else spec.test_counts
        images = array.startswith("x")
        shape, dtype = ((sum(counts), *spec.shape), "uint8") if images else ((sum(counts),), "int32")
        if value.shape != shape or value.dtype != dtype:
            found = f"{value.dtype}{list(value.shape)}"
            raise DataError(f"{file}: {array} is {found}, expected {dtype}{list(shape)}")
        if not images and _class_counts(value, len(counts)) != counts:
            raise DataError(f"{file}: {array} has the wrong number of examples in some class")
        digests[array] = md5 = _md5(value).hexdigest()
        if md5 != spec.md5[array]:
            raise DataError(f"{file}: {array} has md5 {md5}, expected {spec.md5[array]}")
    return digests


def _md5(array: np.ndarray) -> "hashlib._Hash":
    return hashlib.md5(np.ascontiguousarray(array), usedforsecurity=False)  # type: ignore[arg-type]


def _class_counts(labels: np.ndarray, num_classes: int) -> tuple[int, ...]:
    """Examples of each class; empty when a label is out of range."""
    if labels.min() < 0 or labels.max() >= num_classes:
        return ()
    return tuple(np.bincount(labels, minlength=num_classes).tolist())


def file_names(files: list[Path]) -> str:
    """Paths, as an error names them."""
    return ", ".join(map(str, files))


def from_each(files: list[Path]) -> Files:
    """One file an array, in the order of `ARRAYS`."""
    return {array: [file] for array, file in zip(ARRAYS, files, strict=True)}
