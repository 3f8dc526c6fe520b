"""Your own data: arrays, an npz file, or a folder with one npz file for each client.

- x: [N, D] features (floats, or integers that are taken as floats), [N, H, W] or [N, H, W, C] images (uint8 is scaled
  to [0, 1]; floats are taken as they are), or [N, L] tokens 0, 1, ...
- y: [N] labels 0, 1, ...; for tokens [N, L] targets, -1 where none counts
- client: [N] whose each example is, as numbers or strings; without it the examples are dealt by a partition
- x_test, y_test, client_test: the same of test examples; without them some of each client's are held out

In a folder each file is a client, its name without .npz is the client's name, and `client` stands in none of them.

Everything is checked here, once: what `from_arrays` and `load` return is a data set like any other. `federation_from`
goes from arrays to what `simulate` takes in one call.
"""

import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn

import jax
import jax.numpy as jnp
import numpy as np

from fedeba_jax.data.dealing import Dealing, assemble, stack
from fedeba_jax.data.digests import md5_of
from fedeba_jax.data.sources.raw import DataError
from fedeba_jax.data.sources.registry import Dataset
from fedeba_jax.types import Federation, HeldOut

NAME = "custom"
KEYS = ("x", "y", "client", "x_test", "y_test", "client_test")
MOST_CLASSES = 1000  # where there are fewer examples than that, a larger label is a mistake

AS_THEY_ARE = Dealing(clients=0, partition="auto", test_split="auto")
"""Each client has the examples that it came with."""


def load(path: str) -> Dataset:
    """The data set in an npz file, or in a folder of npz files, one for each client."""
    place = Path(path)
    if place.is_dir():
        return _of_folder(place)
    if not place.exists():
        _refuse(path, "no such file or folder", "give the path of an npz file, or of a folder with one for each client")
    return _of_arrays(path, _read(place, KEYS))


def from_arrays(
    x: Any, y: Any, client: Any = None, *, x_test: Any = None, y_test: Any = None, client_test: Any = None
) -> Dataset:
    """The data set of these arrays; the module says what they hold."""
    given = dict(zip(KEYS, (x, y, client, x_test, y_test, client_test), strict=True))
    return _of_arrays("arrays", {key: np.asarray(value) for key, value in given.items() if value is not None})


def federation_from(
    x: Any,
    y: Any,
    client: Any = None,
    *,
    x_test: Any = None,
    y_test: Any = None,
    client_test: Any = None,
    dealing: Dealing = AS_THEY_ARE,
    seed: int = 0,
) -> tuple[Federation, HeldOut]:
    """Your own arrays as what `simulate` takes: the training data, and the test data of each client.

    Args:
      x: examples [N, ...]; the module says which arrays are taken.
      y: their labels [N].
      client: whose each example is [N], numbers or strings.
      x_test: test examples; without them 20 % of each client's examples are held out.
      y_test: their labels.
      client_test: whose they are; needed if `client` is given.
      dealing: how examples become clients. The default leaves them with `client`; without that, give for example
        `Dealing(clients=10, partition="iid", test_split="auto")`.
      seed: of dealing and holding out.
    """
    if dealing.validation:
        raise ValueError(f"dealing.validation={dealing.validation}: there is no place for it; give 0")
    dataset = from_arrays(x, y, client, x_test=x_test, y_test=y_test, client_test=client_test)
    tables = jax.tree.map(lambda leaf: leaf[0], stack([dealing.split(dataset, seed)]))
    train, held = jax.tree.map(jnp.asarray, assemble(dealing.pools(dataset), tables))
    return train, held["test"]


def _of_folder(folder: Path) -> Dataset:
    files = sorted(folder.glob("*.npz"))
    if not files:
        _refuse(folder, "no npz file in this folder", "give a folder with one npz file for each client")
    keys = tuple(key for key in KEYS if not key.startswith("client"))
    parts = [_read(file, keys) for file in files]
    for file, part in zip(files, parts, strict=True):
        if part.keys() != parts[0].keys():
            _refuse(file, f"holds {_listed(part)}, and {files[0].name} {_listed(parts[0])}", "give all the same arrays")
        for key, array in part.items():
            _check_plain(file, key, array)
            first = parts[0][key]
            if array.ndim == 0 or len(array) == 0:
                _refuse(file, f"{key} has no example", "add some, or remove the file")
            if array.shape[1:] != first.shape[1:] or array.dtype.kind != first.dtype.kind:
                _refuse(file, f"{key} is {_told(array)}, and {_told(first)} in {files[0].name}", "give all the same")
        for x, y in (("x", "y"), ("x_test", "y_test")):
            _check_lengths(file, part, x, y)
    arrays = {key: np.concatenate([part[key] for part in parts]) for key in parts[0]}
    names = np.array([file.stem for file in files])
    for key, of in (("client", "x"), ("client_test", "x_test")):
        if of in arrays:
            arrays[key] = np.repeat(names, [len(part[of]) for part in parts])
    return _of_arrays(str(folder), arrays)


def _read(file: Path, keys: tuple[str, ...]) -> dict[str, np.ndarray]:
    """The arrays of an npz file; Python objects, which would run code when read, are refused."""
    key, again = "its content", "save it by np.savez(file, x=x, y=y)"
    if not zipfile.is_zipfile(file):
        _refuse(file, "is no npz file, or not a whole one", again)
    arrays = {}
    try:
        with open(file, "rb") as stream, np.load(stream, allow_pickle=False) as content:
            if unknown := [name for name in content.files if name not in keys]:
                _refuse(file, f"has an array {unknown[0]!r}", f"name the arrays {', '.join(keys)}")
            for key in content.files:
                arrays[key] = content[key]
    except DataError:
        raise
    except ValueError as error:
        if "pickle" in str(error):
            _refuse(file, f"{key} is pickled Python objects", "save plain arrays of numbers or strings")
        _refuse(file, f"{key} cannot be read ({error})", again)
    except (OSError, EOFError, zipfile.BadZipFile, zlib.error, RuntimeError, MemoryError) as error:
        _refuse(file, f"{key} cannot be read ({error or type(error).__name__})", again)
    return arrays


def _of_arrays(place: str, given: Mapping[str, np.ndarray]) -> Dataset:
    """The checked data set of arrays by name."""
    for key in ("x", "y"):
        if key not in given:
            _refuse(place, f"there is no array {key!r}", f"save x and y; there is {_listed(given) or 'nothing'}")
    if ("x_test" in given) != ("y_test" in given):
        _refuse(place, "only one of x_test and y_test is there", "give both, or none")
    tested = "x_test" in given
    for key, array in given.items():
        _check_plain(place, key, array)
    is_text = given["y"].ndim == 2 and given["y"].shape == given["x"].shape
    arrays = {
        "x_train": _examples(place, "x", given["x"], is_text),
        "y_train": _targets(place, "y", given["y"], is_text),
    }
    _check_lengths(place, given, "x", "y")
    for key, train in (("x_test", "x_train"), ("y_test", "y_train")):
        arrays[key] = arrays[train][:0]
        if tested:
            read = _examples if key == "x_test" else _targets
            arrays[key] = read(place, key, given[key], is_text)
            if arrays[key].shape[1:] != arrays[train].shape[1:] or arrays[key].dtype != arrays[train].dtype:
                _refuse(place, f"{key} is {_told(given[key])}, and {key[0]} {_told(given[key[0]])}", "give both alike")
    _check_lengths(place, given, "x_test", "y_test")
    num_classes = _num_classes(place, arrays, is_text)
    names, clients = _clients(place, given)
    return Dataset(
        NAME,
        **arrays,
        num_classes=num_classes,
        source=place,
        md5=md5_of(arrays | clients),
        client_names=names,
        **clients,
    )


def _examples(place: str, key: str, x: np.ndarray, is_text: bool) -> np.ndarray:
    """Inputs as models take them."""
    if x.dtype.kind not in "buif":
        _refuse(place, f"{key} is {_told(x)}", "give numbers")
    if not 2 <= x.ndim <= 4:
        _refuse(place, f"{key} is {_told(x)}", "give features [N, D], images [N, H, W, C] or tokens [N, L]")
    if 0 in x.shape:
        _refuse(place, f"{key} is {_told(x)}", "give at least one example, of at least one number")
    if is_text:
        if x.dtype.kind not in "ui":
            _refuse(place, f"{key} is {_told(x)}, and y has a target for each of its tokens", "give tokens as integers")
        _check_at_least(place, key, x, 0)
        return x.astype(np.int32)
    if x.dtype != np.uint8:
        with np.errstate(over="ignore"):
            x = x.astype(np.float32)
        finite = np.isfinite(x).reshape(len(x), -1).all(axis=1)
        if not finite.all():
            _refuse(place, f"{key}[{finite.argmin()}] holds NaN or a number that is not finite", "replace or remove it")
    return x[..., None] if x.ndim == 3 else x


def _targets(place: str, key: str, y: np.ndarray, is_text: bool) -> np.ndarray:
    """Labels, or targets of sequences."""
    if y.dtype.kind not in "bui":
        _refuse(place, f"{key} is {_told(y)}", "give integer labels 0, 1, ..., as y.astype(int)")
    if not is_text and y.ndim != 1:
        _refuse(place, f"{key} is {_told(y)}", "give one label for each example [N], or a target for each token [N, L]")
    _check_at_least(place, key, y, -1 if is_text else 0)
    return y.astype(np.int32)


def _num_classes(place: str, arrays: Mapping[str, np.ndarray], is_text: bool) -> int:
    """One more than the largest label, or token."""
    counted = list(arrays.values()) if is_text else [arrays["y_train"], arrays["y_test"]]
    number = max(int(array.max()) for array in counted if array.size) + 1
    if number > max(MOST_CLASSES, arrays["y_train"].size):
        _refuse(place, f"y has label {number - 1} among {arrays['y_train'].size}", "number the labels 0, 1, 2, ...")
    if number < 2:
        _refuse(place, "y has the label 0 alone", "give at least two labels")
    return number


def _clients(place: str, given: Mapping[str, np.ndarray]) -> tuple[tuple[str, ...], dict[str, np.ndarray]]:
    """Names of the clients in order, and the number of each example's client."""
    if "client" not in given:
        if "client_test" in given:
            _refuse(place, "client_test is there, and client is not", "give both, or none")
        return (), {}
    if "x_test" in given and "client_test" not in given:
        remedy = "give it, or leave x_test out: 20 % of each client's examples are then held out"
        _refuse(place, "client and x_test are there, and client_test is not", remedy)
    if "client_test" in given and "x_test" not in given:
        _refuse(place, "client_test is there, and x_test is not", "give both, or none")
    for key, of in (("client", "x"), ("client_test", "x_test")):
        if key not in given:
            continue
        if given[key].dtype.kind not in "uiUS" or given[key].ndim != 1:
            _refuse(place, f"{key} is {_told(given[key])}", "give one integer or string for each example [N]")
        _check_lengths(place, given, of, key)
    known, numbers = np.unique(given["client"], return_inverse=True)
    names = tuple(name.decode() if isinstance(name, bytes) else str(name) for name in known.tolist())
    clients = {"client_train": numbers.astype(np.int32)}
    if "client_test" in given:
        clients["client_test"] = _numbers(place, given["client_test"], known, names)
    return names, clients


def _numbers(place: str, ids: np.ndarray, known: np.ndarray, names: tuple[str, ...]) -> np.ndarray:
    """The numbers of the clients of test examples; everybody has some, and nobody else has."""
    if (ids.dtype.kind in "ui") != (known.dtype.kind in "ui"):
        _refuse(place, f"client is {known.dtype}, and client_test {ids.dtype}", "give both as integers or as strings")
    if not (strange := np.isin(ids, known)).all():
        told = f"client_test[{strange.argmin()}] is {str(ids[strange.argmin()])!r}, who has no training example"
        _refuse(place, told, "spell clients alike in client and client_test, or remove these examples")
    numbers = np.searchsorted(known, ids).astype(np.int32)
    if not (counts := np.bincount(numbers, minlength=len(known))).all():
        remedy = "add some, or leave x_test out: 20 % of each client's examples are then held out"
        _refuse(place, f"client {names[counts.argmin()]!r} has no test example", remedy)
    return numbers


def _check_plain(place: Any, key: str, array: np.ndarray) -> None:
    if array.dtype.kind == "O":
        _refuse(place, f"{key} is an array of Python objects", "give a plain array of numbers or strings")


def _check_lengths(place: Any, given: Mapping[str, np.ndarray], first: str, second: str) -> None:
    if first in given and len(given[first]) != len(given[second]):
        told = f"{first} has {len(given[first])} examples and {second} {len(given[second])} entries"
        _refuse(place, told, "give one for each")


def _check_at_least(place: str, key: str, values: np.ndarray, least: int) -> None:
    wrong = (values < least).reshape(len(values), -1).any(axis=1)
    if wrong.any():
        what = "targets from -1 (does not count)" if least else "numbers"
        _refuse(place, f"{key}[{wrong.argmax()}] is less than {least}", f"give {what} 0, 1, ...")
    if values.size and int(values.max()) > np.iinfo(np.int32).max:
        _refuse(place, f"{key} has {values.max()}", "number the labels 0, 1, 2, ...")


def _told(array: np.ndarray) -> str:
    return f"{array.dtype}{list(array.shape)}"


def _listed(arrays: Mapping[str, np.ndarray]) -> str:
    return ", ".join(arrays)


def _refuse(place: Any, problem: str, remedy: str) -> NoReturn:
    raise DataError(f"{place}: {problem}; {remedy}")
