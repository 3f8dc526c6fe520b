"""Layers that several networks share, started as PyTorch starts them."""

from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
from flax import linen as nn

from fedeba_jax.models.convolution.general import convolve
from fedeba_jax.models.norms import LINEAR, group_norm
from fedeba_jax.types import Key

Initializer = Callable[[Key, Sequence[int], jnp.dtype], jax.Array]


def torch_uniform(fan_in: int) -> Initializer:
    """PyTorch's default for kernels *and* biases: U(+-1/sqrt(fan_in)), both with the kernel's fan_in."""
    bound = fan_in**-0.5

    def init(key: Key, shape: Sequence[int], dtype: jnp.dtype) -> jax.Array:
        return jax.random.uniform(key, shape, dtype, -bound, bound)

    return init


def transposed(init: Initializer) -> Initializer:
    """A matrix that `init` draws on its side."""
    return lambda key, shape, dtype: init(key, shape[::-1], dtype).T


def along_channels(values: jax.Array, ndim: int) -> jax.Array:
    """A number for each channel, [C], beside arrays [..., C] of rank `ndim`."""
    return values.reshape((1,) * (ndim - 1) + (-1,))


class Dense(nn.Module):
    """y = x kernel' + bias, started as PyTorch does.

    The kernel is [out, in], as in PyTorch: its gradient then is the product of matrices that a CPU multiplies fastest.
    It is drawn as [in, out].
    """

    features: int

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        init = torch_uniform(x.shape[-1])
        kernel = self.param("kernel", transposed(init), (self.features, x.shape[-1]), x.dtype)
        bias = self.param("bias", init, (self.features,), x.dtype)
        return x @ kernel.T + along_channels(bias, x.ndim)


class Conv(nn.Module):
    """A square convolution without bias, padded so that stride 1 keeps the size.

    `depthwise`: each channel has a filter of its own; `features` is then the number of channels.
    """

    features: int
    size: int = 3
    stride: int = 1
    depthwise: bool = False

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        groups = x.shape[-1] if self.depthwise else 1
        shape = (self.size, self.size, x.shape[-1] // groups, self.features)
        kernel = self.param("kernel", torch_uniform(self.size**2 * shape[2]), shape, x.dtype)
        return convolve(x, kernel, stride=self.stride, padding=self.size // 2, groups=groups)


class GroupNorm(nn.Module):
    """`norms.group_norm` with its parameters, and the activation that follows."""

    groups: int
    clip: tuple[float, float] = LINEAR

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        scale = self.param("scale", nn.initializers.ones, (x.shape[-1],), x.dtype)
        bias = self.param("bias", nn.initializers.zeros, (x.shape[-1],), x.dtype)
        return group_norm(x, scale, bias, groups=self.groups, clip=self.clip)
