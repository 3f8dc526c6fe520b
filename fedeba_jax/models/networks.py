"""The plain networks: logistic regression, the MLP, and the CNN in the paper's five sizes."""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
from flax import linen as nn

from fedeba_jax.models.convolution.general import convolve
from fedeba_jax.models.convolution.pooled import conv_pool
from fedeba_jax.models.convolution.tiles import KERNEL
from fedeba_jax.models.layers import Dense, along_channels, torch_uniform
from fedeba_jax.models.normalization import IDENTITY, Normalization
from fedeba_jax.models.wrapping import check_images, of_values
from fedeba_jax.types import Model


class ConvReluPool(nn.Module):
    """2x2 max-pool of ReLU of a convolution, in the cheaper order that `conv_pool` explains.

    The convolution is a valid 5x5 one or, if `padded`, a 3x3 one that keeps the size.
    """

    features: int
    padded: bool = False

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        size = 3 if self.padded else KERNEL
        init = torch_uniform(size * size * x.shape[-1])
        kernel = self.param("kernel", init, (size, size, x.shape[-1], self.features), x.dtype)
        bias = self.param("bias", init, (self.features,), x.dtype)
        pooled = max_pool(convolve(x, kernel, padding=1)) if self.padded else conv_pool(x, kernel)
        return nn.relu(pooled + along_channels(bias, x.ndim))


def max_pool(x: jax.Array) -> jax.Array:
    """The largest of each 2x2 window; an odd last row or column is left out."""
    h, w = (n - n % 2 for n in x.shape[1:3])
    a, b, c, d = (x[:, i:h:2, j:w:2] for i in (0, 1) for j in (0, 1))
    return jnp.maximum(jnp.maximum(a, b), jnp.maximum(c, d))


class ConvNet(nn.Module):
    """Convolutions, then hidden layers, then logits; without convolutions it is a multi-layer perceptron.

    Attributes:
      num_classes: logits.
      channels: of the valid 5x5 convolutions.
      hidden: units of the hidden layers.
      padded: channels of the 3x3 convolutions that follow.
      global_pool: whether a last max-pool takes whole planes, so that a channel becomes one number.
    """

    num_classes: int
    channels: Sequence[int] = ()
    hidden: Sequence[int] = ()
    padded: Sequence[int] = ()
    global_pool: bool = False

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        layers = [(features, False) for features in self.channels] + [(features, True) for features in self.padded]
        for i, (features, padded) in enumerate(layers):
            x = ConvReluPool(features, padded, name=f"ConvReluPool_{i}")(x)
        if self.global_pool:
            x = x.max((1, 2))
        x = x.reshape(x.shape[0], -1)
        for features in self.hidden:
            x = nn.relu(Dense(features)(x))
        return Dense(self.num_classes)(x)


def logistic(input_shape: Sequence[int], num_classes: int, *, normalization: Normalization = IDENTITY) -> Model:
    """Multinomial logistic regression: flatten, logits. 7,850 parameters for 28x28x1 and 10 classes."""
    return of_values(ConvNet(num_classes), input_shape, normalization)


def mlp(
    input_shape: Sequence[int],
    num_classes: int,
    *,
    hidden: Sequence[int] = (200, 200),
    normalization: Normalization = IDENTITY,
) -> Model:
    """Flatten, hidden ReLU layers, logits: 199,210 parameters for 28x28x1 and 10 classes."""
    return of_values(ConvNet(num_classes, hidden=tuple(hidden)), input_shape, normalization)


def cnn(
    input_shape: Sequence[int],
    num_classes: int,
    *,
    channels: Sequence[int] = (64, 64),
    hidden: Sequence[int] = (384, 192),
    normalization: Normalization = IDENTITY,
) -> Model:
    """5x5 convolutions with ReLU and 2x2 max-pool, hidden ReLU layers, logits.

    797,962 parameters for 32x32x3 and 10 classes.
    """
    return _cnn("cnn", ConvNet(num_classes, tuple(channels), tuple(hidden)), input_shape, normalization)


def cnn_narrow(input_shape: Sequence[int], num_classes: int, *, normalization: Normalization = IDENTITY) -> Model:
    """The CNN with half the channels, 3-32-32 and 800-128-64: 139,498 parameters for 32x32x3 and 10 classes."""
    return _cnn("cnn_narrow", ConvNet(num_classes, (32, 32), (128, 64)), input_shape, normalization)


def cnn_wide(input_shape: Sequence[int], num_classes: int, *, normalization: Normalization = IDENTITY) -> Model:
    """The CNN with twice the channels, 3-128-128 and 3200-384-192: 1,724,490 parameters for 32x32x3 and 10 classes.

    Notes:
      The paper prints 1600 inputs of the first linear layer, but 128 channels of 5x5 are 3200.
    """
    return _cnn("cnn_wide", ConvNet(num_classes, (128, 128), (384, 192)), input_shape, normalization)


def cnn_shallow(input_shape: Sequence[int], num_classes: int, *, normalization: Normalization = IDENTITY) -> Model:
    """The CNN with one convolution, 3-64 and 64-384-192: 105,674 parameters for 3 channels and 10 classes.

    Notes:
      The paper's 64 inputs of the first linear layer mean one number a channel. It does not say which: here it is the
      largest, as in the network's other pools.
    """
    module = ConvNet(num_classes, (64,), (384, 192), global_pool=True)
    return _cnn("cnn_shallow", module, input_shape, normalization)


def cnn_deep(input_shape: Sequence[int], num_classes: int, *, normalization: Normalization = IDENTITY) -> Model:
    """The CNN with three convolutions, 3-64-128-128 and 512-384-192: 630,218 parameters for 32x32x3 and 10 classes.

    Notes:
      512 inputs of the first linear layer are 128 channels of 2x2. The second pool leaves 5x5, so the third
      convolution is a padded 3x3 one.
    """
    module = ConvNet(num_classes, (64, 128), (384, 192), padded=(128,))
    return _cnn("cnn_deep", module, input_shape, normalization)


def _cnn(name: str, module: ConvNet, input_shape: Sequence[int], normalization: Normalization) -> Model:
    least = 2 ** len(module.padded)
    for _ in module.channels:
        least = 2 * least + KERNEL - 1
    check_images(name, input_shape, least)
    return of_values(module, input_shape, normalization)
