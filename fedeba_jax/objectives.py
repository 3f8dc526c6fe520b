"""What clients minimise: functions from a model to an `Objective`, and functions of its value."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import optax

from fedeba_jax.types import Batch, Key, Model, Objective, Params, Scalar


def masked_mean(values: jax.Array, mask: jax.Array) -> jax.Array:
    """Mean over the entries with mask 1; 0 if there are none."""
    return jnp.vdot(values, mask) / jnp.maximum(mask.sum(), 1)


def cross_entropy(model: Model) -> Objective:
    """Mean cross-entropy of the model's logits."""

    def objective(params: Params, batch: Batch, key: Key, round_: jax.Array, train: bool) -> jax.Array:
        del key, round_, train
        logits = model.apply(params, batch.x)
        losses = optax.softmax_cross_entropy_with_integer_labels(logits, batch.y)
        return masked_mean(losses, batch.mask.astype(losses.dtype))

    return objective


def proportional(loss: jax.Array, M: Scalar, eps: Scalar, *, huber: bool = False) -> jax.Array:
    """T(l) = -log(1 - l/M) while M - l >= eps: PropFair's cost of a loss l (slope 1 / (M - l)).

    Beyond it l/M (slope 1/M), as in the authors' code; with `huber` l/eps (slope 1/eps), the paper's
    continuation up to a constant. T jumps at the switch; only its slope matters.
    """
    room = M - loss
    inside = room >= eps
    log = -jnp.log(jnp.where(inside, room, M) / M)  # the inner where keeps log's slope finite beyond the switch
    return jnp.where(inside, log, loss / (eps if huber else M))


OBJECTIVES: dict[str, Callable[..., Objective]] = {
    "cross_entropy": cross_entropy,
}
"""Objectives by name; a factory takes the model, then its own parameters."""
