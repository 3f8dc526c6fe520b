"""Networks by name: `make_model` gives the `Model` that a data set is trained with.

`mlp` is for 28x28 grey images (MNIST, Fashion-MNIST), `cnn` for 32x32 colour ones (CIFAR).
"""

from collections.abc import Callable, Sequence

from fedeba_jax.models.networks import cnn, mlp
from fedeba_jax.models.normalization import NORMALIZATION
from fedeba_jax.types import Model

MODELS: dict[str, Callable[..., Model]] = {"mlp": mlp, "cnn": cnn}


def make_model(name: str, dataset: str, input_shape: Sequence[int], num_classes: int) -> Model:
    """The network `name` for images of `input_shape` [H, W, C], normalised with the data set's constants."""
    if name not in MODELS:
        raise ValueError(f"model={name!r} is not known; choose one of {sorted(MODELS)}")
    if dataset not in NORMALIZATION:
        known = sorted(NORMALIZATION)
        raise ValueError(f"dataset={dataset!r} has no normalisation; add it to NORMALIZATION, which has {known}")
    mean, std = NORMALIZATION[dataset]
    return MODELS[name](input_shape, num_classes, mean=mean, std=std)


__all__ = ["MODELS", "NORMALIZATION", "cnn", "make_model", "mlp"]
