"""Rules that turn what the server knows of a cohort into weights, and measures of its losses.

Maths on arrays [n]; a caller maps them over runs. Every rule returns p with p_i >= 0, sum p = 1 (less only under a
cap P with n P < 1).
"""

from collections.abc import Callable
from typing import Literal, NamedTuple

import chex
import jax
import jax.numpy as jnp

from fedeba_jax.hyperparameters import Positive, check, checked
from fedeba_jax.solvers import entropy_temperature
from fedeba_jax.types import Scalar


def uniform(num_clients: int) -> jax.Array:
    return jnp.full((num_clients,), 1.0 / num_clients)


def by_examples(num_examples: jax.Array, cap: Scalar | None = None) -> jax.Array:
    """p_i = N_i / sum_j N_j: FedAvg's weights, uniform where all clients hold equally much; capped if so asked."""
    chex.assert_rank(num_examples, 1)
    share = jnp.asarray(num_examples, jnp.result_type(float))
    share = share / share.sum()
    return share if cap is None else capped(share, jnp.log(share), cap)


class Solved(NamedTuple):
    """A temperature that follows from the losses; see `solve`."""

    target: Scalar
    of: str

    def temperature(self, losses: jax.Array, prior: jax.Array) -> jax.Array:
        targets = {
            "mean": lambda: self.target * jnp.vdot(prior, losses),
            "quantile": lambda: jnp.quantile(losses, jnp.minimum(self.target, 1)),
        }
        return entropy_temperature(losses, targets[self.of](), prior)


Of = Literal["mean", "quantile"]


@checked
def solve(target: Positive, of: Of = "mean") -> Solved:
    """tau by the paper's own constraint, sum_i p_i F_i = f~, anew for each vector of losses.

    Args:
      target: f~: this factor times the mean loss (under the prior), or this quantile of the losses, at most 1.
      of: which of the two. A target at or below the mean loss gives FedAvg's weights, one that no mixture
        reaches the worst client alone.
    """
    check("of", of, Of)
    if of == "quantile" and not isinstance(target, jax.core.Tracer) and target > 1:
        raise ValueError(f"solve: target={target} is no quantile; give a number in (0, 1], or of=mean")
    return Solved(target, of)


RULES: dict[str, dict[str, Callable[..., Solved]]] = {"temperature": {"solve": solve}}
"""What may stand for a number, by the kind of the number."""


def entropy_based(
    losses: jax.Array, tau: Scalar | Solved, prior: jax.Array | None = None, cap: Scalar | None = None
) -> jax.Array:
    """p_i = q_i exp(F_i / tau) / sum_j q_j exp(F_j / tau), the paper's closed form (Prop. 4.1).

    The maximiser of the entropy of p (relative to the prior q, uniform by default) under
    sum p_i F_i = f~. tau -> infinity gives the prior (FedAvg), tau -> 0 the worst client.

    Args:
      losses: F_i, [n].
      tau: temperature, positive, or the rule that finds it.
      prior: q_i, [n], non-negative; for instance `by_examples`.
      cap: P, one more constraint p_i <= P of the same maximisation (`capped`).
    """
    chex.assert_rank(losses, 1)
    if isinstance(tau, Solved):
        tau = tau.temperature(losses, uniform(losses.size).astype(losses.dtype) if prior is None else prior)
    logits = scaled(losses, lambda loss: loss / tau, prior)
    p = softmax(logits, prior)
    return p if cap is None else capped(p, logits + (0 if prior is None else jnp.log(prior)), cap)


def scaled(losses: jax.Array, scale: Callable[[jax.Array], jax.Array], prior: jax.Array | None = None) -> jax.Array:
    """Logits scale(F), scale linear; where they are too large to subtract, of F less its extreme: the same softmax.

    Args:
      losses: F_i, [n].
      scale: the product with a number.
      prior: q_i, [n]; who has none does not count.
    """
    logits, counts = scale(losses), True if prior is None else prior > 0
    largest, smallest = jnp.where(counts, losses, -jnp.inf).max(), jnp.where(counts, losses, jnp.inf).min()
    top = jnp.where(scale(jnp.ones_like(largest)) > 0, largest, smallest)
    return jnp.where(jnp.abs(logits).max() < 1e6, logits, jnp.where(counts, scale(losses - top), -jnp.inf))


def normalised(values: jax.Array, otherwise: jax.Array) -> jax.Array:
    """values / sum(values), or `otherwise` where the sum of the (non-negative) values is 0."""
    total = values.sum()
    return jnp.where(total > 0, values / jnp.where(total > 0, total, 1), otherwise)


def entropy_cap(num_clients: int, tau: Scalar, loss_clip: Scalar) -> jax.Array:
    """e^{B/tau} / (n - 1 + e^{B/tau}): the most that `entropy_based` gives one of n clients with losses in [0, B]."""
    others = jnp.log(jnp.asarray(num_clients - 1, jnp.result_type(float)))
    return jax.nn.sigmoid(loss_clip / tau - others)


def capped(p: jax.Array, logits: jax.Array, cap: Scalar) -> jax.Array:
    """min(P, nu e^logit_i) with nu such that they sum to 1: p = softmax(logits), its excess over P dealt to the rest.

    Exactly p where nobody exceeds P. Where n P < 1 everybody gets P, and the sum stays below 1. When one client's
    logit changes, or the client goes, all others' weights move the same way, by no more than its own in total.

    Args:
      p: softmax(logits), [n].
      logits: [n]; -inf is weight 0.
      cap: P, positive.
    """
    size = p.shape[0]
    order = jnp.argsort(-logits)
    tail = jax.lax.cumlogsumexp(logits[order], reverse=True)  # of the k-th largest logit and all smaller ones
    tail = jnp.where(jnp.isneginf(tail), 0.0, tail)  # nobody there: shares e^{-inf - 0} of 0
    share = jnp.exp(logits[order] - tail)  # of the k-th, in what its tail gets
    k = jnp.arange(size)
    left = jnp.maximum(1 - k * cap, 0.0)  # for the tail, if all before it get P
    fits = left * share <= cap * (1 + 1e-5)  # the slack: with n P = 1 this is an equality
    first = jnp.argmax(fits)
    dealt = left[first] * jnp.exp(logits[order] - tail[first])
    filled = jnp.where((k < first) | ~fits.any(), cap, jnp.minimum(dealt, cap))
    return jnp.where(p.max() <= cap, p, jnp.zeros_like(p).at[order].set(filled.astype(p.dtype)))


def is_open(angle: jax.Array, theta: Scalar, *, blind: bool = False) -> jax.Array:
    """The fairness gate: whether the angle of the losses is above theta degrees (Algorithm 1, line 7).

    A blind gate does not look at the losses, of which one client could change the angle and with it every weight:
    it is open for theta below 90 and closed from there.
    """
    return jnp.asarray(theta) < 90 if blind else angle > theta


def fairness_angle(losses: jax.Array) -> jax.Array:
    """Angle in degrees between the loss vector L and the all-ones vector (Algorithm 1, line 7).

    arccos(<L, 1> / (|L| |1|)) = atan2(|L - mean L|, |mean L| sqrt n); the second form is accurate
    near zero, where a float32 arccos is off by 0.03 degrees. Differences from L[0] come first, so
    equal losses give exactly 0. Losses are not negative, so the angle is below 90.
    """
    chex.assert_rank(losses, 1)
    difference = losses - losses[0]
    spread = jnp.linalg.norm(difference - difference.mean())
    mean = jnp.abs(losses.mean()) * jnp.sqrt(jnp.asarray(losses.size, losses.dtype))
    return jnp.degrees(jnp.arctan2(spread, mean))


def entropy(weights: jax.Array) -> jax.Array:
    """-sum p log p in nats, with 0 log 0 = 0."""
    return jax.scipy.special.entr(weights).sum()


def softmax(logits: jax.Array, prior: jax.Array | None = None) -> jax.Array:
    """q_i exp(logit_i) / sum_j q_j exp(logit_j); the prior q is uniform by default."""
    return jax.nn.softmax(logits if prior is None else logits + jnp.log(prior))
