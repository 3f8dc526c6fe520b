"""Data that stays on the host, where it may be larger than a device: a chunk of rounds gets what its cohorts hold.

Sampling depends on keys alone, so the cohorts of the next rounds are known before they run (`rounds.cohorts`). `part`
gathers the examples of these clients as a small federation of its own, which gives the same rounds as the whole one.
Its arrays have the same shapes whoever the clients are: one compilation serves all chunks.
"""

from typing import Any, NamedTuple

import numpy as np

from fedeba_jax import examples as stored
from fedeba_jax.examples import Examples
from fedeba_jax.types import Federation

NOBODY = np.iinfo(np.int32).max


class Stored(NamedTuple):
    """A `Federation` on the host: NumPy arrays, or memory maps of files."""

    x: Examples  # [N, ...]
    y: np.ndarray
    rows: np.ndarray  # [M, C]
    num_examples: np.ndarray  # [M]


def most_examples(num_examples: np.ndarray, clients: int) -> int:
    """The most examples that so many of the clients can hold together."""
    return int(np.sort(num_examples)[::-1][:clients].sum(dtype=np.int64))


def enrolled(num_examples: np.ndarray, ids: np.ndarray, clients: int) -> tuple[np.ndarray, np.ndarray]:
    """These clients, each once and ascending, and how many examples they have; places left over belong to nobody."""
    asked = np.unique(ids)
    known, count = np.full(clients, NOBODY, np.int32), np.ones(clients, np.int32)
    known[: len(asked)], count[: len(asked)] = asked, num_examples[asked]
    return known, count


def part(whole: Stored, ids: np.ndarray, clients: int, examples: int) -> Federation:
    """The federation of these clients alone, as NumPy arrays.

    Args:
      whole: the federation.
      ids: the clients that will be asked, at most `clients` different ones, in any order.
      clients: places of the part; those that are left over belong to nobody.
      examples: rows of its x and y, at least `most_examples`.
    """
    known, count = enrolled(whole.num_examples, ids, clients)
    asked = known[known < NOBODY]
    start = np.concatenate([[0], np.cumsum(count[: len(asked)])])[: len(asked)]
    slot = np.arange(whole.rows.shape[1])[None]
    rows = np.zeros((clients, whole.rows.shape[1]), np.int32)
    valid = slot < count[: len(asked), None]
    rows[: len(asked)] = start[:, None] + np.where(valid, slot, 0)
    held = np.zeros(examples, np.int64)
    taken = whole.rows[asked][valid]
    held[: len(taken)] = taken
    arrays: Any = (stored.part(whole.x, held), whole.y[held], rows, count, known)
    return Federation(*arrays)
