"""CIFAR-10 and CIFAR-100: official python pickles, and PNG sheets."""

import hashlib
import io
import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from fedeba_jax.data.sources.archives import contents
from fedeba_jax.data.sources.raw import DataError, Log, Raw, Unavailable, from_each, quiet
from fedeba_jax.data.sources.readers.files import found
from fedeba_jax.data.sources.readers.pickles import load_arrays

CIFAR100_MD5 = {"train": "16019d7e3df5f24257cddd939b257f8d", "test": "f0ef6b0ae62326f3e7ffdfab6717acfc"}


def read_cifar10(folder: Path, log: Log = quiet) -> Raw | None:
    """CIFAR-10 as PNG sheets (the npm package) or as the official python pickles."""
    return read_cifar10_sheets(folder) or read_cifar10_pickles(folder)


def read_cifar10_sheets(folder: Path) -> Raw | None:
    """Sheets with one image a row, 1024 RGB pixels; labels as json lists (their names are misspelt so)."""
    sheets = [folder / f"data_batch_{i}.png" for i in range(1, 6)]
    others = [folder / name for name in ("train_lables.json", "test_batch.png", "test_lables.json")]
    if found([(file,) for file in [*sheets, *others]]) is None:
        return None
    y_train, test, y_test = others
    arrays = {
        "x_train": np.concatenate([_sheet(file) for file in sheets]),
        "y_train": _json_labels(y_train),
        "x_test": _sheet(test),
        "y_test": _json_labels(y_test),
    }
    return Raw(arrays, {"x_train": sheets, "y_train": [y_train], "x_test": [test], "y_test": [y_test]})


def _sheet(file: Path) -> np.ndarray:
    try:
        from PIL import Image, UnidentifiedImageError
    except ImportError:
        raise Unavailable("PNG sheets need pillow: pip install 'fedeba_jax[images]'") from None
    try:
        with Image.open(file) as image:
            pixels = np.asarray(image)
    except (OSError, SyntaxError, ValueError, UnidentifiedImageError) as error:
        raise DataError(f"{file}: broken PNG ({error})") from None
    if pixels.ndim != 3 or pixels.shape[1:] != (1024, 3):
        raise DataError(f"{file}: not a sheet of rows of 1024 RGB pixels but {list(pixels.shape)}")
    return pixels.reshape(-1, 32, 32, 3)


def _json_labels(file: Path) -> np.ndarray:
    try:
        return _labels(json.loads(file.read_text()))
    except (OSError, ValueError, TypeError) as error:
        raise DataError(f"{file}: not a json list of labels ({error})") from None


def read_cifar10_pickles(folder: Path) -> Raw | None:
    """The official python batches, in `cifar-10-batches-py/`."""
    folder = folder / "cifar-10-batches-py"
    files = found([(folder / f"data_batch_{i}",) for i in range(1, 6)] + [(folder / "test_batch",)])
    if files is None:
        return None
    batches = [_batch(file, file.read_bytes(), b"labels") for file in files]
    arrays = {
        "x_train": np.concatenate([x for x, _ in batches[:5]]),
        "x_test": batches[5][0],
        "y_train": np.concatenate([y for _, y in batches[:5]]),
        "y_test": batches[5][1],
    }
    train, test = files[:5], files[5:]
    return Raw(arrays, {"x_train": train, "y_train": train, "x_test": test, "y_test": test})


def read_cifar100(folder: Path, log: Log = quiet, md5: Mapping[str, str] = CIFAR100_MD5) -> Raw | None:
    """The official files with their fine labels: the folder `cifar-100-python/`, or its .tar.gz.

    Args:
      folder: where the folder or the archive lies.
      log: not needed here.
      md5: of the two files.
    """
    names = ("cifar-100-python", "cifar-100-python.tar.gz")
    source = next((folder / name for name in names if (folder / name).exists()), None)
    if source is None:
        return None
    inside = {split if source.is_dir() else f"cifar-100-python/{split}": split for split in md5}
    files, arrays = {}, {}
    for name, data in contents(source, inside.__contains__):
        split = inside[name]
        files[split] = file = source / name
        digest = hashlib.md5(data, usedforsecurity=False).hexdigest()
        if digest != md5[split]:
            raise DataError(f"{file}: has md5 {digest}, expected {md5[split]}; take the official cifar-100-python")
        arrays[f"x_{split}"], arrays[f"y_{split}"] = _batch(file, data, b"fine_labels")
    if missing := set(md5) - set(files):
        raise DataError(f"{source}: has no file {min(missing)!r}")
    train, test = files["train"], files["test"]
    return Raw(arrays, from_each([train, train, test, test]))


def _batch(file: Path, data: bytes, labels: bytes) -> tuple[np.ndarray, np.ndarray]:
    """Images [N, 32, 32, 3] and labels [N] of one pickled batch."""
    try:
        batch = load_arrays(io.BytesIO(data))
        pixels = np.asarray(batch[b"data"])
        if pixels.dtype != np.uint8:
            raise ValueError(f"pixels are {pixels.dtype}, not uint8")
        return pixels.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1), _labels(batch[labels])
    except Exception as error:  # a broken pickle may raise anything
        raise DataError(f"{file}: not a CIFAR batch ({type(error).__name__}: {error})") from None


def _labels(values: list[int]) -> np.ndarray:
    """Labels as int32; a number with a fraction, a text or a hole is refused rather than rounded."""
    labels = np.array(values)
    if labels.dtype.kind != "i":
        raise ValueError(f"labels are {labels.dtype}, not integers")
    return labels.astype(np.int32)
