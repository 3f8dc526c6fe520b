"""A CPU form of `conv_pool` applied to a few images at a time.

Its stages are several times larger than the images they come from (half a megabyte each in the CNN's second layer). For
ten images they stay in a core's cache; for a batch of fifty they do not, and a training step took 1.4 times as long.
"""

import math

import jax

from fedeba_jax.models.convolution.images import map_images, sum_images
from fedeba_jax.models.convolution.tiles import ConvPool

GROUP = 10


def in_groups(way: ConvPool) -> ConvPool:
    """The same up to rounding: the kernel's gradient is summed group by group."""

    def forward(x: jax.Array, kernel: jax.Array) -> tuple[jax.Array, jax.Array]:
        return map_images(lambda x: way.forward(x, kernel), _size(x), x)

    def kernel_grad(x: jax.Array, kernel: jax.Array, winner: jax.Array, g: jax.Array) -> jax.Array:
        return sum_images(lambda x, winner, g: way.kernel_grad(x, kernel, winner, g), _size(x), x, winner, g)

    def input_grad(x: jax.Array, kernel: jax.Array, winner: jax.Array, g: jax.Array) -> jax.Array:
        return map_images(lambda x, winner, g: way.input_grad(x, kernel, winner, g), _size(x), x, winner, g)

    return ConvPool(forward, kernel_grad, input_grad)


def _size(x: jax.Array) -> int:
    """Groups as equal as can be, of at most GROUP images."""
    count = max(1, x.shape[0])
    return math.ceil(count / math.ceil(count / GROUP))
