"""Networks by name: `make_model` gives the `Model` that a data set is trained with.

Which to use: `mlp` or `logistic` for 28x28 grey images (MNIST, Fashion-MNIST) and for features; `cnn` or `resnet18` for
32x32 colour images (CIFAR), `cnn_narrow`, `cnn_wide`, `cnn_shallow` and `cnn_deep` to see what a network's size does;
`mobilenet_v2` for 64x64 ones (Tiny-ImageNet); `lstm_words` and `lstm_chars` for text.
"""

from collections.abc import Callable, Sequence

import numpy as np

from fedeba_jax.models.mobile import mobilenet_v2
from fedeba_jax.models.networks import cnn, cnn_deep, cnn_narrow, cnn_shallow, cnn_wide, logistic, mlp
from fedeba_jax.models.normalization import IDENTITY, NORMALIZATION
from fedeba_jax.models.recurrent import lstm_chars, lstm_words
from fedeba_jax.models.residual import resnet18
from fedeba_jax.types import Model

OF_VALUES: dict[str, Callable[..., Model]] = {
    "logistic": logistic,
    "mlp": mlp,
    "cnn": cnn,
    "cnn_narrow": cnn_narrow,
    "cnn_wide": cnn_wide,
    "cnn_shallow": cnn_shallow,
    "cnn_deep": cnn_deep,
    "resnet18": resnet18,
    "mobilenet_v2": mobilenet_v2,
}
"""Models of images and features."""

OF_TOKENS: dict[str, Callable[..., Model]] = {"lstm_words": lstm_words, "lstm_chars": lstm_chars}
"""Models of sequences of tokens."""

MODELS = OF_VALUES | OF_TOKENS

VMAP, CHUNKED, MAP = "vmap", "chunked(5)", "map"
ACCELERATOR_MAP = {
    "logistic": VMAP,
    "mlp": VMAP,
    "cnn": CHUNKED,
    "cnn_narrow": CHUNKED,
    "cnn_wide": CHUNKED,
    "cnn_shallow": CHUNKED,
    "cnn_deep": CHUNKED,
    "resnet18": MAP,
    "mobilenet_v2": MAP,
    "lstm_words": VMAP,
    "lstm_chars": VMAP,
}


def accelerator_map(name: str) -> str:
    """The client map that suits this model on a GPU or TPU, by its name in `client_map`.

    Under vmap the convolutions of clients with kernels of their own become one grouped convolution, which compilers for
    a TPU v5e predict to take 1.5 to 2 times as long as one client after the other. A client of `resnet18` or
    `mobilenet_v2` fills such a device alone; of the CNN it takes a few at once, and matrix products take any number.
    """
    return ACCELERATOR_MAP[name]


def make_model(name: str, dataset: str, input_shape: Sequence[int], num_classes: int) -> Model:
    """The network `name` for examples of `input_shape`.

    Args:
      name: one of `MODELS`.
      dataset: whose constants (`NORMALIZATION`) images are normalised with; a set without any is taken as it is.
      input_shape: of one example: [H, W, C] of an image, [D] features, or [L] tokens.
      num_classes: labels, or words of the vocabulary.
    """
    if name not in MODELS:
        raise ValueError(f"model={name!r} is not known; choose one of {sorted(MODELS)}")
    for field, numbers in (("input_shape", tuple(input_shape)), ("num_classes", (num_classes,))):
        if not numbers or not all(isinstance(n, int | np.integer) and n >= 1 for n in numbers):
            given = numbers if field == "input_shape" else num_classes
            raise ValueError(f"model={name}: {field}={given} is not valid; give whole numbers from 1")
    if name in OF_TOKENS:
        return OF_TOKENS[name](input_shape, num_classes)
    return OF_VALUES[name](input_shape, num_classes, normalization=NORMALIZATION.get(dataset, IDENTITY))


__all__ = [
    "MODELS", "NORMALIZATION", "OF_TOKENS", "OF_VALUES", "accelerator_map", "cnn", "cnn_deep", "cnn_narrow",
    "cnn_shallow", "cnn_wide", "logistic", "lstm_chars", "lstm_words", "make_model", "mlp", "mobilenet_v2", "resnet18",
]  # fmt: skip
