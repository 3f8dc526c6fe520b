"""Very many clients of equal size, for measurements: a million of them are made part by part, as files."""

import contextlib
import hashlib
import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import numpy as np

from fedeba_jax.data.sources.registry import Dataset, data_folder
from fedeba_jax.data.synthetic.making import at_least, made, owners

LABELS = 10
CHUNK = 10_000  # clients that are made at once
IN_MEMORY = 2**28  # bytes; a larger set is made as files

Part = dict[str, np.ndarray]


def uniform(
    clients: int = 1000,
    examples: int = 30,
    features: int = 20,
    tests: int = 5,
    seed: int = 0,
    data_dir: str | os.PathLike[str] | None = None,
) -> Dataset:
    """Clients of equal size with 10 labels by one law, around inputs that differ by client.

    Of client k:  x ~ c_k + U(-1, 1)^features,  c_k ~ U(-1, 1)^features,  y = argmax(x W) with one W for all. The first
    clients are the same ones however many there are. A set of more than 256 MiB is written to the data folder, part by
    part, and read as memory maps: it takes little memory, and the next call finds it there.

    Args:
      clients: their number.
      examples: training examples of each.
      features: numbers of an example.
      tests: test examples of each.
      seed: of everything.
      data_dir: the data folder; None is the usual one.
    """
    at_least(1, clients=clients, examples=examples, features=features, tests=tests)
    arguments = {"clients": clients, "examples": examples, "features": features, "tests": tests, "seed": seed}
    if 4 * clients * (examples + tests) * features <= IN_MEMORY:
        parts = list(_parts(**arguments))
        arrays = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
        return made("synthetic_uniform", arguments, LABELS, arrays)
    name = "-".join(f"{key}_{value}" for key, value in arguments.items())
    folder = data_folder("synthetic_uniform", data_dir) / name
    if not folder.exists():
        _write(folder, {"train": clients * examples, "test": clients * tests}, _parts(**arguments))
    arrays = {path.stem: np.load(path, mmap_mode="r") for path in sorted(folder.glob("*.npy"))}
    md5 = json.loads((folder / "md5.json").read_text())
    return made("synthetic_uniform", arguments, LABELS, arrays, md5)


def _parts(*, clients: int, examples: int, features: int, tests: int, seed: int) -> Iterator[Part]:
    """The arrays of the clients, so many at a time; a part follows from the seed and its number."""
    law = np.random.default_rng(seed).normal(size=(features, LABELS)).astype(np.float32)
    for part, first in enumerate(range(0, clients, CHUNK)):
        rng = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(part,)))
        number = examples + tests
        centre = rng.random((CHUNK, 1, features), np.float32)
        x = 2 * (centre + rng.random((CHUNK, number, features), np.float32)) - 2
        x = x[: clients - first]
        y = np.argmax(x.reshape(-1, features) @ law, axis=1).astype(np.int32).reshape(len(x), number)
        arrays = {}
        for split, own in (("train", slice(examples)), ("test", slice(examples, None))):
            arrays[f"x_{split}"] = x[:, own].reshape(-1, features)
            arrays[f"y_{split}"] = y[:, own].reshape(-1)
            arrays[f"client_{split}"] = first + owners(np.full(len(x), y[:, own].shape[1]))
        yield arrays


def _write(folder: Path, length: dict[str, int], parts: Iterator[Part]) -> None:
    """The parts one after the other as npy files, and their md5; whole, or not there.

    Args:
      folder: of the files.
      length: examples of each split.
      parts: arrays by name, NAME_SPLIT.
    """
    beside = folder.with_name(f".{folder.name}.{os.getpid()}.tmp")
    beside.mkdir(parents=True)
    files, digests = {}, {}
    try:
        with contextlib.ExitStack() as opened:
            for part in parts:
                for name, array in part.items():
                    if name not in files:
                        files[name] = opened.enter_context(open(beside / f"{name}.npy", "wb"))
                        _write_header(files[name], array, length[name.split("_")[1]])
                        digests[name] = hashlib.md5(usedforsecurity=False)
                    content: Any = np.ascontiguousarray(array)
                    files[name].write(content)
                    digests[name].update(content)
        (beside / "md5.json").write_text(json.dumps({name: digest.hexdigest() for name, digest in digests.items()}))
        if not folder.exists():
            os.replace(beside, folder)
    finally:
        shutil.rmtree(beside, ignore_errors=True)


def _write_header(file: IO[bytes], like: np.ndarray, length: int) -> None:
    """The head of an npy file of so many rows like these."""
    head = {"descr": like.dtype.str, "fortran_order": False, "shape": (length, *like.shape[1:])}
    np.lib.format.write_array_header_1_0(file, head)
