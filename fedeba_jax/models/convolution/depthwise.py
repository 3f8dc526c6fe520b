"""Convolutions of each channel with a filter of its own: a sum of shifted images, without matrix products."""

import functools
import math

import jax
import jax.numpy as jnp
from jax import lax

from fedeba_jax.models.convolution.images import group_size, map_images, sum_images
from fedeba_jax.models.convolution.windows import Way, Window, materialize, taps, transposed


def _by_entry(kernel: jax.Array) -> list[jax.Array]:
    """[k, k, 1, C] -> k k arrays [1, 1, 1, C]."""
    return [entry[None, None] for entry in kernel.reshape(-1, 1, kernel.shape[-1])]


def _sum(terms: list[jax.Array]) -> jax.Array:
    return functools.reduce(jnp.add, terms)


def _group(x: jax.Array) -> int:
    return group_size(x.shape[0], math.prod(x.shape[1:]) * x.dtype.itemsize)


def _forward(window: Window, x: jax.Array, kernel: jax.Array) -> jax.Array:
    by_entry = _by_entry(kernel)

    def some(x: jax.Array) -> jax.Array:
        return _sum([tap * entry for tap, entry in zip(taps(window, x), by_entry, strict=True)])

    return map_images(some, _group(x), x)


def _input_grad(window: Window, kernel: jax.Array, g: jax.Array) -> jax.Array:
    by_entry = _by_entry(kernel)

    def weigh(shifted: list[jax.Array], entries: list[int]) -> jax.Array:
        return _sum([part * by_entry[entry] for part, entry in zip(shifted, entries, strict=True)])

    return map_images(lambda g: transposed(window, g, weigh), _group(g), g)


def _kernel_grad(window: Window, x: jax.Array, g: jax.Array) -> jax.Array:
    def some(x: jax.Array, g: jax.Array) -> jax.Array:
        """All entries at once, along rows and then over them: a row is read once, not once for each entry."""
        products = tuple(tap * g for tap in taps(window, x))
        zeros = (jnp.zeros((), x.dtype),) * len(products)
        rows = lax.reduce(products, zeros, lambda a, b: tuple(p + q for p, q in zip(a, b, strict=True)), (2,))
        return jnp.stack([row.sum((0, 1)) for row in materialize(rows)])

    return sum_images(some, _group(x), x, g).reshape(window.size, window.size, 1, -1)


DEPTHWISE = Way(_forward, _input_grad, _kernel_grad)
