"""A 5x5 convolution fused with its 2x2 max-pool, fast on each backend.

XLA's CPU backend runs a convolution's weight gradient 15 to 25 times too slowly inside a loop (`scan`,
`lax.map`), which is where all local training happens. So on CPU the layer is made of matrix products over
tiles (see `tiles`), a few images at a time (see `groups`): `TILE_GEMM` for few input channels (images), `WINOGRAD`
for many. On other platforms it is the `NATIVE` convolution.
"""

import jax
import jax.numpy as jnp
from jax import lax

from fedeba_jax.models.convolution.groups import in_groups
from fedeba_jax.models.convolution.tiles import (
    KERNEL,
    POOL,
    SHIFTS,
    TILE,
    ConvPool,
    add_taps,
    materialize,
    pool,
    taps,
    unpool,
)
from fedeba_jax.models.convolution.winograd import WINOGRAD

WINOGRAD_MIN_CHANNELS = 16  # below it the transforms cost more than the products they save


def _tiles(x: jax.Array) -> jax.Array:
    """[B, H, W, C] -> [B t s, 36 C]. Pairs of columns move together, for longer runs of memory."""
    _, _, w, c = x.shape
    pairs = x.reshape(*x.shape[:2], w // 2, 2 * c)
    s = w // 2 - 2
    tiles = jnp.concatenate([row[:, :, j : j + s] for row in taps(pairs, 1) for j in range(3)], -1)
    return materialize(tiles.reshape(-1, TILE * TILE * c))


def _spread(kernel: jax.Array) -> jax.Array:
    """The kernel at its four shifts inside a tile: [5, 5, C, O] -> [36 C, 4 O]."""
    at = [jnp.pad(kernel, ((p, 1 - p), (q, 1 - q), (0, 0), (0, 0))) for p, q in SHIFTS]
    return jnp.stack(at, 3).reshape(-1, len(at) * kernel.shape[-1])


def _tile_forward(x: jax.Array, kernel: jax.Array) -> tuple[jax.Array, jax.Array]:
    b, h, w, _ = x.shape
    y = (_tiles(x) @ _spread(kernel)).reshape(b, h // 2 - 2, w // 2 - 2, -1)
    return pool(jnp.split(y, len(SHIFTS), -1))


def _tile_kernel_grad(x: jax.Array, kernel: jax.Array, winner: jax.Array, g: jax.Array) -> jax.Array:
    dy = materialize(jnp.concatenate(unpool(winner, g), -1)).reshape(-1, len(SHIFTS) * g.shape[-1])
    return jax.linear_transpose(_spread, kernel)(_tiles(x).T @ dy)[0]


def _tile_input_grad(x: jax.Array, kernel: jax.Array, winner: jax.Array, g: jax.Array) -> jax.Array:
    dy = jnp.concatenate(unpool(winner, g), -1).reshape(-1, len(SHIFTS) * g.shape[-1])
    tiles = (dy @ _spread(kernel).T).reshape(*g.shape[:3], TILE, TILE, -1)
    return add_taps([add_taps([tiles[:, :, :, i, j] for j in range(TILE)], 2) for i in range(TILE)], 1)


def _convolve(x: jax.Array, kernel: jax.Array) -> jax.Array:
    return lax.conv_general_dilated(x, kernel, (1, 1), "VALID", dimension_numbers=("NHWC", "HWIO", "NHWC"))


def _native_forward(x: jax.Array, kernel: jax.Array) -> tuple[jax.Array, jax.Array]:
    y = _convolve(x, kernel)
    return pool([y[:, p::POOL, q::POOL] for p, q in SHIFTS])


def _native_output_grad(winner: jax.Array, g: jax.Array) -> jax.Array:
    b, t, s, o = g.shape
    dy = jnp.stack(unpool(winner, g)).reshape(POOL, POOL, b, t, s, o)
    return dy.transpose(2, 3, 0, 4, 1, 5).reshape(b, POOL * t, POOL * s, o)


def _native_kernel_grad(x: jax.Array, kernel: jax.Array, winner: jax.Array, g: jax.Array) -> jax.Array:
    return jax.linear_transpose(lambda k: _convolve(x, k), kernel)(_native_output_grad(winner, g))[0]


def _native_input_grad(x: jax.Array, kernel: jax.Array, winner: jax.Array, g: jax.Array) -> jax.Array:
    return jax.linear_transpose(lambda a: _convolve(a, kernel), x)(_native_output_grad(winner, g))[0]


TILE_GEMM = in_groups(ConvPool(_tile_forward, _tile_kernel_grad, _tile_input_grad))
NATIVE = ConvPool(_native_forward, _native_kernel_grad, _native_input_grad)


def _run(part: str, x: jax.Array, *rest: jax.Array) -> jax.Array:
    """`part` of the way that suits the platform (or platforms: `jax.export`) a program is lowered for."""
    on_cpu = WINOGRAD if x.shape[-1] >= WINOGRAD_MIN_CHANNELS else TILE_GEMM
    return lax.platform_dependent(x, *rest, cpu=getattr(on_cpu, part), default=getattr(NATIVE, part))


@jax.custom_vjp
def _conv_pool(x: jax.Array, kernel: jax.Array) -> jax.Array:
    return _run("forward", x, kernel)[0]


def _conv_pool_fwd(x: jax.Array, kernel: jax.Array) -> tuple[jax.Array, tuple[jax.Array, ...]]:
    pooled, winner = _run("forward", x, kernel)
    return pooled, (x, kernel, winner)  # residuals are the same on every platform


def _conv_pool_bwd(residuals: tuple[jax.Array, ...], g: jax.Array) -> tuple[jax.Array, jax.Array]:
    # Two separate choices: an image's gradient is never used, and is then dropped as dead code.
    x, kernel, winner = residuals
    return _run("input_grad", x, kernel, winner, g), _run("kernel_grad", x, kernel, winner, g)


_conv_pool.defvjp(_conv_pool_fwd, _conv_pool_bwd)


def conv_pool(x: jax.Array, kernel: jax.Array) -> jax.Array:
    """2x2 max-pool of the valid 5x5 convolution: [B, H, W, C], [5, 5, C, O] -> [B, (H-4)//2, (W-4)//2, O].

    A bias and ReLU belong *after* it: both are monotone in each channel, so
    max(relu(y + b)) = relu(max(y) + b), with a quarter of the work.
    """
    if kernel.shape[:2] != (KERNEL, KERNEL) or min(x.shape[1:3]) < TILE:
        raise ValueError(f"conv_pool needs a 5x5 kernel and images of at least 6x6, got {kernel.shape}, {x.shape}")
    h, w = (n - n % POOL for n in x.shape[1:3])  # like PyTorch, an odd last row or column is not pooled
    return _conv_pool(x[:, :h, :w], kernel)
