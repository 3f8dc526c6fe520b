"""Arithmetic on the rows of stacked updates [n, ...], some of which may not be finite.

A row counts as finite if its square is: beyond that, no length can be told.
"""

from collections.abc import Iterator

import jax
import jax.numpy as jnp

from fedeba_jax import tree
from fedeba_jax.types import Params

MOST_SORTED = 32  # rows that are sorted, or mixed, one by one, which compiles into one pass; more are left to XLA


def squares(stacked: Params) -> jax.Array:
    """|x_i|^2 over all leaves, [n]; infinite where it overflows."""
    each = jax.tree.map(lambda leaf: jnp.square(leaf).sum(tuple(range(1, leaf.ndim))), stacked)
    return jax.tree.reduce(jnp.add, each)


def only_rows(stacked: Params, mask: jax.Array) -> Params:
    """The rows with mask true; zeros in place of the others, whatever these hold."""
    return where_rows(mask, stacked, tree.zeros_like(stacked))


def where_rows(mask: jax.Array, a: Params, b: Params) -> Params:
    """The rows of a with mask true, of b elsewhere."""
    return jax.tree.map(lambda x, y: jnp.where(_column(mask, x), x, y), a, b)


def scale_rows(stacked: Params, factors: jax.Array) -> Params:
    """factors_i x_i; a factor of 0 gives 0, also of what is not finite."""

    def one(leaf: jax.Array) -> jax.Array:
        column = _column(factors.astype(leaf.dtype), leaf)
        return jnp.where(column == 0, jnp.zeros_like(leaf), column * leaf)

    return jax.tree.map(one, stacked)


def if_most(counts: jax.Array, vector: Params) -> Params:
    """The vector, or the weights that make it; NaN if half or more of the n do not count, [n] of bool.

    Nobody can tell then what is right.
    """
    most = 2 * counts.sum() > counts.shape[0]
    return jax.tree.map(lambda leaf: jnp.where(most, leaf, jnp.nan), vector)


def if_any(counts: jax.Array, vector: Params) -> Params:
    """The vector, or the weights that make it; NaN if nobody counts, [n] of bool."""
    return jax.tree.map(lambda leaf: jnp.where(counts.any(), leaf, jnp.nan), vector)


def clip_factors(lengths: jax.Array, limit: jax.Array) -> jax.Array:
    """min(1, limit / length) of each; 0 of those that are not finite."""
    factors = jnp.where(lengths > limit, limit / jnp.where(lengths > 0, lengths, 1), 1.0)
    return jnp.where(jnp.isfinite(lengths), factors, 0.0)


def lengths(products: jax.Array) -> jax.Array:
    """|x_i|, [n], of <x_i, x_j>, [n, n]; NaN or infinite where the square is."""
    return jnp.sqrt(jnp.maximum(jnp.diagonal(products), 0.0))


def finite_products(products: jax.Array) -> jax.Array:
    """Of which rows <x_i, x_j> are, [n]: those that are finite."""
    return jnp.isfinite(jnp.diagonal(products))


def distances(products: jax.Array) -> jax.Array:
    """|x_i - x_j|^2, [n, n], of <x_i, x_j>.

    Infinite to and from updates that are not finite, and 0 on the diagonal.
    """
    own, valid = jnp.diagonal(products), finite_products(products)
    squared = jnp.maximum(own[:, None] + own[None] - 2 * products, 0.0)
    squared = jnp.where(valid[:, None] & valid[None], squared, jnp.inf)
    return jnp.where(jnp.eye(len(own), dtype=bool), 0.0, squared)


def ranks(values: jax.Array) -> jax.Array:
    """The place of each value in the order along the last axis."""
    return jnp.argsort(jnp.argsort(values, axis=-1), axis=-1)


def mixture(stacked: Params, weights: jax.Array) -> Params:
    """sum_i weights_i x_i, in which a weight of 0 takes up nothing, not even an infinity."""

    def one(leaf: jax.Array) -> jax.Array:
        if len(leaf) > MOST_SORTED:
            return tree.weighted_sum(scale_rows(leaf, weights), jnp.ones_like(weights))
        own = weights.astype(leaf.dtype)
        first, *others = (jnp.where(own[i] == 0, 0.0, own[i] * row) for i, row in enumerate(leaf))
        return sum(others, first)

    return jax.tree.map(one, stacked)


def mixtures(stacked: Params, weights: jax.Array, valid: jax.Array) -> Params:
    """The same for rows of weights [n', n] -> [n', ...]; NaN where something is taken up that is not valid, [n]."""
    spoiled = jnp.where((weights > 0) & ~valid[None], jnp.nan, 0.0).sum(1)
    mixed = jax.tree.map(
        lambda leaf: jnp.tensordot(weights.astype(leaf.dtype), leaf, axes=1, precision=jax.lax.Precision.HIGHEST),
        only_rows(stacked, valid),
    )
    return jax.tree.map(lambda leaf: leaf + _column(spoiled.astype(leaf.dtype), leaf), mixed)


def sorted_rows(leaf: jax.Array) -> list[jax.Array]:
    """The rows of an array with the values of each coordinate in order; NaN counts as infinity."""
    leaf = jnp.where(jnp.isnan(leaf), jnp.inf, leaf)
    if leaf.shape[0] > MOST_SORTED:
        return list(jnp.sort(leaf, axis=0))
    rows = list(leaf)
    for i, j in comparators(len(rows)):
        rows[i], rows[j] = jnp.minimum(rows[i], rows[j]), jnp.maximum(rows[i], rows[j])
    return rows


def comparators(n: int) -> Iterator[tuple[int, int]]:
    """Batcher's network that sorts n values by exchanges of pairs (Knuth, volume 3, algorithm 5.2.2M)."""
    p = top = 2 ** max((n - 1).bit_length() - 1, 0)
    while p:
        q, r, d = top, 0, p
        while True:
            yield from ((i, i + d) for i in range(n - d) if i & p == r)
            if q == p:
                break
            q, r, d = q // 2, p, q - p
        p //= 2


def median(rows: list[jax.Array]) -> jax.Array:
    """Of rows in order."""
    lower, upper = rows[(len(rows) - 1) // 2], rows[len(rows) // 2]
    return lower + (upper - lower) / 2 if len(rows) % 2 == 0 else lower


def mean(rows: list[jax.Array]) -> jax.Array:
    """Of some rows."""
    return sum(rows[1:], rows[0]) / len(rows)


def _column(values: jax.Array, like: jax.Array) -> jax.Array:
    return values.reshape(-1, *[1] * (like.ndim - 1))
