"""The geometry of convolutions with a square kernel, and what a way to compute them consists of."""

import functools
from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax


class Window(NamedTuple):
    """Where a kernel looks: all of it is static."""

    size: int  # of the kernel, along both axes
    stride: int
    padding: int  # zeros on each side
    height: int  # of the images
    width: int

    @property
    def shape(self) -> tuple[int, int]:
        """Height and width of the result."""
        rows, columns = ((n + 2 * self.padding - self.size) // self.stride + 1 for n in (self.height, self.width))
        return rows, columns


class Way(NamedTuple):
    """One way to compute a convolution and its gradients; all ways agree up to rounding."""

    forward: Callable[..., jax.Array]  # (window, x, kernel) -> y
    input_grad: Callable[..., jax.Array]  # (window, kernel, g) -> like x
    kernel_grad: Callable[..., jax.Array]  # (window, x, g) -> like kernel


# Keeps XLA from merging a stage into the loops that read it, which would compute it once for every reader.
materialize = lax.optimization_barrier


def pad(window: Window, x: jax.Array) -> jax.Array:
    """x with its border of zeros."""
    p = window.padding
    return materialize(jnp.pad(x, ((0, 0), (p, p), (p, p), (0, 0)))) if p else x


def taps(window: Window, x: jax.Array) -> list[jax.Array]:
    """For each entry of the kernel, row by row, what it is multiplied with: arrays [B, *window.shape, C]."""
    padded, s = pad(window, x), window.stride
    (rows, columns), k = window.shape, window.size
    return [
        padded[:, i : i + s * (rows - 1) + 1 : s, j : j + s * (columns - 1) + 1 : s]
        for i in range(k) for j in range(k)
    ]  # fmt: skip


def add_taps(window: Window, parts: Sequence[jax.Array]) -> jax.Array:
    """The transpose of `taps`: arrays [B, *window.shape, C] added up where they were taken from."""
    k = window.size
    rows = [_spread(window, 2, window.width, parts[i * k : (i + 1) * k]) for i in range(k)]
    return _spread(window, 1, window.height, rows)


def _spread(window: Window, axis: int, length: int, parts: Sequence[jax.Array]) -> jax.Array:
    """Along one axis: part i goes to positions i, i + stride, ... of the padded image, which is then cut to `length`.

    Positions with the same remainder by the stride are added up apart from the others, and interleaved in the end.
    """
    s, p = window.stride, window.padding
    places = -(-(length + 2 * p) // s)

    def placed(i: int) -> jax.Array:
        before = i // s
        after = places - before - parts[i].shape[axis]
        return jnp.pad(parts[i], [(before, after) if a == axis else (0, 0) for a in range(parts[i].ndim)])

    zeros = jnp.zeros_like(placed(0))
    phases = [functools.reduce(jnp.add, map(placed, range(phase, window.size, s)), zeros) for phase in range(s)]
    whole = jnp.stack(phases, axis + 1).reshape(*zeros.shape[:axis], s * places, *zeros.shape[axis + 1 :])
    return lax.slice_in_dim(whole, p, p + length, axis=axis)
