"""MobileNetV2 with GroupNorm."""

from collections.abc import Sequence
from typing import NamedTuple

import jax
from flax import linen as nn

from fedeba_jax.models.layers import Conv, Dense, GroupNorm
from fedeba_jax.models.normalization import IDENTITY, Normalization
from fedeba_jax.models.norms import LINEAR, RELU6
from fedeba_jax.models.wrapping import check_images, of_values
from fedeba_jax.types import Model


class Blocks(NamedTuple):
    """Equal bottlenecks, the first of which takes the stride."""

    expansion: int
    features: int
    number: int
    stride: int


PAPER = (
    Blocks(1, 16, 1, 1), Blocks(6, 24, 2, 2), Blocks(6, 32, 3, 2), Blocks(6, 64, 4, 2), Blocks(6, 96, 3, 1),
    Blocks(6, 160, 3, 2), Blocks(6, 320, 1, 1),
)  # fmt: skip


class ConvNorm(nn.Module):
    """A convolution, GroupNorm and, unless `linear`, ReLU6."""

    features: int
    groups: int
    size: int = 3
    stride: int = 1
    depthwise: bool = False
    linear: bool = False

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        x = Conv(self.features, self.size, self.stride, self.depthwise)(x)
        return GroupNorm(self.groups, LINEAR if self.linear else RELU6)(x)


class Bottleneck(nn.Module):
    """Widen (1x1), filter each channel (3x3), narrow (1x1, linear); added to x where the shape stays."""

    expansion: int
    features: int
    stride: int
    groups: int

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        y, wide = x, self.expansion * x.shape[-1]
        if self.expansion != 1:
            y = ConvNorm(wide, self.groups, size=1)(y)
        y = ConvNorm(wide, self.groups, stride=self.stride, depthwise=True)(y)
        y = ConvNorm(self.features, self.groups, size=1, linear=True)(y)
        return x + y if x.shape == y.shape else y


class MobileNetV2(nn.Module):
    """A 3x3 stem, bottlenecks, a wide 1x1 convolution, the mean of each plane, logits."""

    num_classes: int
    blocks: Sequence[Blocks]
    stem: int
    head: int
    stem_stride: int
    groups: int

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        x = ConvNorm(self.stem, self.groups, stride=self.stem_stride)(x)
        for expansion, features, number, stride in self.blocks:
            for i in range(number):
                x = Bottleneck(expansion, features, 1 if i else stride, self.groups)(x)
        x = ConvNorm(self.head, self.groups, size=1)(x)
        return Dense(self.num_classes)(x.mean((1, 2)))


def mobilenet_v2(
    input_shape: Sequence[int],
    num_classes: int,
    *,
    blocks: Sequence[Blocks] = PAPER,
    stem: int = 32,
    head: int = 1280,
    stem_stride: int = 1,
    groups: int = 8,
    normalization: Normalization = IDENTITY,
) -> Model:
    """Sandler et al. 2018 (arXiv:1801.04381), with GroupNorm: 2,480,072 parameters for 3 channels and 200 classes.

    Args:
      input_shape: of an image, [H, W, C].
      num_classes: logits.
      blocks: bottlenecks.
      stem: channels of the first convolution.
      head: channels of the last one.
      stem_stride: of the first convolution: 1 for 64x64 images, 2 for ImageNet's 224x224.
      groups: of GroupNorm; 8 divides all of the paper's widths.
      normalization: of the images.
    """
    check_images("mobilenet_v2", input_shape)
    for width in (stem, head, *(b.features for b in blocks)):
        if width % groups:
            raise ValueError(f"groups={groups} does not divide the width {width}; give a divisor of all widths")
    module = MobileNetV2(num_classes, tuple(blocks), stem, head, stem_stride, groups)
    return of_values(module, input_shape, normalization)
