"""Reddit as LEAF prepares it: comments by user, cut into sequences of 10 tokens.

A json file has `users` and, for each of them, `user_data` with lists `x` and `y` of equal length: a comment of x is a
list of sequences, each of 10 tokens with <BOS>, <EOS> and <PAD> in place; a comment of y is such a list of the tokens
that follow, or a record that has it as `target_tokens`. Its `num_samples` is wrong in the published files and not used.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fedeba_jax.data import text
from fedeba_jax.data.sources.raw import DataError, Log, Raw, file_names, quiet

LENGTH, WORDS = 10, 10_000

Sequences = list[list[str]]


class User(NamedTuple):
    """What a user wrote, what follows each token of it, and the file that says so."""

    x: Sequences
    y: Sequences
    file: Path


def read_reddit(folder: Path, log: Log = quiet) -> Raw | None:
    """Files of `train/` and `test/`, or train_data.json and test_data.json, there or in `new_small_data/`.

    Notes: the vocabulary is that of the training comments. LEAF's validation comments are not read.
    """
    files = {split: _files(folder, split) for split in ("train", "test")}
    if not any(files.values()):
        return None
    for split, found in files.items():
        if not found:
            raise DataError(f"{folder}: has no {split}/*.json or {split}_data.json beside the other files")
    users = {split: _users(found) for split, found in files.items()}
    _check_same_users(users["train"], users["test"], files)
    written = (token for user in users["train"].values() for sequence in user.x for token in sequence)
    words = text.most_frequent(written, WORDS)
    arrays: dict[str, np.ndarray] = {}
    for split, data in users.items():
        ordered = [data[name] for name in users["train"]]
        arrays[f"x_{split}"] = _encoded([user.x for user in ordered], words)
        arrays[f"y_{split}"] = text.targets(_encoded([user.y for user in ordered], words))
        numbers = np.arange(len(ordered), dtype=np.int32)
        arrays[f"client_{split}"] = np.repeat(numbers, [len(user.x) for user in ordered])
    named = {array: files[array.rpartition("_")[2]] for array in arrays}
    return Raw(arrays, named, num_classes=len(words), client_names=tuple(users["train"]))


def _encoded(users: list[Sequences], words: text.Vocabulary) -> np.ndarray:
    """Sequences of all users [N, 10]."""
    tokens = [token for sequences in users for sequence in sequences for token in sequence]
    return text.encode(tokens, words).reshape(-1, LENGTH)


def _files(folder: Path, split: str) -> list[Path]:
    many = sorted((folder / split).glob("*.json"))
    single = (folder / f"{split}_data.json", folder / "new_small_data" / f"{split}_data.json")
    return many or [file for file in single if file.exists()][:1]


def _users(files: list[Path]) -> dict[str, User]:
    """The sequences of each user, in the files' order."""
    users: dict[str, User] = {}
    for file in files:
        try:
            content = json.loads(file.read_bytes())
            names, data = list(content["users"]), dict(content["user_data"])
        except (OSError, ValueError, LookupError, TypeError) as error:
            raise DataError(f"{file}: truncated or not LEAF's json ({type(error).__name__}: {error})") from None
        if set(names) != set(data) or len(names) != len(set(names)):
            odd = min(set(map(str, names)) ^ set(data), default="a name that stands twice")
            raise DataError(f"{file}: `users` and `user_data` do not name the same users ({odd!r})")
        for name in names:
            if name in users:
                raise DataError(f"{file}: user {name!r} is also in {users[name].file}")
            users[name] = _user(file, name, data[name])
    return users


def _user(file: Path, name: str, data: Any) -> User:
    """A user's sequences and their targets, of all comments one after another."""
    try:
        x = [sequence for comment in data["x"] for sequence in _checked(comment)]
        y = [sequence for comment in data["y"] for sequence in _checked(comment)]
    except (LookupError, TypeError, ValueError) as error:
        raise DataError(f"{file}: user {name!r} has no lists of {LENGTH} tokens in x and y ({error})") from None
    if len(x) != len(y):
        raise DataError(f"{file}: user {name!r} has {len(x)} sequences in x and {len(y)} in y")
    if not x:
        raise DataError(f"{file}: user {name!r} has no comments")
    return User(x, y, file)


def _checked(comment: Any) -> Iterator[list[str]]:
    """The sequences of a comment."""
    for sequence in comment["target_tokens"] if isinstance(comment, dict) else comment:
        if not isinstance(sequence, list) or len(sequence) != LENGTH or not all(isinstance(t, str) for t in sequence):
            raise ValueError(f"found {str(sequence)[:60]}")
        yield sequence


def _check_same_users(train: dict[str, User], test: dict[str, User], files: dict[str, list[Path]]) -> None:
    if not train:
        raise DataError(f"{file_names(files['train'])}: no users")
    if odd := train.keys() ^ test.keys():
        name = min(odd)
        where = "train" if name in train else "test"
        raise DataError(f"{file_names(files[where])}: user {name!r} is only in the {where} files")
