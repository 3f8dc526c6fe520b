"""Differential privacy: clips, Gaussian noise, and where a run puts them.

A mode is a pair of functions: what it makes of local training, and what it makes of the server. Algorithms do not know
of modes; `fedeba_jax.method` declares which of them an algorithm goes with.
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
from fedeba_jax.batching import gather
from fedeba_jax.hyperparameters import Bounds, NonNegative, checked
from fedeba_jax.types import Batch, Client, Key, Params, Scalar
from fedeba_jax.weights import Solved, entropy_cap

KEY = 3 * 2**30
"""Folded into a client's key, and the server's, for what privacy draws."""

Clip = Annotated[Scalar, Bounds(0, open=True, unlimited=True)]
Cap = Annotated[Scalar, Bounds(1, unlimited=True)]
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
    """Bounds, fixed beforehand, of what clients report and of what each may weigh in the server's sum.

    |delta| <= clip, losses in [0, loss_clip], and no weight above weight_cap / n.
    """

    clip: Scalar
    loss_clip: Scalar
    weight_cap: Scalar

    def delta(self, delta: Params) -> Params:
        return clip(delta, self.clip)

    def loss(self, loss: jax.Array) -> jax.Array:
        return jnp.clip(jnp.nan_to_num(loss, nan=self.loss_clip, posinf=self.loss_clip), 0.0, self.loss_clip)

    def most_weight(self, num_clients: int, tau: Scalar | Solved | None = None) -> jax.Array:
        """P, the most that one of n clients may weigh: kappa / n, and by entropy at tau no more than losses allow."""
        if isinstance(tau, Solved):
            raise ValueError("a solved temperature depends on all losses, so no largest weight is known; give a number")
        fixed = jnp.minimum(self.weight_cap / num_clients, 1.0)
        return fixed if tau is None else jnp.minimum(fixed, entropy_cap(num_clients, tau, self.loss_clip))


def sensitivity(clip: Scalar, most: Scalar) -> Scalar:
    """2 P C: how far one client, replaced or removed, moves sum_i p_i Delta_i, p_i <= P fixed and |Delta_i| <= C.

    Replacing a client moves its own term by at most (p_k + p_k') C, and all others' weights the same way, by
    |p_k - p_k'| in total (`weights.capped`): together 2 max(p_k, p_k') C.
    """
    return 2 * most * clip


# DP-SGD.


def private_keys(client: Client, k: Any) -> jax.Array:
    """Keys of a private step: of its sample, its noise and its objective."""
    return jax.random.split(jax.random.fold_in(jax.random.fold_in(client.key, KEY), k), 3)


def poisson_sample(client: Client, k: Any, batch_size: int | None) -> jax.Array:
    """Which of the client's examples step k of private training takes, [C]: each with probability B / N_i."""
    count, capacity = client.data.num_examples, client.data.capacity
    draws = jax.random.uniform(private_keys(client, k)[0], (capacity,))
    return (draws * count < _expected(count, batch_size)) & (jnp.arange(capacity) < count)


def private_gradient(
    rule: PerExample,
    client: Client,
    k: jax.Array,
    gradient: Callable[[Batch, Key], Params],
    like: Params,
    batch_size: int | None,
    block: int,
) -> Params:
    """(sum_j clip(grad_j) + noise) / L over a Poisson sample of whatever size, L its expectation.

    The sample is worked off in chunks of B, as many as it needs, so no sample is ever cut short.

    Args:
      rule: clip and noise.
      client: whose data and key.
      k: the number of the step.
      gradient: of a batch with one example.
      like: a tree of the gradient's shape.
      batch_size: B; None takes every example, `block` at a time.
      block: the most examples of a chunk where there is no B.
    """
    count, capacity = client.data.num_examples, client.data.capacity
    chosen = poisson_sample(client, k, batch_size)
    order = jnp.argsort(~chosen)  # the chosen first
    size = min(batch_size or block, capacity)
    _, noise_key, objective_key = private_keys(client, k)

    def clipped(x: jax.Array, y: jax.Array, mask: jax.Array, position: jax.Array) -> Params:
        alone = Batch(x[None], y[None], jnp.ones_like(mask)[None])
        return tree.scale(mask, rule.clipped(gradient(alone, jax.random.fold_in(objective_key, position))))

    def add(b: jax.Array, total: Params) -> Params:
        place = b * size + jnp.arange(size)
        position = order[jnp.minimum(place, capacity - 1)]
        batch = gather(client.data, position, place < chosen.sum())
        chunk = jax.vmap(clipped)(batch.x, batch.y, batch.mask, position)
        return jax.tree.map(lambda t, g: t + g.sum(0), total, chunk)

    total = jax.lax.fori_loop(0, -(-chosen.sum() // size), add, tree.zeros_like(like))
    expected = jnp.maximum(_expected(count, batch_size), 1)
    return tree.scale(1.0 / expected, rule.noised(noise_key, total))


def _expected(num_examples: jax.Array, batch_size: int | None) -> jax.Array:
    return num_examples if batch_size is None else jnp.minimum(batch_size, num_examples)


# Modes.


def _unchanged(value: Any) -> Any:
    return value


class Privacy(NamedTuple):
    """A mode: what it makes of an algorithm's two collaborators."""

    mode: str = "none"
    local: Callable[[Any], Any] = _unchanged  # LocalTraining -> LocalTraining
    server: Callable[[Any], Any] = _unchanged  # Server -> Server


def none() -> Privacy:
    """No clip, no noise."""
    return Privacy()


@checked
def paper(sigma: NonNegative, clip: Clip = 1.0) -> Privacy:
    """z min(1, C/|z|) + N(0, (sigma C / L)^2): g~ with the gate open, the averaged first step with it closed.

    Notes:
      The paper gives neither C nor a delta, clips no example's gradient and counts no releases: this is noise
      injection, and no (epsilon, delta) can be claimed.

    Args:
      sigma: the paper's sigma_2, 0, 2, 5, 10 or 50.
      clip: C.
    """

    def publish(vector: Params, cohort: Any, local: Any) -> Params:
        if local.batch_size is None:
            raise ValueError("privacy=paper divides its noise by the batch size; give one")
        scale = clip / jnp.asarray(local.batch_size)
        return add_noise(jax.random.fold_in(cohort.key, KEY), _clip(vector, clip), sigma, scale)

    return Privacy("paper", server=lambda server: server._replace(publish=publish))


@checked
def example(sigma: NonNegative, clip: Clip = 1.0, delta: Delta = 1e-5) -> Privacy:
    """A local step descends (sum_j clip(grad_j, C) + N(0, (sigma C)^2)) / L, j over a Poisson sample of rate L/N_i.

    Args:
      sigma: noise multiplier.
      clip: C, of each example's gradient.
      delta: of the epsilon that is reported; training does not depend on it.
    """
    del delta
    return Privacy("example", local=_with(per_example=PerExample(sigma, clip)))


@checked
def client(
    sigma: NonNegative,
    clip: Clip = 1.0,
    loss_clip: Clip = 2.3,
    weight_cap: Cap = 2.0,
    delta: Delta = 1e-3,
) -> Privacy:
    """sum_i p_i clip(Delta_i, C) + N(0, (sigma S)^2), p_i <= P, S = 2 P C: a cohort of n with one client replaced.

    P is 1/n for uniform weights, kappa/n for others, and for entropy-based ones no more than what losses in [0, B]
    make possible (`Limits.most_weight`); S is `sensitivity`.

    Args:
      sigma: noise multiplier.
      clip: C, of each client's update.
      loss_clip: B, fixed beforehand; 2.3 is the cross-entropy of guessing among ten classes.
      weight_cap: kappa; 1 is uniform weights.
      delta: of the epsilon that is reported; training does not depend on it.
    """
    del delta

    def noisy(server: Any) -> Any:
        def receive(
            state: Any, deltas: Params, weights: jax.Array, cohort: Any, local: Any, most: Scalar | None = None
        ) -> tuple[Any, Params]:
            if most is None:
                raise ValueError(f"privacy=client is not possible here: {REASONS['client']}")
            if cohort.is_attacked:
                raise ValueError(f"privacy=client with an attack is not possible: {ATTACKED}")
            state, total = server.receive(state, deltas, weights, cohort, local, most)
            return state, add_noise(jax.random.fold_in(cohort.key, KEY), total, sigma, sensitivity(clip, most))

        return server._replace(receive=receive)

    return Privacy("client", local=_with(limits=Limits(clip, loss_clip, weight_cap)), server=noisy)


def _with(**fields: Any) -> Callable[[Any], Any]:
    return lambda local: dataclasses.replace(local, **fields)


_clip = clip  # factories have a parameter of that name

REASONS = {
    "paper": "it perturbs FedEBA+'s alignment variable, which this method does not have (nor does the paper say what "
    "its FedAvg row perturbs, and those figures do not depend on the noise)",
    "example": "clients of this method send more than updates made of noised steps (losses, gradients of all their "
    "data), so no epsilon could be claimed",
    "client": "what one client can change, by weights without a known bound or by what clients are told within a round "
    "(a fair gradient, a gate), would not be hidden by noise in the aggregate",
}
"""Why a method may not take a mode."""

ATTACKED = (
    "a client clips what it sends itself, so an attacker sends what it likes, and the noise hides nobody; give one of "
    "the two"
)
"""Why mode `client` goes with no attack."""

MODES: dict[str, Callable[..., Privacy]] = {"none": none, "paper": paper, "example": example, "client": client}
"""Modes by name."""
