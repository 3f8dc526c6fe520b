"""Convolutions with any stride and padding, whole or depthwise, fast on each backend.

XLA's CPU backend runs a convolution's weight gradient 15 to 25 times too slowly inside a loop (`scan`, `lax.map`),
which is where all local training happens, and depthwise ones slowly everywhere. So on a CPU a convolution is made of
matrix products or, if depthwise, of shifted images: `way_on_cpu` says which. On other platforms it is the `native` one.
"""

import functools

import jax
from jax import lax

from fedeba_jax.models.convolution.depthwise import DEPTHWISE
from fedeba_jax.models.convolution.matrices import COLUMNS, POINTWISE
from fedeba_jax.models.convolution.windows import Way, Window
from fedeba_jax.models.convolution.winograd3 import WINOGRAD3

WINOGRAD_MIN_CHANNELS = 16  # 32 channels gain a factor of 1.9, 16 of 1.3; with fewer, exact sums are worth more


def native(groups: int) -> Way:
    """XLA's own convolution, whose gradients are its transposes."""

    def forward(window: Window, x: jax.Array, kernel: jax.Array) -> jax.Array:
        return lax.conv_general_dilated(
            x, kernel, (window.stride,) * 2, [(window.padding,) * 2] * 2,
            dimension_numbers=("NHWC", "HWIO", "NHWC"), feature_group_count=groups,
        )  # fmt: skip

    def input_grad(window: Window, kernel: jax.Array, g: jax.Array) -> jax.Array:
        like = jax.ShapeDtypeStruct((g.shape[0], window.height, window.width, kernel.shape[2] * groups), g.dtype)
        return jax.linear_transpose(lambda x: forward(window, x, kernel), like)(g)[0]

    def kernel_grad(window: Window, x: jax.Array, g: jax.Array) -> jax.Array:
        like = jax.ShapeDtypeStruct((window.size, window.size, x.shape[-1] // groups, g.shape[-1]), g.dtype)
        return jax.linear_transpose(lambda kernel: forward(window, x, kernel), like)(g)[0]

    return Way(forward, input_grad, kernel_grad)


def way_on_cpu(window: Window, channels: int, features: int, groups: int) -> Way:
    """The fastest way for this shape, as measured."""
    if groups > 1:
        return DEPTHWISE if groups == channels == features else native(groups)
    if window.size == 1:
        return POINTWISE
    if window.size == 3 and window.stride == 1 and min(channels, features) >= WINOGRAD_MIN_CHANNELS:
        return WINOGRAD3
    return COLUMNS


def _run(part: str, window: Window, groups: int, kernel_shape: tuple[int, ...], *arrays: jax.Array) -> jax.Array:
    """`part` of the way that suits the platform (or platforms: `jax.export`) a program is lowered for."""
    on_cpu = way_on_cpu(window, kernel_shape[2] * groups, kernel_shape[3], groups)
    cpu, default = (functools.partial(getattr(way, part), window) for way in (on_cpu, native(groups)))
    return lax.platform_dependent(*arrays, cpu=cpu, default=default)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0, 1))
def _convolve(window: Window, groups: int, x: jax.Array, kernel: jax.Array) -> jax.Array:
    return _run("forward", window, groups, kernel.shape, x, kernel)


def _convolve_fwd(
    window: Window, groups: int, x: jax.Array, kernel: jax.Array
) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
    return _run("forward", window, groups, kernel.shape, x, kernel), (x, kernel)


def _convolve_bwd(
    window: Window, groups: int, residuals: tuple[jax.Array, jax.Array], g: jax.Array
) -> tuple[jax.Array, jax.Array]:
    # Two separate choices: an image's gradient is never used, and is then dropped as dead code.
    x, kernel = residuals
    by_input = _run("input_grad", window, groups, kernel.shape, kernel, g)
    return by_input, _run("kernel_grad", window, groups, kernel.shape, x, g)


_convolve.defvjp(_convolve_fwd, _convolve_bwd)


def convolve(x: jax.Array, kernel: jax.Array, *, stride: int = 1, padding: int = 0, groups: int = 1) -> jax.Array:
    """x [B, H, W, C], kernel [k, k, C / groups, O] -> [B, (H + 2 padding - k) // stride + 1, ..., O].

    Args:
      x: images.
      kernel: filters.
      stride: between windows.
      padding: zeros on each side.
      groups: 1, or C for a depthwise convolution.
    """
    size = kernel.shape[0]
    if kernel.shape[1] != size or kernel.shape[2] * groups != x.shape[-1] or padding >= size:
        raise ValueError(
            f"convolve needs a kernel [k, k, C / groups, O] and padding < k, got kernel {kernel.shape} for images "
            f"{x.shape}, groups={groups}, padding={padding}"
        )
    if min(x.shape[1:3]) + 2 * padding < size:
        raise ValueError(f"images {x.shape} with padding={padding} are smaller than the kernel {kernel.shape}")
    return _convolve(Window(size, stride, padding, *x.shape[1:3]), groups, x, kernel)
