"""ResNet-18 with GroupNorm, for small images."""

from collections.abc import Sequence

import jax
from flax import linen as nn

from fedeba_jax.models.layers import Conv, Dense, GroupNorm
from fedeba_jax.models.normalization import IDENTITY, Normalization
from fedeba_jax.models.norms import RELU
from fedeba_jax.models.wrapping import check_images, of_values
from fedeba_jax.types import Model

STAGES = 4
BLOCKS = 2  # of a stage


class BasicBlock(nn.Module):
    """relu(shortcut(x) + norm(conv(relu(norm(conv(x)))))).

    The shortcut is x itself or, where the shape changes, norm(conv(x)) of a 1x1 convolution.
    """

    features: int
    stride: int
    groups: int

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        y = GroupNorm(self.groups, RELU)(Conv(self.features, stride=self.stride)(x))
        y = GroupNorm(self.groups)(Conv(self.features)(y))
        if self.stride != 1 or x.shape[-1] != self.features:
            shortcut = Conv(self.features, size=1, stride=self.stride, name="shortcut")(x)
            x = GroupNorm(self.groups, name="shortcut_norm")(shortcut)
        return nn.relu(x + y)


class ResNet(nn.Module):
    """A 3x3 stem without stride or pool, four stages of two basic blocks, the mean of each plane, logits."""

    num_classes: int
    width: int  # channels of the stem and of the first stage; each later stage has twice as many
    groups: int

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        x = GroupNorm(self.groups, RELU)(Conv(self.width)(x))
        for stage in range(STAGES):
            for block in range(BLOCKS):
                stride = 2 if stage and not block else 1
                x = BasicBlock(self.width << stage, stride, self.groups)(x)
        return Dense(self.num_classes)(x.mean((1, 2)))


def resnet18(
    input_shape: Sequence[int],
    num_classes: int,
    *,
    width: int = 64,
    groups: int = 2,
    normalization: Normalization = IDENTITY,
) -> Model:
    """He et al. 2016 (arXiv:1512.03385), with GroupNorm: 11,220,132 parameters for 3 channels and 100 classes.

    Notes:
      The stem is 3x3 with stride 1 and no pool follows, as is usual for 32x32 images. GroupNorm instead of BatchNorm:
      running statistics are no parameters and do not average well over clients whose labels differ.
    """
    check_images("resnet18", input_shape)
    if width % groups:
        raise ValueError(f"groups={groups} does not divide width={width}; give a divisor")
    return of_values(ResNet(num_classes, width, groups), input_shape, normalization)
