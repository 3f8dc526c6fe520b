"""Convolutions of images with any stride and padding: whole, 1x1 and depthwise."""

import jax
from jax import lax


def convolve(x: jax.Array, kernel: jax.Array, *, stride: int = 1, padding: int = 0, groups: int = 1) -> jax.Array:
    """x [B, H, W, C], kernel [k, k, C / groups, O] -> [B, (H + 2 padding - k) // stride + 1, ..., O]."""
    return lax.conv_general_dilated(
        x, kernel, (stride, stride), [(padding, padding)] * 2, dimension_numbers=("NHWC", "HWIO", "NHWC"),
        feature_group_count=groups,
    )  # fmt: skip
