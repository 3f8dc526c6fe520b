"""Algebra of pytrees, plain and stacked (a leading client axis)."""

import functools
from typing import Any

import jax
import jax.numpy as jnp

from fedeba_jax.types import Params, Scalar

_dot = functools.partial(jnp.tensordot, precision=jax.lax.Precision.HIGHEST)


def add(a: Params, b: Params) -> Params:
    return jax.tree.map(jnp.add, a, b)


def subtract(a: Params, b: Params) -> Params:
    return jax.tree.map(jnp.subtract, a, b)


def scale(factor: Scalar, tree: Params) -> Params:
    return jax.tree.map(lambda leaf: jnp.asarray(factor, leaf.dtype) * leaf, tree)


def mix(weight: Scalar, a: Params, b: Params) -> Params:
    """(1 - weight) a + weight b, in the leaves' own precision."""

    def one(x: jax.Array, y: jax.Array) -> jax.Array:
        w = jnp.asarray(weight, x.dtype)
        return (1 - w) * x + w * y

    return jax.tree.map(one, a, b)


def weighted_sum(stacked: Params, weights: jax.Array) -> Params:
    """sum_i weights_i stacked_i over the leading axis."""
    return jax.tree.map(lambda leaf: jnp.tensordot(weights.astype(leaf.dtype), leaf, axes=1), stacked)


def products(stacked: Params, tree: Params) -> jax.Array:
    """<stacked_i, tree> for every i of the leading axis."""
    return jax.tree.reduce(jnp.add, jax.tree.map(lambda s, leaf: _dot(s, leaf, axes=leaf.ndim), stacked, tree))


def gram(stacked: Params, other: Params | None = None) -> jax.Array:
    """<stacked_i, other_j>, [n, n'], over all leaves; `other` is `stacked` itself by default."""

    def one(a: jax.Array, b: jax.Array) -> jax.Array:
        axes = tuple(range(1, a.ndim))
        return _dot(a, b, axes=(axes, axes))

    return jax.tree.reduce(jnp.add, jax.tree.map(one, stacked, stacked if other is None else other))


def dot(a: Params, b: Params) -> jax.Array:
    """<a, b> over all leaves."""
    return jax.tree.reduce(jnp.add, jax.tree.map(lambda x, y: _dot(x, y, axes=x.ndim), a, b))


def rows(stacked: Params, index: jax.Array | int | tuple[jax.Array | int, ...]) -> Params:
    """The given rows of every leaf."""
    return jax.tree.map(lambda leaf: leaf[index], stacked)


def set_rows(stacked: Params, index: jax.Array, values: Params) -> Params:
    """The stacked tree with the given rows replaced, in its own types."""
    return jax.tree.map(lambda leaf, value: leaf.at[index].set(jnp.asarray(value, leaf.dtype)), stacked, values)


def repeat(tree: Params, count: int) -> Params:
    """The tree `count` times, stacked."""
    return jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (count, *leaf.shape)), tree)


def cast(tree: Any, dtype: Any) -> Any:
    """The tree with its floating leaves in the given type."""
    return jax.tree.map(lambda leaf: leaf.astype(dtype) if jnp.issubdtype(leaf.dtype, jnp.floating) else leaf, tree)


def zeros_like(tree: Any) -> Any:
    return jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), tree)


def size(tree: Any) -> int:
    """How many numbers the tree holds (static: from shapes alone)."""
    return sum(leaf.size for leaf in jax.tree.leaves(tree))


def num_bytes(tree: Any) -> int:
    return sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(tree))
