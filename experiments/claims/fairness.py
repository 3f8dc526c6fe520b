"""Theorem 5.4 (section 5.2, appendices I.2 and I.3): is FedEBA+'s variance below FedAvg's? Random federations tell.

A setting draws a federation and says which models FedAvg and FedEBA end up with. What is counted is the share of
federations in which the variance of test losses is smaller for FedEBA: by Definition 3.1, and in the form of the proof
of I.2, in which FedEBA's clients count by their weights. alpha = 0, as in the proofs.
"""

import functools
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from experiments.claims.clients import Clients, round_of, variance, weighted_variance
from fedeba_jax import weights
from fedeba_jax.types import Key, Scalar

TAUS = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0)
SPREADS = (0.1, 0.3, 1.0, 3.0, 10.0)
CLIENTS, DIMENSION = 10, 5
EXAMPLES, NOISE = 50, 1.0  # of a client's regression
STEPS, RATE, ROUNDS = 10, 0.05, 200  # of training in rounds
STEEP, LOST = 10.0, 1.0  # curvature of the outlier, and its loss at its own optimum


class Outcome(NamedTuple):
    """The models of both methods, FedEBA's weights, and the clients that they are tested on."""

    average: jax.Array
    fair: jax.Array
    p: jax.Array
    clients: Clients


class Setting(NamedTuple):
    """A kind of federation."""

    title: str
    about: str
    draw: Callable[[Key, Scalar, Scalar], Outcome]  # of a key, the spread and tau


def regression(key: Key, spread: Scalar, tau: Scalar, *, broadcast: bool) -> Outcome:
    """Linear regression (I.2): c_i ~ N(0, spread^2 I), estimated from n examples with noise; clients train to the end.

    The residuals of least squares are sigma^2 chi^2_{n - d}, independent of the estimates N(c_i, sigma^2 / n I).
    """
    for_truth, for_estimate, for_rest = jax.random.split(key, 3)
    truth = spread * jax.random.normal(for_truth, (CLIENTS, DIMENSION))
    estimate = truth + NOISE / EXAMPLES**0.5 * jax.random.normal(for_estimate, truth.shape)
    rest = 2 * jax.random.gamma(for_rest, (EXAMPLES - DIMENSION) / 2, (CLIENTS,))  # chi^2
    one = jnp.ones(CLIENTS)
    training = Clients(one, estimate, NOISE**2 * rest / (2 * EXAMPLES))
    average = estimate.mean(axis=0)
    losses = training.losses(average) if broadcast else training.floor
    p = weights.entropy_based(losses, tau)
    return Outcome(average, p @ estimate, p, Clients(one, truth, NOISE**2 / 2 * one))


def any_convex(key: Key, spread: Scalar) -> Clients:
    """Strongly convex clients without an outlier: curvatures within a factor of ten, losses of 0 to 1 that stay."""
    for_centre, for_curvature, for_floor = jax.random.split(key, 3)
    curvature = 10 ** jax.random.uniform(for_curvature, (CLIENTS,), minval=-0.5, maxval=0.5)
    centre = spread * jax.random.normal(for_centre, (CLIENTS, DIMENSION))
    return Clients(curvature, centre, jax.random.uniform(for_floor, (CLIENTS,)))


def at_optima(clients: Clients, tau: Scalar) -> Outcome:
    """Clients train to the end, and are averaged once: x = sum_i p_i c_i with p_i ~ exp(a_i / tau), as in I.3."""
    p = weights.entropy_based(clients.floor, tau)
    return Outcome(clients.centre.mean(axis=0), p @ clients.centre, p, clients)


def convex(key: Key, spread: Scalar, tau: Scalar) -> Outcome:
    return at_optima(any_convex(key, spread), tau)


def outlier(key: Key, spread: Scalar, tau: Scalar) -> Outcome:
    """As I.3 assumes: one client is steep, keeps a loss, and is `spread` away from the others, whose loss goes to 0."""
    for_others, for_away = jax.random.split(key)
    others = spread / 10 * jax.random.normal(for_others, (CLIENTS - 1, DIMENSION))
    away = jax.random.normal(for_away, (DIMENSION,))
    centre = jnp.concatenate([others, spread * (away / jnp.linalg.norm(away))[None]])
    last = jnp.arange(CLIENTS) == CLIENTS - 1
    return at_optima(Clients(jnp.where(last, STEEP, 1.0), centre, jnp.where(last, LOST, 0.0)), tau)


def in_rounds(key: Key, spread: Scalar, tau: Scalar) -> Outcome:
    """The algorithm itself: many rounds of K steps, weights by the losses after them (Algorithm 1, line 15)."""
    clients = any_convex(key, spread)

    def trained(tau: Scalar | None) -> jax.Array:
        def step(x: jax.Array, _: None) -> tuple[jax.Array, None]:
            return round_of(clients, x, tau, STEPS, RATE), None

        return jax.lax.scan(step, jnp.zeros(DIMENSION), None, length=ROUNDS)[0]

    fair = trained(tau)
    p = weights.entropy_based(clients.own_losses(clients.trained(fair, STEPS, RATE)), tau)
    return Outcome(trained(None), fair, p, clients)


SETTINGS = {
    "regression": Setting(
        "regression, losses after training",
        "weights by F_i(x_i), the losses of the trained models, as Algorithm 1 has it: here they are noise",
        functools.partial(regression, broadcast=False),
    ),
    "regression_broadcast": Setting(
        "regression, losses of the mean model",
        "weights by F_i at FedAvg's model: the larger the distance, the larger the weight, as the proof of I.2 has it",
        functools.partial(regression, broadcast=True),
    ),
    "outlier": Setting("strongly convex, one outlier", "the federations that the proof of I.3 assumes", outlier),
    "convex": Setting("strongly convex, any", "curvatures and remaining losses at random", convex),
    "rounds": Setting(
        "strongly convex, in rounds", f"{ROUNDS} rounds of {STEPS} steps from 0, FedEBA against FedAvg", in_rounds
    ),
}


class Map(NamedTuple):
    """Shares over spreads (rows) and temperatures (columns), and how much smaller or larger the variance is."""

    definition: np.ndarray  # share with var(FedEBA) < var(FedAvg), Definition 3.1
    proof: np.ndarray  # the same with FedEBA's variance weighted by p
    ratio: np.ndarray  # median of var(FedEBA) / var(FedAvg), Definition 3.1


def fairness_map(
    setting: Setting, key: Key, federations: int, spreads: tuple[float, ...], taus: tuple[float, ...]
) -> Map:
    """The map of one setting; every cell sees the same draws."""

    def one(key: Key, spread: jax.Array, tau: jax.Array) -> jax.Array:
        average, fair, p, clients = setting.draw(key, spread, tau)
        losses = clients.losses(fair)
        return jnp.stack([variance(clients.losses(average)), variance(losses), weighted_variance(losses, p)])

    over_taus = jax.vmap(one, (None, None, 0))
    over_spreads = jax.vmap(over_taus, (None, 0, None))
    keys = jax.random.split(key, federations)
    found = jax.jit(lambda keys: jax.lax.map(lambda k: over_spreads(k, jnp.array(spreads), jnp.array(taus)), keys))(
        keys
    )
    average, fair, of_proof = np.moveaxis(np.asarray(found), -1, 0)
    return Map((fair < average).mean(axis=0), (of_proof < average).mean(axis=0), np.median(fair / average, axis=0))


def two_equal_clients(tau: float) -> dict[str, float]:
    """The case that the proof of I.2 writes out, m = 2 with b_1 = b_2: FedAvg's model is as far from both clients.

    Its variance is 0, which no other weights reach.
    """
    pair = Clients(jnp.ones(2), jnp.array([[0.0], [1.0]]), jnp.array([0.0, 0.1]))
    p = weights.entropy_based(pair.floor, tau)
    tested = pair._replace(floor=jnp.zeros(2))
    average, fair = tested.losses(pair.centre.mean(axis=0)), tested.losses(p @ pair.centre)
    return {
        "fedavg": float(variance(average)),
        "fedeba": float(variance(fair)),
        "fedeba_by_the_proof": float(weighted_variance(fair, p)),
    }


def three_values() -> dict[str, float]:
    """The step of I.2 that "can be easily extended": var_p(A) <= var(A) for p that grows with A fails for m = 3."""
    values, p = jnp.array([1.0, 0.0, 0.0]), jnp.array([0.5, 0.25, 0.25])
    return {"uniform": float(variance(values)), "weighted": float(weighted_variance(values, p))}
