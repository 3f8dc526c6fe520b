"""What clients minimise: functions from a model to an `Objective`."""

import math
from collections.abc import Callable
from typing import Literal

import jax
import jax.numpy as jnp
import optax

from fedeba_jax.augment import Views, batch_view
from fedeba_jax.examples import counting, cross_entropies
from fedeba_jax.hyperparameters import Fraction, NonNegative, Positive, check, checked
from fedeba_jax.types import Batch, Key, Model, Objective, Params, Scalar

Mode = Literal["paper", "reference"]


def masked_mean(values: jax.Array, mask: jax.Array) -> jax.Array:
    """Mean over the entries with mask 1; 0 if there are none."""
    return jnp.vdot(values, mask) / jnp.maximum(mask.sum(), 1)


def cross_entropy(model: Model) -> Objective:
    """Mean cross-entropy of the model's logits, over all targets that count."""

    def objective(params: Params, batch: Batch, key: Key, round_: jax.Array, train: bool) -> jax.Array:
        del key, round_, train
        logits = model.apply(params, batch.x)
        losses = cross_entropies(logits, batch.y)
        return masked_mean(losses, counting(batch.y, batch.mask).astype(losses.dtype))

    return objective


@checked
def lsr(
    model: Model,
    rounds: int,
    *,
    gamma: NonNegative = 0.4,
    sharpening: Positive = 0.5,
    distillation: Positive = 1 / 3,
    warmup: Fraction = 0.2,
    entropy: NonNegative | None = None,
    mode: Mode = "paper",
    views: Views = "auto",
    per_batch: bool = False,
) -> Objective:
    """Local self-regularisation (Jiang et al. 2022), the paper's loss F^r under label noise (`robust_losses`).

    F^r = F_cls + gamma min(1, t / (warmup T)) F_reg of the logits of a batch and of a random view of it, mixed
    with one lambda ~ U(0, 1) a batch. F_i over all of a client's data, which weighs clients, and its gradient
    (`train` false) take lambda = 1/2 and always the same views: functions of the model and the round.

    Args:
      model: the network.
      rounds: T.
      gamma: weight of the self-distillation.
      sharpening: temperature T_s of the mixed prediction.
      distillation: temperature T_d of the two predictions.
      warmup: share of the rounds in which gamma grows from 0.
      entropy: weight lambda_e of the entropy term; none is 0 in mode "paper" and 0.6 in mode "reference".
      mode: "paper", or "reference" for the loss of FedLSR's published notebook.
      views: "rotated", "recoloured" or "same"; "auto" goes by the images' channels (`augment.batch_view`).
      per_batch: one draw of the view for the whole batch, as in the notebook, instead of one per image.
    """
    check("mode", mode, Mode)
    check("views", views, Views)
    if entropy is None and mode == "reference":
        entropy = 0.6

    def objective(params: Params, batch: Batch, key: Key, round_: jax.Array, train: bool) -> jax.Array:
        if batch.y.ndim > 1:
            raise ValueError("objective=lsr takes one label for each example, and these have sequences of targets")
        mix_key, view_key = jax.random.split(key if train else jax.random.key(0))
        mix = jax.random.uniform(mix_key) if train else 0.5
        view = batch_view(view_key, batch.x, views, per_batch)
        logits, view_logits = jnp.split(model.apply(params, jnp.concatenate([batch.x, view])), 2)
        grown = jnp.where(round_ < warmup * rounds, round_ / jnp.maximum(warmup * rounds, 1e-6), 1)
        losses = robust_losses(
            logits, view_logits, batch.y, mix,
            gamma=gamma * grown, sharpening=sharpening, distillation=distillation, entropy=entropy, mode=mode,
        )  # fmt: skip
        return masked_mean(losses, batch.mask.astype(losses.dtype))

    return objective


def robust_losses(
    logits: jax.Array,
    view_logits: jax.Array,
    y: jax.Array,
    mix: Scalar,
    *,
    gamma: Scalar,
    sharpening: Scalar,
    distillation: Scalar,
    entropy: Scalar | None,
    mode: Mode,
) -> jax.Array:
    """LSR's losses [B] from the logits [B, classes] of examples and of their views.

    p = lambda softmax(z) + (1 - lambda) softmax(z'),  p_s = p^(1/T_s) / sum p^(1/T_s),  q = softmax(z / T_d),
    F_cls = -log p_s[y],  F_reg = JS(q, q') = (KL(q | U) + KL(q' | U)) / 2 with U = (q + q') / 2.

    Notes:
      Mode "reference" is the published notebook: F_cls takes p_s for logits, so a second softmax makes it a
      bounded loss; F_reg is divided by the number of classes and its q are at least 1e-6; the entropy of
      softmax(q) is added (of q alone, for both). Otherwise that entropy is added only where asked for.
    """
    mix = jnp.asarray(mix, logits.dtype)
    log_p1, log_p2 = jax.nn.log_softmax(logits), jax.nn.log_softmax(view_logits)
    log_p = jnp.logaddexp(jnp.log(mix) + log_p1, jnp.log1p(-mix) + log_p2)
    sharpened = log_p / sharpening  # logits of p_s: p^2 itself underflows
    # softmax(z / T_d), from log p: compiled, z / T_d less its maximum can come out positive for z beyond 1e9
    log_q, view_log_q = jax.nn.log_softmax(log_p1 / distillation), jax.nn.log_softmax(log_p2 / distillation)
    if mode == "reference":
        sharpened = jax.nn.softmax(sharpened)
        log_q, view_log_q = (jnp.maximum(q, math.log(1e-6)) for q in (log_q, view_log_q))
        gamma = gamma / logits.shape[-1]
    losses = optax.softmax_cross_entropy_with_integer_labels(sharpened, y)
    losses += gamma * jensen_shannon(log_q, view_log_q)
    if entropy is not None:
        again = jax.nn.log_softmax(jnp.exp(log_q))
        losses -= entropy * (jnp.exp(again) * again).sum(-1)
    return losses


def jensen_shannon(log_p: jax.Array, log_q: jax.Array) -> jax.Array:
    """Divergence of distributions given by logarithms over the last axis; in [0, ln 2]."""
    log_mean = jnp.logaddexp(log_p, log_q) - math.log(2)
    terms = jnp.exp(log_p) * (log_p - log_mean) + jnp.exp(log_q) * (log_q - log_mean)
    return terms.sum(-1) / 2


OBJECTIVES: dict[str, Callable[..., Objective]] = {
    "cross_entropy": cross_entropy,
    "lsr": lsr,
}
"""Objectives by name; a factory takes the model (and T, if it asks for `rounds`), then its own parameters."""
