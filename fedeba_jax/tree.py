"""Algebra of pytrees, plain and stacked (a leading client axis)."""

from typing import Any

import jax
import jax.numpy as jnp

from fedeba_jax.types import Params, Scalar


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


def rows(stacked: Params, index: jax.Array) -> Params:
    """The given rows of every leaf."""
    return jax.tree.map(lambda leaf: leaf[index], stacked)


def set_rows(stacked: Params, index: jax.Array, values: Params) -> Params:
    return jax.tree.map(lambda leaf, value: leaf.at[index].set(value), stacked, values)


def add_rows(stacked: Params, index: jax.Array, values: Params) -> Params:
    return jax.tree.map(lambda leaf, value: leaf.at[index].add(value), stacked, values)


def zeros_like(tree: Any) -> Any:
    return jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), tree)


def size(tree: Any) -> int:
    """How many numbers the tree holds (static: from shapes alone)."""
    return sum(leaf.size for leaf in jax.tree.leaves(tree))


def num_bytes(tree: Any) -> int:
    return sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(tree))
