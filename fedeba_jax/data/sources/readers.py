"""Readers of files: a folder's `Raw`, or None where it holds none of them."""

import gzip
import importlib.util
import json
import lzma
import pickle
import zipfile
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fedeba_jax.data.sources import embedded
from fedeba_jax.data.sources.raw import ARRAYS, DataError, Raw, Unavailable, file_names, from_each


def read_idx(folder: Path) -> Raw | None:
    """The four idx files of the MNIST family, plain or .gz."""
    names = ("train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte")
    files = _found([(folder / name, folder / f"{name}.gz") for name in names])
    if files is None:
        return None
    values = [_idx(file) for file in files]
    values[0], values[2] = values[0][..., None], values[2][..., None]
    return Raw(dict(zip(ARRAYS, values, strict=True)), from_each(files))


def _idx(file: Path) -> np.ndarray:
    """One idx file of bytes: magic 0, 0, 8, rank; the sizes as big-endian int32; the values."""
    try:
        data = gzip.decompress(file.read_bytes()) if file.suffix == ".gz" else file.read_bytes()
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


def read_cifar10(folder: Path) -> Raw | None:
    """CIFAR-10 as PNG sheets (the npm package) or as the official python pickles."""
    return read_cifar10_sheets(folder) or read_cifar10_pickles(folder)


def read_cifar10_sheets(folder: Path) -> Raw | None:
    """Sheets with one image a row, 1024 RGB pixels; labels as json lists (their names are misspelt so)."""
    sheets = [folder / f"data_batch_{i}.png" for i in range(1, 6)]
    files = _found(
        [
            (file,)
            for file in [*sheets, folder / "train_lables.json", folder / "test_batch.png", folder / "test_lables.json"]
        ]
    )
    if files is None:
        return None
    y_train, test, y_test = files[5:]
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
        return np.array(json.loads(file.read_text()), np.int32)
    except (OSError, ValueError, TypeError) as error:
        raise DataError(f"{file}: not a json list of labels ({error})") from None


def read_cifar10_pickles(folder: Path) -> Raw | None:
    """The official python batches, in `cifar-10-batches-py/`."""
    folder = folder / "cifar-10-batches-py"
    files = _found([(folder / f"data_batch_{i}",) for i in range(1, 6)] + [(folder / "test_batch",)])
    if files is None:
        return None
    batches = [_cifar_batch(file, b"labels") for file in files]
    arrays = {
        "x_train": np.concatenate([x for x, _ in batches[:5]]),
        "x_test": batches[5][0],
        "y_train": np.concatenate([y for _, y in batches[:5]]),
        "y_test": batches[5][1],
    }
    train, test = files[:5], files[5:]
    return Raw(arrays, {"x_train": train, "y_train": train, "x_test": test, "y_test": test})


def _cifar_batch(file: Path, labels: bytes) -> tuple[np.ndarray, np.ndarray]:
    """Images [N, 32, 32, 3] and labels [N] of one pickled batch."""
    try:
        with open(file, "rb") as stream:
            batch = _ArrayUnpickler(stream, encoding="bytes").load()
        x = np.asarray(batch[b"data"], np.uint8).reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
        return x, np.array(batch[labels], np.int32)
    except Exception as error:  # a broken pickle may raise anything
        raise DataError(f"{file}: not a CIFAR batch ({type(error).__name__}: {error})") from None


class _ArrayUnpickler(pickle.Unpickler):
    """Builds numpy arrays and plain containers only: a pickle from elsewhere must not run code."""

    def find_class(self, module: str, name: str) -> Any:
        allowed = {"ndarray": np.ndarray, "dtype": np.dtype}
        if module == "numpy" and name in allowed:
            return allowed[name]
        if module in ("numpy.core.multiarray", "numpy._core.multiarray") and name == "_reconstruct":
            return np.ndarray(0).__reduce__()[0]  # numpy's own _reconstruct, wherever this version keeps it
        if module == "_codecs" and name == "encode":
            return lambda text, _="latin1": text.encode("latin1")  # how Python 3 writes bytes in protocol 2
        raise pickle.UnpicklingError(f"{module}.{name} is not allowed")


def _found(choices: Sequence[tuple[Path, ...]]) -> list[Path] | None:
    """The first existing file of each choice; None if there is none at all, an error if only some."""
    files = [next((file for file in choice if file.exists()), None) for choice in choices]
    if not any(files):
        return None
    missing = [choice[0] for choice, file in zip(choices, files, strict=True) if file is None]
    if missing:
        raise DataError(f"{file_names(missing)}: missing beside the other files")
    return [file for file in files if file is not None]


def read_embedded(folder: Path) -> Raw:
    """The images in the package itself; the folder plays no part."""
    file = Path("embedded") / embedded.FILE
    try:
        return Raw(embedded.read(), from_each([file] * 4))
    except (OSError, EOFError, ValueError, lzma.LZMAError, zipfile.BadZipFile) as error:
        raise DataError(f"{file}: broken ({error})") from None


def read_tfds(folder: Path) -> Raw | None:
    """A prepared tfds data set, `folder/VERSION/`: read where it lies, never built or downloaded here."""
    prepared = sorted(folder.glob("[0-9]*/dataset_info.json"))
    if not prepared:
        return None
    version = prepared[-1].parent
    if importlib.util.find_spec("tensorflow_datasets") is None:
        raise Unavailable(f"{version} needs tensorflow-datasets: pip install 'fedeba_jax[tfds]'")
    import tensorflow_datasets as tfds

    arrays: dict[str, np.ndarray] = {}
    try:
        builder = tfds.builder_from_directory(version)
        for split in ("train", "test"):
            examples = list(builder.as_data_source(split=split))
            arrays[f"x_{split}"] = np.stack([example["image"] for example in examples])
            arrays[f"y_{split}"] = np.array([example["label"] for example in examples], np.int32)
    except Exception as error:  # tfds raises many kinds
        reason = " ".join(f"{type(error).__name__}: {error}".split())[:200]
        raise DataError(f"{version}: not a readable array_record data set ({reason})") from None
    return Raw(arrays, {array: [version] for array in ARRAYS})
