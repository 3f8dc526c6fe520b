"""The pooled convolution by Winograd's minimal filtering, for layers with many input channels.

F(2x2, 5x5) of Lavin & Gray (2016, arXiv:1509.09308): y = A' [(G kernel G') . (B' tile B)] A, which multiplies 36
channel vectors a tile where the plain sum multiplies 100. The price is rounding: in float32 the error is about ten
times the plain sum's, near 1e-5 of the largest value.
"""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np

from fedeba_jax.models.convolution.groups import in_groups
from fedeba_jax.models.convolution.tiles import POOL, SHIFTS, TILE, ConvPool, add_taps, materialize, pool, taps, unpool

# For two outputs of a five-tap filter, interpolated at 0, 1, -1, 2, -2 and infinity.
# fmt: off
B_T = np.array([[4, 0, -5, 0, 1, 0], [0, -4, -4, 1, 1, 0], [0, 4, -4, -1, 1, 0],
                [0, -2, -1, 2, 1, 0], [0, 2, -1, -2, 1, 0], [0, 4, 0, -5, 0, 1]])
A_T = np.array([[1, 1, 1, 1, 1, 0], [0, 1, -1, 2, -2, 1]])
G = np.array([[6, 0, 0, 0, 0], [-4, -4, -4, -4, -4], [-4, 4, -4, 4, -4],
              [1, 2, 4, 8, 16], [1, -2, 4, -8, 16], [0, 0, 0, 0, 24]]) / 24
# fmt: on


def combine(coefficients: np.ndarray, terms: Sequence[jax.Array] | jax.Array) -> jax.Array:
    """sum_i coefficients[i] terms[i], without the products by 0 and 1."""
    used = [(float(a), term) for a, term in zip(coefficients, terms, strict=True) if a]
    return sum((term if a == 1 else a * term for a, term in used[1:]), start=used[0][0] * used[0][1])


def _input(x: jax.Array) -> jax.Array:
    """B' tile B of every tile: [B, H, W, C] -> [36, B t s, C], columns before rows in the 36."""
    rows = materialize(jnp.stack([combine(b, taps(x, 1)) for b in B_T]))
    tiles = jnp.stack([combine(b, taps(rows, 3)) for b in B_T])
    return materialize(tiles.reshape(TILE * TILE, -1, x.shape[-1]))


def _kernel(kernel: jax.Array) -> jax.Array:
    """G kernel G': [5, 5, C, O] -> [36, C, O]."""
    both = np.einsum("vj,ui->vuij", G, G).reshape(TILE * TILE, -1)
    product = jnp.asarray(both, kernel.dtype) @ kernel.reshape(both.shape[1], -1)
    return product.reshape(TILE * TILE, *kernel.shape[2:])


def _output_grad(winner: jax.Array, g: jax.Array) -> jax.Array:
    """A dy A' of the unpooled gradient: [36, B t s, O]."""
    dy = materialize(jnp.stack(unpool(winner, g))).reshape(POOL, POOL, *g.shape)
    rows = materialize(jnp.stack([combine(a, dy) for a in A_T.T], 1))
    d = jnp.stack([combine(a, rows) for a in A_T.T])
    return materialize(d.reshape(TILE * TILE, -1, g.shape[-1]))


def _forward(x: jax.Array, kernel: jax.Array) -> tuple[jax.Array, jax.Array]:
    b, h, w, _ = x.shape
    m = jnp.einsum("vnc,vco->vno", _input(x), _kernel(kernel))
    m = m.reshape(TILE, TILE, b, h // 2 - 2, w // 2 - 2, -1)
    columns = [materialize(combine(a, m)) for a in A_T]
    return pool([combine(A_T[p], columns[q]) for p, q in SHIFTS])


def _kernel_grad(x: jax.Array, kernel: jax.Array, winner: jax.Array, g: jax.Array) -> jax.Array:
    d = jnp.einsum("vnc,vno->vco", _input(x), _output_grad(winner, g))
    return jax.linear_transpose(_kernel, kernel)(d)[0]


def _input_grad(x: jax.Array, kernel: jax.Array, winner: jax.Array, g: jax.Array) -> jax.Array:
    d = jnp.einsum("vno,vco->vnc", _output_grad(winner, g), _kernel(kernel))
    d = d.reshape(TILE, TILE, *g.shape[:3], -1)
    rows = materialize(add_taps(materialize([combine(b, d) for b in B_T.T]), 3))
    return add_taps(materialize([combine(b, rows) for b in B_T.T]), 1)


WINOGRAD = in_groups(ConvPool(_forward, _kernel_grad, _input_grad))
