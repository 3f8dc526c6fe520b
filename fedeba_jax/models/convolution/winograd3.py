"""3x3 convolutions with stride 1 by Winograd's minimal filtering, for layers with many channels.

F(4x4, 3x3) of Lavin & Gray (2016, arXiv:1509.09308): y = A' [(G kernel G') . (B' tile B)] A of 6x6 tiles at stride 4,
which multiplies 36 channel vectors for 16 results where the plain sum multiplies 144. In float32 its error is near 1e-5
of the largest value.
"""

import math

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from fedeba_jax.models.convolution.images import CACHE, group_size, map_images, sum_images
from fedeba_jax.models.convolution.windows import Way, Window, materialize
from fedeba_jax.models.convolution.winograd import B_T, combine

# For four outputs of a three-tap filter, interpolated at 0, 1, -1, 2, -2 and infinity as `winograd` does.
A_T = np.array([[1, 1, 1, 1, 1, 0], [0, 1, -1, 2, -2, 0], [0, 1, 1, 4, 4, 0], [0, 1, -1, 8, -8, 1]])
G = np.array([[6, 0, 0], [-4, -4, -4], [-4, 4, -4], [1, 2, 4], [1, -2, 4], [0, 0, 24]]) / 24
STEP, TILE = A_T.shape
POINTS = TILE * TILE


def _tiles(length: int) -> int:
    return math.ceil(length / STEP)


def _every(x: jax.Array, first: int, axis: int, count: int) -> jax.Array:
    """Element `first` of every tile along an axis."""
    return lax.slice_in_dim(x, first, first + STEP * (count - 1) + 1, stride=STEP, axis=axis)


def _transform(matrix: np.ndarray, x: jax.Array, t: int, s: int) -> jax.Array:
    """matrix tile matrix' of t x s tiles: [B, H, W, C] -> [36, B t s, C], columns before rows in the 36."""
    size = matrix.shape[1]
    rows = materialize(jnp.stack([combine(m, [_every(x, i, 1, t) for i in range(size)]) for m in matrix]))
    tiles = jnp.stack([combine(m, [_every(rows, j, 3, s) for j in range(size)]) for m in matrix])
    return materialize(tiles.reshape(POINTS, -1, x.shape[-1]))


def _input(window: Window, x: jax.Array) -> jax.Array:
    p, (t, s) = window.padding, map(_tiles, window.shape)
    after = (STEP * t + TILE - STEP - p - x.shape[1], STEP * s + TILE - STEP - p - x.shape[2])
    padded = lax.pad(x, jnp.zeros((), x.dtype), [(0, 0, 0), (p, after[0], 0), (p, after[1], 0), (0, 0, 0)])
    return _transform(B_T, materialize(padded), t, s)


def _output_grad(g: jax.Array) -> jax.Array:
    t, s = map(_tiles, g.shape[1:3])
    padded = jnp.pad(g, ((0, 0), (0, STEP * t - g.shape[1]), (0, STEP * s - g.shape[2]), (0, 0)))
    return _transform(A_T.T, padded, t, s)


def _kernel(kernel: jax.Array) -> jax.Array:
    """G kernel G': [3, 3, C, O] -> [36, C, O]."""
    both = np.einsum("vj,ui->vuij", G, G).reshape(POINTS, -1)
    product = jnp.asarray(both, kernel.dtype) @ kernel.reshape(both.shape[1], -1)
    return product.reshape(POINTS, *kernel.shape[2:])


def _group(window: Window, x: jax.Array, channels: int, features: int) -> int:
    """Images at once: their tiles fill the cache, or as much memory as the kernel, which each group reads."""
    t, s = map(_tiles, window.shape)
    tiles, kernel = (POINTS * n * x.itemsize for n in (t * s * max(channels, features), channels * features))
    return group_size(x.shape[0], tiles, max(CACHE, kernel))


def _forward(window: Window, x: jax.Array, kernel: jax.Array) -> jax.Array:
    h, w = window.shape
    t, s = map(_tiles, window.shape)
    points = materialize(_kernel(kernel))

    def some(x: jax.Array) -> jax.Array:
        m = materialize(jnp.einsum("vnc,vco->vno", _input(window, x), points))
        m = m.reshape(TILE, TILE, x.shape[0], t, s, -1)
        columns = materialize(jnp.stack([combine(a, m) for a in A_T], 4))  # [6, B, t, s, 4, O]
        y = jnp.stack([combine(a, columns) for a in A_T], 2)  # [B, t, 4, s, 4, O]
        return materialize(y.reshape(x.shape[0], STEP * t, STEP * s, -1)[:, :h, :w])

    return map_images(some, _group(window, x, kernel.shape[2], kernel.shape[3]), x)


def _input_grad(window: Window, kernel: jax.Array, g: jax.Array) -> jax.Array:
    """The convolution of g with the kernel turned round."""
    back = Window(window.size, 1, window.size - 1 - window.padding, *g.shape[1:3])
    return _forward(back, g, kernel[::-1, ::-1].swapaxes(2, 3))


def _kernel_grad(window: Window, x: jax.Array, g: jax.Array) -> jax.Array:
    def some(x: jax.Array, g: jax.Array) -> jax.Array:
        return jnp.einsum("vnc,vno->vco", _input(window, x), _output_grad(g))

    size = _group(window, x, x.shape[-1], g.shape[-1])
    like = jax.ShapeDtypeStruct((window.size, window.size, x.shape[-1], g.shape[-1]), x.dtype)
    return jax.linear_transpose(_kernel, like)(sum_images(some, size, x, g))[0]


WINOGRAD3 = Way(_forward, _input_grad, _kernel_grad)
