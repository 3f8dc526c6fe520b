"""Flat arrays and lists of who owns what, as the arrays that programs take."""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np

from fedeba_jax.data.ragged import Ragged
from fedeba_jax.examples import pack
from fedeba_jax.types import Federation, HeldOut


def index_table(owned: Sequence[np.ndarray], capacity: int | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Ragged lists of examples as a table [M, C] (rows padded with their first entry) and counts [M]."""
    owned = Ragged.of(owned)
    count = owned.counts.astype(np.int32)
    if not count.size or count.min() < 1:
        raise ValueError(f"client {count.argmin() if count.size else 0} holds no example; use fewer clients")
    capacity = int(count.max()) if capacity is None else capacity
    if capacity < count.max():
        raise ValueError(f"capacity={capacity} is less than the {count.max()} examples of client {count.argmax()}")
    column = np.arange(capacity)[None]
    return owned.flat.astype(np.int32)[owned.starts[:, None] + column * (column < count[:, None])], count


def federate(x: np.ndarray, y: np.ndarray, owned: Sequence[np.ndarray]) -> Federation:
    """A federation of flat examples; `owned[i]` lists client i's rows of x and y."""
    table, count = index_table(owned)
    return Federation(jax.tree.map(jnp.asarray, pack(x)), jnp.asarray(y), jnp.asarray(table), jnp.asarray(count))


def flat_list(table: np.ndarray, count: np.ndarray, length: int | None = None) -> tuple[np.ndarray, np.ndarray]:
    """A table's valid entries as one list, and whose they are; padded to `length` with owner M."""
    num_clients, capacity = table.shape
    valid = np.arange(capacity) < count[:, None]
    padding = (length or valid.sum()) - valid.sum()
    example = np.concatenate([table[valid], np.zeros(padding, np.int32)])
    owner = np.concatenate([np.nonzero(valid)[0], np.full(padding, num_clients)]).astype(np.int32)
    return example, owner


def held_out(federation: Federation) -> HeldOut:
    """A federation of held-out examples with its flat list."""
    example, owner = flat_list(np.asarray(federation.rows), np.asarray(federation.num_examples))
    return HeldOut(federation, jnp.asarray(example), jnp.asarray(owner))
