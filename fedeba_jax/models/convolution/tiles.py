"""The geometry that the CPU forms of `conv_pool` share.

The four outputs of a 5x5 convolution under one 2x2 pool window read one 6x6 *tile* of the input, and tiles lie
at stride 2. So t x s tiles give t x s pooled outputs, and the maximum is over four arrays of equal shape.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

KERNEL, POOL, TILE = 5, 2, 6
SHIFTS = [(p, q) for p in range(POOL) for q in range(POOL)]  # row-major, so that ties go to PyTorch's winner

# Keeps XLA from merging the stages of a transform, which it would then compute once for every slice that reads
# them: a training step of the CNN on CPU took 8% longer without.
materialize = lax.optimization_barrier


class ConvPool(NamedTuple):
    """One way to compute max-pool(convolution) and its gradients; all ways agree up to rounding."""

    forward: Callable[..., tuple[jax.Array, jax.Array]]  # (x, kernel) -> pooled, winner in 0..3 (uint8)
    kernel_grad: Callable[..., jax.Array]  # (x, kernel, winner, g) -> like kernel
    input_grad: Callable[..., jax.Array]  # (x, kernel, winner, g) -> like x


def pool(y: Sequence[jax.Array]) -> tuple[jax.Array, jax.Array]:
    """The largest of four arrays and which it was, the first of equals."""
    top = jnp.maximum(jnp.maximum(y[0], y[1]), jnp.maximum(y[2], y[3]))
    winner = jnp.where(y[0] == top, 0, jnp.where(y[1] == top, 1, jnp.where(y[2] == top, 2, 3)))
    return materialize((top, winner.astype(jnp.uint8)))


def unpool(winner: jax.Array, g: jax.Array) -> list[jax.Array]:
    """The gradient of `pool`: g at the winner and 0 at the three others."""
    return [jnp.where(winner == i, g, jnp.zeros_like(g)) for i in range(POOL * POOL)]


def taps(x: jax.Array, axis: int) -> list[jax.Array]:
    """Six arrays: element i of every tile along `axis`."""
    stop = x.shape[axis] - TILE + 1
    return [lax.slice_in_dim(x, i, i + stop, stride=POOL, axis=axis) for i in range(TILE)]


def add_taps(taps: Sequence[jax.Array], axis: int) -> jax.Array:
    """The transpose of `taps`: overlapping tiles are summed, even and odd positions apart."""

    def shifted(tap: jax.Array, by: int) -> jax.Array:
        return jnp.pad(tap, [(by, 2 - by) if a == axis else (0, 0) for a in range(tap.ndim)])

    halves = [sum(shifted(taps[2 * i + odd], i) for i in range(1, 3)) + shifted(taps[odd], 0) for odd in (0, 1)]
    x = jnp.stack(halves, axis + 1)
    return x.reshape(*x.shape[:axis], -1, *x.shape[axis + 2 :])
