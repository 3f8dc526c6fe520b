"""GroupNorm with the activation that follows it, and a gradient written out.

Wu & He 2018 (arXiv:1803.08494): each group of channels of an image gets mean 0 and variance 1, then comes an affine map
of each channel. There are no running statistics: training and evaluation are the same.

Automatic differentiation would pass over the images about ten times. Here, forward and backward, passes take sums and
one more writes the result: half of the time on a CPU.
"""

import functools
import math

import jax
import jax.numpy as jnp
from jax import lax

from fedeba_jax.models.convolution.windows import materialize

LINEAR, RELU, RELU6 = (-math.inf, math.inf), (0.0, math.inf), (0.0, 6.0)
"""Activations: what values are clipped to."""

EPSILON = 1e-5
Statistics = tuple[jax.Array, jax.Array]  # mean and 1 / standard deviation of each image's groups, [B, groups]


def group_norm(
    x: jax.Array, scale: jax.Array, bias: jax.Array, *, groups: int, clip: tuple[float, float] = LINEAR
) -> jax.Array:
    """clip(scale (x - mean) / sqrt(var + 1e-5) + bias) of images x [B, H, W, C], mean and var by image and group."""
    return _norm(groups, clip, x, scale, bias)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0, 1))
def _norm(groups: int, clip: tuple[float, float], x: jax.Array, scale: jax.Array, bias: jax.Array) -> jax.Array:
    return _norm_fwd(groups, clip, x, scale, bias)[0]


def _norm_fwd(
    groups: int, clip: tuple[float, float], x: jax.Array, scale: jax.Array, bias: jax.Array
) -> tuple[jax.Array, tuple[jax.Array, ...]]:
    mean, inverse = materialize(_statistics(groups, x))
    slope, offset = _affine(mean, inverse, scale, bias)
    return _clip(clip, x * slope + offset), (x, scale, bias, mean, inverse)


def _norm_bwd(
    groups: int, clip: tuple[float, float], residuals: tuple[jax.Array, ...], g: jax.Array
) -> tuple[jax.Array, jax.Array, jax.Array]:
    x, scale, bias, mean, inverse = residuals

    slope, offset = _affine(mean, inverse, scale, bias)
    m, r = (_by_channel(v, x.shape[-1]) for v in (mean, inverse))

    def through(g: jax.Array) -> jax.Array:  # the activation
        z = x * slope + offset
        return g if clip == LINEAR else jnp.where((z > clip[0]) & (z < clip[1]), g, 0)

    by_bias, by_x = materialize((through(g).sum((1, 2)), (through(g) * x).sum((1, 2))))
    by_scale = (by_x - m * by_bias) * r  # [B, C], as by_bias
    first, second = (_group_mean(groups, x, scale[None] * s) for s in (by_bias, by_scale))
    back = r * r * second
    slope, back, rest = materialize((slope, back[:, None, None], (m * back - r * first)[:, None, None]))
    return through(g) * slope - x * back + rest, by_scale.sum(0), by_bias.sum(0)


_norm.defvjp(_norm_fwd, _norm_bwd)


def _by_channel(values: jax.Array, channels: int) -> jax.Array:
    """[B, groups] -> [B, C]."""
    return jnp.repeat(values, channels // values.shape[1], 1)


def _group_mean(groups: int, x: jax.Array, sums: jax.Array) -> jax.Array:
    """The mean over each group of what was summed over each channel, at each channel: [B, C] -> [B, C]."""
    b, h, w, c = x.shape
    return _by_channel(sums.reshape(b, groups, -1).sum(-1) / (h * w * c // groups), c)


def _statistics(groups: int, x: jax.Array) -> Statistics:
    step = x.shape[-1] // groups
    mean = materialize(_group_mean(groups, x, x.sum((1, 2))))
    centred = x - mean[:, None, None]
    variance = _group_mean(groups, x, (centred * centred).sum((1, 2)))
    return mean[:, ::step], lax.rsqrt(variance[:, ::step] + EPSILON)


def _affine(mean: jax.Array, inverse: jax.Array, scale: jax.Array, bias: jax.Array) -> tuple[jax.Array, jax.Array]:
    """The whole norm as x slope + offset, each [B, 1, 1, C]."""
    slope = _by_channel(inverse, scale.size) * scale[None]
    offset = bias[None] - _by_channel(mean, scale.size) * slope
    return materialize((slope[:, None, None], offset[:, None, None]))


def _clip(clip: tuple[float, float], z: jax.Array) -> jax.Array:
    low, high = clip
    z = z if low == -math.inf else jnp.maximum(z, low)
    return z if high == math.inf else jnp.minimum(z, high)
