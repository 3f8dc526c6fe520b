"""Stored examples, how programs take rows of them, and which of their targets count.

The target of an example is a label, or in a sequence one token for each position, -1 where none counts.
"""

import dataclasses
import math

import jax
import jax.numpy as jnp
import numpy as np
import optax


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Packed:
    """uint8 examples, four bytes to a word: on a CPU a gather costs by the element, whatever its width."""

    words: jax.Array  # [N, bytes / 4] uint32
    shape: tuple[int, ...] = dataclasses.field(metadata={"static": True})  # of one example


Examples = jax.Array | Packed
"""[N, ...]: bytes, which models take as floats in [0, 1], or what they take as it is."""


def pack(x: np.ndarray) -> Examples | np.ndarray:
    """Bytes as words, where an example fills whole ones; anything else as it is."""
    width = math.prod(x.shape[1:])
    if x.dtype != np.uint8 or width % 4:
        return x
    return Packed(np.ascontiguousarray(x).reshape(len(x), width).view(np.uint32), x.shape[1:])  # type: ignore[arg-type]


def part(x: Examples, rows: np.ndarray) -> Examples:
    """These rows of examples on the host, as they are stored."""
    return dataclasses.replace(x, words=x.words[rows]) if isinstance(x, Packed) else x[rows]


def take(x: Examples, rows: jax.Array) -> jax.Array:
    """These rows as a model takes them."""
    if isinstance(x, Packed):
        # Without the barrier the compiler would gather byte by byte after all.
        words = jax.lax.optimization_barrier(jnp.asarray(x.words)[rows])
        found = jax.lax.bitcast_convert_type(words, jnp.uint8).reshape(*rows.shape, *x.shape)
    else:
        found = x[rows]
    return found.astype(jnp.result_type(float)) / 255 if found.dtype == jnp.uint8 else found


def counting(y: jax.Array, mask: jax.Array) -> jax.Array:
    """How much each target of y [B, ...] counts: as its example does (mask [B]), and not at all where it is -1."""
    if y.ndim == 1:
        return mask
    return jnp.where(y >= 0, mask.reshape(-1, *[1] * (y.ndim - 1)), 0)


def cross_entropies(logits: jax.Array, y: jax.Array) -> jax.Array:
    """-log softmax(logits)[y] of every target, [B, ...]; some number where none counts."""
    return optax.softmax_cross_entropy_with_integer_labels(logits, y if y.ndim == 1 else jnp.maximum(y, 0))
