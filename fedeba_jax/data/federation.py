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
    """A federation of flat examples; `owned[i]` lists client i's rows of x and y.

    Args:
      x: examples, [N, ...].
      y: targets, [N] labels from 0 on, or [N, ...] of sequences, where -1 does not count.
      owned: positions in x and y, a list for each client; examples may be shared, or nobody's.
    """
    x, y = (a if hasattr(a, "dtype") else np.asarray(a) for a in (x, y))
    _check_examples(x, y)
    table, count = index_table(_positions(owned, len(y)))
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
    if not isinstance(federation, Federation):
        raise ValueError(
            f"held_out takes a Federation, not a {type(federation).__name__}; make it by federate(x, y, owned)"
        )
    rows, count = np.asarray(federation.rows), np.asarray(federation.num_examples)
    capacity, length = rows.shape[1], len(federation.y)
    if not (wrong := (count >= 1) & (count <= capacity)).all():
        client = int(wrong.argmin())
        raise ValueError(f"num_examples[{client}]={count[client]} is not valid; rows has room for 1 to {capacity}")
    if rows.min() < 0 or rows.max() >= length:
        wrong_row = rows[(rows < 0) | (rows >= length)][0]
        raise ValueError(f"rows lists example {wrong_row}, but there are {length}; count from 0 to {length - 1}")
    example, owner = flat_list(rows, count)
    return HeldOut(federation, jnp.asarray(example), jnp.asarray(owner))


def _check_examples(x: np.ndarray, y: np.ndarray) -> None:
    """An error for examples and targets that do not belong together, or that nothing can be learnt from."""
    for name, values in (("x", x), ("y", y)):
        if not values.ndim or values.dtype.kind in "OUSMm":
            raise ValueError(
                f"{name} is {values.dtype}{list(values.shape)}; give an array of numbers, one row an example"
            )
    if len(x) != len(y):
        raise ValueError(f"x has {len(x)} examples, but y has {len(y)} targets; give one target for each example")
    if isinstance(x, jax.core.Tracer) or isinstance(y, jax.core.Tracer):
        return
    for name, values in (("x", x), ("y", y)):
        if jnp.issubdtype(values.dtype, jnp.floating) and not (finite := np.isfinite(values)).all():
            row = int(np.argmin(finite.reshape(len(values), -1).all(1)))
            raise ValueError(f"{name}[{row}] holds NaN or infinity; fill the gap, or leave the example out")
    if y.ndim == 1 and np.issubdtype(y.dtype, np.signedinteger) and y.size and y.min() < 0:
        row = int(np.argmax(np.asarray(y) < 0))
        raise ValueError(f"y[{row}]={y[row]} is negative; labels count from 0")


def _positions(owned: Sequence[np.ndarray], length: int) -> Ragged:
    """Who owns what; an error for anything but positions of the examples."""
    if not isinstance(owned, Ragged):
        arrays = [np.asarray(own) for own in owned]
        for client, own in enumerate(arrays):
            if own.dtype == bool:
                raise ValueError(f"owned[{client}] is a boolean mask; give positions: np.flatnonzero(mask)")
            if own.ndim != 1 or (own.size and own.dtype.kind not in "iu"):
                raise ValueError(
                    f"owned[{client}] is {own.dtype}{list(own.shape)}; give a list of positions, as [0, 3, 4]"
                )
        owned = Ragged.of(arrays)
    if (outside := (owned.flat < 0) | (owned.flat >= length)).any():
        first = int(outside.argmax())
        client, example = owned.owner[first], owned.flat[first]
        raise ValueError(
            f"owned[{client}] lists example {example}, but there are {length}; count from 0 to {length - 1}"
        )
    return owned
