"""What clients hold: how much, which labels, and how far from an i.i.d. deal that is.

The measure is the total variation between the labels of a client and those of all clients together,

    d_i = 1/2 sum_l |p_i(l) - p(l)|,

0 where a client holds the mixture of all, near 1 where it holds what hardly anyone else does. Small clients differ from
the mixture by chance alone; `shuffled` deals the same sizes at random, and tells how much.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from fedeba_jax.data.ragged import Ragged

AT_ONCE = 2**24  # counts of clients times labels that are made at once


class Holdings(NamedTuple):
    """Of each client, [M]."""

    examples: np.ndarray
    targets: np.ndarray  # labels; of text the tokens that count
    labels: np.ndarray  # how many different ones
    distance: np.ndarray  # from the mixture of all


def holdings(owned: Ragged, y: np.ndarray, num_classes: int) -> Holdings:
    """What each client holds of the labels y, [N], or of targets [N, L] where they are not -1."""
    pool = np.zeros(num_classes, np.int64)
    for _, counts in _blocks(owned, y, num_classes):
        pool += counts.sum(axis=0)
    mixture = pool / pool.sum()
    targets, labels, distance = (np.empty(len(owned), kind) for kind in (np.int64, np.int64, np.float64))
    for block, counts in _blocks(owned, y, num_classes):
        targets[block] = total = counts.sum(axis=1)
        labels[block] = (counts > 0).sum(axis=1)
        shares = counts / np.maximum(total, 1)[:, None]
        distance[block] = np.abs(shares - mixture[None]).sum(axis=1) / 2
    return Holdings(owned.counts, targets, labels, distance)


def shuffled(owned: Ragged, seed: int) -> Ragged:
    """The same examples dealt at random, to each client as many as before."""
    return Ragged(np.random.default_rng(seed).permutation(owned.flat), owned.counts)


def most_common(owned: Ragged, y: np.ndarray, num_classes: int, most: int) -> np.ndarray:
    """The labels that clients hold most of, at most so many, in increasing order."""
    held = y[owned.flat]
    pool = np.bincount(held[held >= 0], minlength=num_classes)
    return np.sort(np.argsort(-pool, kind="stable")[:most])


def label_counts(owned: Ragged, y: np.ndarray, labels: np.ndarray, num_classes: int) -> np.ndarray:
    """How many targets of each client have these labels, [M, labels]; all others are counted in a last column."""
    column = np.full(num_classes, len(labels))
    column[labels] = np.arange(len(labels))
    numbered = np.where(y < 0, -1, column[y])
    return np.concatenate([counts for _, counts in _blocks(owned, numbered, len(labels) + 1)])


def _blocks(owned: Ragged, y: np.ndarray, num_classes: int) -> Iterator[tuple[slice, np.ndarray]]:
    """Clients, so many at once as memory allows, and their counts [clients, labels]."""
    size = max(1, AT_ONCE // num_classes)
    starts = np.append(owned.starts, len(owned.flat))
    for first in range(0, len(owned), size):
        block = slice(first, min(first + size, len(owned)))
        targets = y[owned.flat[starts[block.start] : starts[block.stop]]]
        owner = np.repeat(np.arange(block.stop - first), owned.counts[block])
        owner = np.broadcast_to(owner.reshape(-1, *[1] * (targets.ndim - 1)), targets.shape)
        counted = targets >= 0
        places = owner[counted] * num_classes + targets[counted]
        counts = np.bincount(places, minlength=(block.stop - first) * num_classes)
        yield block, counts.reshape(-1, num_classes)
