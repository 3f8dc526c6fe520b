"""The networks, as pairs of functions. Only this package knows Flax."""

from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
from flax import linen as nn

from fedeba_jax.models.convolution.pooled import conv_pool
from fedeba_jax.models.convolution.tiles import KERNEL
from fedeba_jax.models.normalization import IDENTITY
from fedeba_jax.types import Key, Model, Params

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


def _along_channels(values: jax.Array, ndim: int) -> jax.Array:
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
        return x @ kernel.T + _along_channels(bias, x.ndim)


class ConvReluPool(nn.Module):
    """2x2 max-pool of ReLU of a valid 5x5 convolution, in the cheaper order that `conv_pool` explains."""

    features: int

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        init = torch_uniform(KERNEL * KERNEL * x.shape[-1])
        kernel = self.param("kernel", init, (KERNEL, KERNEL, x.shape[-1], self.features), x.dtype)
        bias = self.param("bias", init, (self.features,), x.dtype)
        return nn.relu(conv_pool(x, kernel) + _along_channels(bias, x.ndim))


class ConvNet(nn.Module):
    """Convolutions, then hidden layers, then logits; without convolutions it is a multi-layer perceptron."""

    num_classes: int
    channels: Sequence[int]
    hidden: Sequence[int]
    mean: Sequence[float]
    std: Sequence[float]

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        mean, std = (_along_channels(jnp.asarray(a, x.dtype), x.ndim) for a in (self.mean, self.std))
        x = (x - mean) / std
        for features in self.channels:
            x = ConvReluPool(features)(x)
        x = x.reshape(x.shape[0], -1)
        for features in self.hidden:
            x = nn.relu(Dense(features)(x))
        return Dense(self.num_classes)(x)


def _as_model(module: nn.Module, input_shape: Sequence[int]) -> Model:
    """Parameters start in the default float type (float64 under `jax_enable_x64`); `apply` follows theirs."""

    def init(key: Key) -> Params:
        x = jnp.zeros((1, *input_shape), jnp.result_type(float))
        return jax.jit(module.init)(key, x)["params"]  # compiled, the forward pass that shapes it is dead code

    def apply(params: Params, x: jax.Array) -> jax.Array:
        logits = module.apply({"params": params}, x.astype(jax.tree.leaves(params)[0].dtype))
        assert isinstance(logits, jax.Array)
        return logits

    return Model(init, apply)


def mlp(
    input_shape: Sequence[int],
    num_classes: int,
    *,
    hidden: Sequence[int] = (200, 200),
    mean: Sequence[float] = IDENTITY.mean,
    std: Sequence[float] = IDENTITY.std,
) -> Model:
    """Flatten, hidden ReLU layers, logits: 199,210 parameters for 28x28x1 and 10 classes."""
    return _as_model(ConvNet(num_classes, (), tuple(hidden), tuple(mean), tuple(std)), input_shape)


def cnn(
    input_shape: Sequence[int],
    num_classes: int,
    *,
    channels: Sequence[int] = (64, 64),
    hidden: Sequence[int] = (384, 192),
    mean: Sequence[float] = IDENTITY.mean,
    std: Sequence[float] = IDENTITY.std,
) -> Model:
    """5x5 convolutions with ReLU and 2x2 max-pool, hidden ReLU layers, logits.

    797,962 parameters for 32x32x3 and 10 classes.
    """
    module = ConvNet(num_classes, tuple(channels), tuple(hidden), tuple(mean), tuple(std))
    return _as_model(module, input_shape)
