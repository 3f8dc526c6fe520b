"""Convolutions as one matrix product: 1x1 kernels, and others by laying out each window as a row."""

import jax
import jax.numpy as jnp

from fedeba_jax.models.convolution.images import group_size, map_images, sum_images
from fedeba_jax.models.convolution.windows import Way, Window, materialize, taps, transposed


def rows_product(x: jax.Array, g: jax.Array) -> jax.Array:
    """x' g of x [n, c] and g [n, o]: a CPU does it faster with the shorter side first."""
    return x.T @ g if x.shape[1] <= g.shape[1] else materialize(g.T @ x).T


def _columns(window: Window, x: jax.Array) -> jax.Array:
    """A row for each window: [B, H, W, C] -> [B rows columns, k k C]."""
    columns = jnp.concatenate(taps(window, x), -1)
    return materialize(columns.reshape(-1, columns.shape[-1]))


def _group(window: Window, x: jax.Array, channels: int) -> int:
    rows, columns = window.shape
    return group_size(x.shape[0], rows * columns * window.size**2 * channels * x.itemsize)


def _forward(window: Window, x: jax.Array, kernel: jax.Array) -> jax.Array:
    matrix = kernel.reshape(-1, kernel.shape[-1])

    def some(x: jax.Array) -> jax.Array:
        return (_columns(window, x) @ matrix).reshape(x.shape[0], *window.shape, -1)

    return map_images(some, _group(window, x, x.shape[-1]), x)


def _input_grad(window: Window, kernel: jax.Array, g: jax.Array) -> jax.Array:
    by_entry = kernel.reshape(-1, *kernel.shape[2:]).swapaxes(1, 2)  # [k k, O, C]

    def weigh(shifted: list[jax.Array], entries: list[int]) -> jax.Array:
        columns = materialize(jnp.concatenate(shifted, -1))
        matrix = jnp.concatenate([by_entry[entry] for entry in entries])
        return (columns.reshape(-1, columns.shape[-1]) @ matrix).reshape(*columns.shape[:3], -1)

    return map_images(lambda g: transposed(window, g, weigh), _group(window, g, g.shape[-1]), g)


def _kernel_grad(window: Window, x: jax.Array, g: jax.Array) -> jax.Array:
    def some(x: jax.Array, g: jax.Array) -> jax.Array:
        return rows_product(_columns(window, x), g.reshape(-1, g.shape[-1]))

    matrix = sum_images(some, _group(window, x, x.shape[-1]), x, g)
    return matrix.reshape(window.size, window.size, x.shape[-1], g.shape[-1])


COLUMNS = Way(_forward, _input_grad, _kernel_grad)


def _points(window: Window, x: jax.Array) -> jax.Array:
    (only,) = taps(window, x)
    return only.reshape(-1, x.shape[-1])


def _pointwise_forward(window: Window, x: jax.Array, kernel: jax.Array) -> jax.Array:
    return (_points(window, x) @ kernel[0, 0]).reshape(x.shape[0], *window.shape, -1)


def _pointwise_input_grad(window: Window, kernel: jax.Array, g: jax.Array) -> jax.Array:
    points = g.reshape(-1, g.shape[-1]) @ kernel[0, 0].T
    points = points.reshape(*g.shape[:3], -1)
    return points if window.stride == 1 else transposed(window, points, lambda shifted, _: shifted[0])


def _pointwise_kernel_grad(window: Window, x: jax.Array, g: jax.Array) -> jax.Array:
    return rows_product(_points(window, x), g.reshape(-1, g.shape[-1]))[None, None]


POINTWISE = Way(_pointwise_forward, _pointwise_input_grad, _pointwise_kernel_grad)
