"""Convolutions of each channel with a filter of its own: a sum of shifted images, without matrix products."""

import jax
import jax.numpy as jnp
from jax import lax

from fedeba_jax.models.convolution.images import group_size, map_images, sum_images
from fedeba_jax.models.convolution.windows import Way, Window, add_taps, materialize, taps


def _by_entry(kernel: jax.Array) -> list[jax.Array]:
    """[k, k, 1, C] -> k k arrays [1, 1, 1, C]."""
    return [entry[None, None] for entry in kernel.reshape(-1, 1, kernel.shape[-1])]


def _weighted(window: Window, x: jax.Array, kernel: jax.Array) -> jax.Array:
    terms = [tap * entry for tap, entry in zip(taps(window, x), _by_entry(kernel), strict=True)]
    return sum(terms[1:], start=terms[0])


def _group(x: jax.Array) -> int:
    return group_size(x.shape[0], x[0].size * x.itemsize)


def _forward(window: Window, x: jax.Array, kernel: jax.Array) -> jax.Array:
    return map_images(lambda x: _weighted(window, x, kernel), _group(x), x)


def _input_grad(window: Window, kernel: jax.Array, g: jax.Array) -> jax.Array:
    if window.stride == 1:  # the transpose is the convolution with the kernel turned round
        back = window._replace(height=g.shape[1], width=g.shape[2], padding=window.size - 1 - window.padding)
        return _forward(back, g, kernel[::-1, ::-1])

    def some(g: jax.Array) -> jax.Array:
        return add_taps(window, [g * entry for entry in _by_entry(kernel)])

    return map_images(some, _group(g), g)


def _kernel_grad(window: Window, x: jax.Array, g: jax.Array) -> jax.Array:
    def some(x: jax.Array, g: jax.Array) -> jax.Array:
        """All entries at once, along rows and then over them: a row is read once, not once for each entry."""
        products = tuple(tap * g for tap in taps(window, x))
        zeros = (jnp.zeros((), x.dtype),) * len(products)
        rows = lax.reduce(products, zeros, lambda a, b: tuple(p + q for p, q in zip(a, b, strict=True)), (2,))
        return jnp.stack([row.sum((0, 1)) for row in materialize(rows)])

    return sum_images(some, _group(x), x, g).reshape(window.size, window.size, 1, -1)


DEPTHWISE = Way(_forward, _input_grad, _kernel_grad)
