"""Flax modules as `Model`s: those that take values (images, features), and those that take tokens."""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
from flax import linen as nn

from fedeba_jax.models.layers import along_channels
from fedeba_jax.models.normalization import IDENTITY, Normalization
from fedeba_jax.types import Key, Model, Params


def of_values(module: nn.Module, input_shape: Sequence[int], normalization: Normalization = IDENTITY) -> Model:
    """A model of images in [0, 1] or of features, normalised by channel.

    Parameters start in the default float type (float64 under `jax_enable_x64`); `apply` follows theirs.
    """

    def init(key: Key) -> Params:
        return _parameters(module, key, jnp.zeros((1, *input_shape), jnp.result_type(float)))

    def apply(params: Params, x: jax.Array) -> jax.Array:
        if not jnp.issubdtype(x.dtype, jnp.floating):
            raise ValueError(f"x has dtype {x.dtype}, but this model takes floats; for tokens choose an lstm model")
        dtype = jax.tree.leaves(params)[0].dtype
        mean, std = (along_channels(jnp.asarray(a, dtype), x.ndim) for a in normalization)
        return _logits(module, params, (x.astype(dtype) - mean) / std)

    return Model(init, apply)


def of_tokens(module: nn.Module, input_shape: Sequence[int]) -> Model:
    """A model of sequences of tokens, which are numbers of words: they are looked up, never cast or normalised."""

    def init(key: Key) -> Params:
        return _parameters(module, key, jnp.zeros((1, *input_shape), jnp.int32))

    def apply(params: Params, x: jax.Array) -> jax.Array:
        if not jnp.issubdtype(x.dtype, jnp.integer):
            raise ValueError(f"x has dtype {x.dtype}, but this model takes tokens (int32); choose a model of images")
        return _logits(module, params, x)

    return Model(init, apply)


def check_images(name: str, input_shape: Sequence[int], least: int = 1) -> None:
    """An error unless examples are images [H, W, C] of at least this height and width."""
    if len(input_shape) != 3 or min(input_shape[:2]) < least:
        raise ValueError(
            f"model={name} takes images [H, W, C] of at least {least}x{least}, but examples have shape "
            f"{tuple(input_shape)}; choose another --model"
        )


def check_tokens(name: str, input_shape: Sequence[int]) -> None:
    """An error unless examples are sequences of tokens [L]."""
    if len(input_shape) != 1:
        raise ValueError(
            f"model={name} takes sequences of tokens [L], but examples have shape {tuple(input_shape)}; "
            "choose another --model"
        )


def _parameters(module: nn.Module, key: Key, x: jax.Array) -> Params:
    return jax.jit(module.init)(key, x)["params"]  # compiled, the forward pass that shapes it is dead code


def _logits(module: nn.Module, params: Params, x: jax.Array) -> jax.Array:
    logits = module.apply({"params": params}, x)
    assert isinstance(logits, jax.Array)
    return logits
