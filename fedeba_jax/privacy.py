"""Differential privacy: clips, Gaussian noise, and where a run puts them.

Modes, each a factory that makes the `Privacy` an algorithm takes:
  none     nothing;
  paper    noise on FedEBA+'s alignment variable, as its paper prints it. No guarantee of any kind;
  example  DP-SGD in the local steps (Abadi et al. 2016, "Deep Learning with Differential Privacy"): what a client
           sends hides each of its examples, from the server too;
  client   updates clipped, noise once in the server's sum (McMahan et al. 2018, "Learning Differentially Private
           Recurrent Language Models"): the models hide each client, from everybody but the server.

Notes:
  Noise is drawn in floating point; attacks on its low bits are not considered.
"""

import dataclasses
from collections.abc import Callable
from typing import Annotated, Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from fedeba_jax import tree
from fedeba_jax.types import Bounds, Key, NonNegative, Params, Positive, Scalar
from fedeba_jax.weights import entropy_cap

KEY = 3 * 2**30
"""Folded into a client's key, and the server's, for what privacy draws."""

Cap = Annotated[Scalar, Bounds(1)]
Delta = Annotated[Scalar, Bounds(0, 1, open=True)]


def clip(vector: Params, limit: Scalar) -> Params:
    """z min(1, limit / |z|), |z| over all leaves; 0 for a z that is not finite, which no clip could bound."""
    norm = optax.global_norm(vector)
    factor = jnp.minimum(1.0, limit / norm)
    return jax.tree.map(lambda z: jnp.where(jnp.isfinite(norm), factor.astype(z.dtype) * z, 0), vector)


def noise(key: Key, like: Params) -> Params:
    """N(0, I) in the shape of a tree; the same key gives the same noise."""
    leaves, structure = jax.tree.flatten(like)
    keys = jax.random.split(key, len(leaves))
    draws = [jax.random.normal(k, leaf.shape, leaf.dtype) for k, leaf in zip(keys, leaves, strict=True)]
    return jax.tree.unflatten(structure, draws)


def add_noise(key: Key, vector: Params, sigma: Scalar, sensitivity: Scalar) -> Params:
    """z + N(0, (sigma sensitivity)^2 I); sigma = 0 is exactly z, also where the sensitivity is infinite."""
    std = jnp.where(jnp.asarray(sigma) > 0, sigma * jnp.asarray(sensitivity), 0.0)
    return tree.add(vector, tree.scale(std, noise(key, vector)))


class PerExample(NamedTuple):
    """How `LocalTraining` makes a step private: each example's gradient clipped, noise on their sum."""

    sigma: Scalar
    clip: Scalar

    def clipped(self, gradient: Params) -> Params:
        return clip(gradient, self.clip)

    def noised(self, key: Key, total: Params) -> Params:
        return add_noise(key, total, self.sigma, self.clip)


class Limits(NamedTuple):
    """Bounds, fixed beforehand, of what `LocalTraining` reports: |delta| <= clip, losses in [0, loss_clip]."""

    clip: Scalar
    loss_clip: Scalar

    def delta(self, delta: Params) -> Params:
        return clip(delta, self.clip)

    def loss(self, loss: jax.Array) -> jax.Array:
        return jnp.clip(jnp.nan_to_num(loss, nan=self.loss_clip, posinf=self.loss_clip), 0.0, self.loss_clip)


def _as_it_is(key: Key, delta: Params, cap: Scalar | None, total: Scalar = 1.0) -> Params:
    return delta


class Privacy(NamedTuple):
    """What a run does for privacy, as hooks that do nothing by default.

    Attributes:
      mode: name of the mode.
      local: LocalTraining -> LocalTraining, what changes at the clients.
      alignment: (key, batch size) -> what is done to the alignment variable.
      cap: (clients of the cohort, temperature or None) -> the most that one of them may weigh; None: no bound.
      gate: (angle of the losses, theta) -> whether the fairness gate is open.
      noised: (key, delta, cap, total) -> the weighted sum delta as it is told. Its weights are a combination, with
        non-negative coefficients that add up to `total`, of rules that respect the cap.
    """

    mode: str = "none"
    local: Callable[[Any], Any] = lambda local: local
    alignment: Callable[[Key, int | None], Callable[[Params], Params]] = lambda key, batch_size: lambda z: z
    cap: Callable[..., Scalar | None] = lambda num_clients, tau=None: None
    gate: Callable[[jax.Array, Scalar], jax.Array] = lambda angle, theta: angle > theta
    noised: Callable[..., Params] = _as_it_is

    def only(self, *modes: str) -> None:
        """An error unless this is one of the modes that an algorithm can take, or none."""
        if self.mode not in ("none", *modes):
            raise ValueError(f"privacy={self.mode} is not possible here: {REASONS[self.mode]}")


REASONS = {
    "paper": "it perturbs FedEBA+'s alignment variable, which this method does not have (nor does the paper say what "
    "its FedAvg row perturbs, and those figures do not depend on the noise)",
    "example": "clients of this method send more than updates made of noised steps (losses, gradients of all their "
    "data), so no epsilon could be claimed",
    "client": "what one client can change, by weights without a known bound or by what clients are told within a round "
    "(a fair gradient, a gate), would not be hidden by noise in the aggregate",
}
"""Why a method may not take a mode."""

NONE = Privacy()


def none() -> Privacy:
    """No clip, no noise."""
    return NONE


def paper(sigma: NonNegative, clip: Positive = 1.0) -> Privacy:
    """z min(1, C/|z|) + N(0, (sigma C / L)^2): g~ with the gate open, the averaged first step with it closed.

    Notes:
      The paper gives neither C nor a delta, clips no example's gradient and counts no releases: this is noise
      injection, and no (epsilon, delta) can be claimed.

    Args:
      sigma: the paper's sigma_2, 0, 2, 5, 10 or 50.
      clip: C.
    """

    def alignment(key: Key, batch_size: int | None) -> Callable[[Params], Params]:
        if batch_size is None:
            raise ValueError("privacy=paper divides its noise by the batch size; give one")
        scale = clip / jnp.asarray(batch_size)
        return lambda z: add_noise(jax.random.fold_in(key, KEY), _clip(z, clip), sigma, scale)

    return Privacy("paper", alignment=alignment)


def example(sigma: NonNegative, clip: Positive = 1.0, delta: Delta = 1e-5) -> Privacy:
    """A local step descends (sum_j clip(grad_j, C) + N(0, (sigma C)^2)) / L, j over a Poisson sample of rate L/N_i.

    Args:
      sigma: noise multiplier.
      clip: C, of each example's gradient.
      delta: of the epsilon that is reported; training does not depend on it.
    """
    del delta
    return Privacy("example", local=_with(per_example=PerExample(sigma, clip)))


def client(
    sigma: NonNegative,
    clip: Positive = 1.0,
    loss_clip: Positive = 2.3,
    weight_cap: Cap = 2.0,
    delta: Delta = 1e-3,
) -> Privacy:
    """sum_i p_i clip(Delta_i, C) + N(0, (sigma S)^2), p_i <= P, S = 2 P C: a cohort of n with one client replaced.

    Replacing a client moves its own term by at most (p_k + p_k') C, and all others' weights the same way, by
    |p_k - p_k'| in total: S = 2 max(p_k, p_k') C. P is 1/n for uniform weights, kappa/n for others, and for
    entropy-based ones no more than what losses in [0, B] make possible. A gate that looks at losses could flip with
    one client and move every weight: it does not look, and is open for theta < 90 and closed from there.

    Args:
      sigma: noise multiplier.
      clip: C, of each client's update.
      loss_clip: B, fixed beforehand; 2.3 is the cross-entropy of guessing among ten classes.
      weight_cap: kappa; 1 is uniform weights.
      delta: of the epsilon that is reported; training does not depend on it.
    """
    del delta

    def cap(num_clients: int, tau: Scalar | None = None) -> jax.Array:
        fixed = jnp.minimum(weight_cap / num_clients, 1.0)
        return fixed if tau is None else jnp.minimum(fixed, entropy_cap(num_clients, tau, loss_clip))

    def noised(key: Key, delta: Params, cap: Scalar, total: Scalar = 1.0) -> Params:
        return add_noise(jax.random.fold_in(key, KEY), delta, sigma, sensitivity(clip, cap * total))

    return Privacy(
        "client",
        local=_with(limits=Limits(clip, loss_clip)),
        cap=cap,
        gate=lambda angle, theta: jnp.asarray(theta) < 90,
        noised=noised,
    )


def sensitivity(clip: Scalar, cap: Scalar) -> Scalar:
    """2 P C: how far one client, replaced or removed, moves sum_i p_i Delta_i, p_i <= P fixed and |Delta_i| <= C."""
    return 2 * cap * clip


def _with(**fields: Any) -> Callable[[Any], Any]:
    return lambda local: dataclasses.replace(local, **fields)


_clip = clip  # factories have a parameter of that name

MODES: dict[str, Callable[..., Privacy]] = {"none": none, "paper": paper, "example": example, "client": client}
"""Modes by name."""
