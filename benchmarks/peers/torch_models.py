"""The larger networks of `fedeba_jax.models` in PyTorch's own layers.

Modules have the names of ours, so that weights can be copied over and compared by name.
"""

from collections import OrderedDict
from collections.abc import Sequence

import torch
from torch import Tensor, nn

MOBILE = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1))


def conv(channels: int, features: int, size: int = 3, stride: int = 1, groups: int = 1) -> nn.Conv2d:
    return nn.Conv2d(channels, features, size, stride, size // 2, groups=groups, bias=False)


class BasicBlock(nn.Module):
    def __init__(self, channels: int, features: int, stride: int, groups: int) -> None:
        super().__init__()
        self.Conv_0 = conv(channels, features, stride=stride)
        self.GroupNorm_0 = nn.GroupNorm(groups, features)
        self.Conv_1 = conv(features, features)
        self.GroupNorm_1 = nn.GroupNorm(groups, features)
        self.changes = stride != 1 or channels != features
        if self.changes:
            self.shortcut = conv(channels, features, 1, stride)
            self.shortcut_norm = nn.GroupNorm(groups, features)

    def forward(self, x: Tensor) -> Tensor:
        y = torch.relu(self.GroupNorm_0(self.Conv_0(x)))
        y = self.GroupNorm_1(self.Conv_1(y))
        if self.changes:
            x = self.shortcut_norm(self.shortcut(x))
        return torch.relu(x + y)


def resnet18(channels: int, num_classes: int, width: int = 64, groups: int = 2) -> nn.Module:
    layers: OrderedDict[str, nn.Module] = OrderedDict()
    layers["Conv_0"], layers["GroupNorm_0"], layers["relu"] = (
        conv(channels, width),
        nn.GroupNorm(groups, width),
        nn.ReLU(),
    )
    before = width
    for number in range(8):
        features = width << number // 2
        stride = 2 if number and number % 2 == 0 else 1
        layers[f"BasicBlock_{number}"] = BasicBlock(before, features, stride, groups)
        before = features
    layers |= {"pool": nn.AdaptiveAvgPool2d(1), "flat": nn.Flatten(), "Dense_0": nn.Linear(before, num_classes)}
    return nn.Sequential(layers)


class ConvNorm(nn.Sequential):
    def __init__(self, layer: nn.Conv2d, groups: int, linear: bool = False) -> None:
        parts: OrderedDict[str, nn.Module] = OrderedDict(Conv_0=layer)
        parts["GroupNorm_0"] = nn.GroupNorm(groups, layer.out_channels)
        if not linear:
            parts["relu"] = nn.ReLU6()
        super().__init__(parts)


class Bottleneck(nn.Module):
    def __init__(self, channels: int, expansion: int, features: int, stride: int, groups: int) -> None:
        super().__init__()
        wide = channels * expansion
        layers = [] if expansion == 1 else [ConvNorm(conv(channels, wide, 1), groups)]
        layers.append(ConvNorm(conv(wide, wide, 3, stride, wide), groups))
        layers.append(ConvNorm(conv(wide, features, 1), groups, linear=True))
        self.number = len(layers)
        for i, layer in enumerate(layers):
            self.add_module(f"ConvNorm_{i}", layer)
        self.stays = stride == 1 and channels == features

    def forward(self, x: Tensor) -> Tensor:
        y = x
        for i in range(self.number):
            y = self.get_submodule(f"ConvNorm_{i}")(y)
        return x + y if self.stays else y


def mobilenet_v2(
    channels: int,
    num_classes: int,
    blocks: Sequence[tuple[int, int, int, int]] = MOBILE,
    stem: int = 32,
    head: int = 1280,
    stem_stride: int = 1,
    groups: int = 8,
) -> nn.Module:
    layers: OrderedDict[str, nn.Module] = OrderedDict()
    layers["ConvNorm_0"] = ConvNorm(conv(channels, stem, 3, stem_stride), groups)
    before, number = stem, 0
    for expansion, features, repeats, stride in blocks:
        for i in range(repeats):
            layers[f"Bottleneck_{number}"] = Bottleneck(before, expansion, features, 1 if i else stride, groups)
            before, number = features, number + 1
    layers["ConvNorm_1"] = ConvNorm(conv(before, head, 1), groups)
    layers |= {"pool": nn.AdaptiveAvgPool2d(1), "flat": nn.Flatten(), "Dense_0": nn.Linear(head, num_classes)}
    return nn.Sequential(layers)


class LanguageModel(nn.Module):
    """Tokens [B, L] -> logits [B, L, vocabulary]."""

    def __init__(self, vocabulary: int, embedding: int = 200, hidden: int = 256) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, embedding)
        self.lstm = nn.LSTM(embedding, hidden, num_layers=2, batch_first=True)
        self.Dense_0 = nn.Linear(hidden, vocabulary)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.Dense_0(self.lstm(self.embedding(tokens))[0])
