"""The geometry of convolutions with a square kernel, and what a way to compute them consists of."""

from collections.abc import Callable
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


def transposed(window: Window, g: jax.Array, weigh: Callable[[list[jax.Array], list[int]], jax.Array]) -> jax.Array:
    """What each pixel of the images gets back from the results g [B, *window.shape, O]: [B, H, W, C].

    Pixels with the same remainder by the stride meet the same entries of the kernel, so they are computed together, and
    interleaved in the end.

    Args:
      window: the convolution's.
      g: a number for each result.
      weigh: (arrays [B, h, w, O], numbers of the kernel's entries) -> sum of each array weighted by its entry.
    """
    s, k = window.stride, window.size
    h, w = (-(-n // s) for n in (window.height, window.width))
    reach = k - 1  # no shift is further
    rows, columns = window.shape
    edges = ((0, 0), (reach, reach + max(0, h - rows)), (reach, reach + max(0, w - columns)), (0, 0))
    padded = materialize(jnp.pad(g, edges))

    def phase(p: int, q: int) -> jax.Array | None:
        met = [(i, j) for i in _entries(window, p) for j in _entries(window, q)]
        corners = [(reach + _shift(window, p, i), reach + _shift(window, q, j)) for i, j in met]
        shifted = [padded[:, a : a + h, b : b + w] for a, b in corners]
        return weigh(shifted, [i * k + j for i, j in met]) if met else None

    phases = [phase(p, q) for p in range(s) for q in range(s)]
    if s == 1:
        assert phases[0] is not None
        return phases[0]
    found = next(value for value in phases if value is not None)
    filled = [jnp.zeros_like(found) if value is None else value for value in phases]
    lines = [jnp.stack(filled[p * s : (p + 1) * s], 3) for p in range(s)]
    whole = jnp.stack(lines, 2).reshape(g.shape[0], s * h, s * w, -1)  # from [B, h, s, w, s, C]
    return whole[:, : window.height, : window.width]


def _entries(window: Window, phase: int) -> list[int]:
    """Along one axis: the entries of the kernel that pixels phase, phase + stride, ... meet."""
    return [i for i in range(window.size) if (phase + window.padding - i) % window.stride == 0]


def _shift(window: Window, phase: int, entry: int) -> int:
    """Along one axis: pixel number phase + m stride meets this entry in result number m + shift."""
    return (phase + window.padding - entry) // window.stride
