"""Theorem 5.1 (section 5.1, appendix H): the gradient of FedEBA+ with alpha = 0 falls as 1 / sqrt(T).

With eta_L = 1 / (sqrt(T) K L) and eta = sqrt(K m), as the theorem takes them, on strongly convex clients with noisy
gradients. Two gradients are measured: of the objective that the weights of the round make, sum_i p_i F_i, which is the
theorem's f, and of the mean loss f_avg = mean_i F_i, which FedAvg minimises.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from experiments.claims.clients import Clients
from experiments.claims.fairness import any_convex
from fedeba_jax import weights
from fedeba_jax.types import Key, Scalar

STEPS, NOISE, SPREAD = 10, 1.0, 1.0
TAUS = (0.3, 1.0, 10.0)


class Course(NamedTuple):
    """Smallest squared gradients over T rounds, the mean over federations: one row per tau, one column per T."""

    rounds: tuple[int, ...]
    taus: tuple[float, ...]
    own: np.ndarray  # of sum_i p_i F_i
    average: np.ndarray  # of mean_i F_i
    fedavg: np.ndarray  # [T] of mean_i F_i, trained by FedAvg

    def slopes(self, values: np.ndarray) -> np.ndarray:
        """d log(value) / d log(T), by least squares; the theorem says -1/2 or less."""
        return np.polyfit(np.log(self.rounds), np.log(values).T, 1)[0]


def smallest_gradients(clients: Clients, key: Key, rounds: int, tau: Scalar | None) -> jax.Array:
    """(min_t |sum p_i grad F_i|^2, min_t |mean grad F_i|^2) over T rounds."""
    size, dimension = clients.centre.shape
    largest = clients.curvature.max()
    rate, server_rate = 1 / (rounds**0.5 * STEPS * largest), (STEPS * size) ** 0.5

    powers = (1 - rate * clients.curvature)[:, None] ** (2 * jnp.arange(STEPS))[None]
    scale = rate * NOISE * jnp.sqrt(powers.sum(axis=1) / dimension)  # what noise of length NOISE in K steps adds up to

    def round_(carry: tuple[jax.Array, jax.Array], t: jax.Array) -> tuple[tuple[jax.Array, jax.Array], None]:
        x, least = carry
        noise = jax.random.normal(jax.random.fold_in(key, t), clients.centre.shape)
        models = clients.trained(x, STEPS, rate) + scale[:, None] * noise
        p = weights.uniform(size) if tau is None else weights.entropy_based(clients.own_losses(models), tau)
        gradients = clients.gradients(x)
        now = jnp.stack([jnp.sum((p @ gradients) ** 2), jnp.sum(gradients.mean(axis=0) ** 2)])
        return (x + server_rate * (p @ models - x), jnp.minimum(least, now)), None

    start = (jnp.full(dimension, 3.0), jnp.full(2, jnp.inf))
    return jax.lax.scan(round_, start, jnp.arange(rounds))[0][1]


def course(key: Key, federations: int, rounds: tuple[int, ...], taus: tuple[float, ...] = TAUS) -> Course:
    keys = jax.random.split(key, (federations, 2))

    def over_federations(count: int, tau: Scalar | None) -> jax.Array:
        def one(pair: Key) -> jax.Array:
            return smallest_gradients(any_convex(pair[0], SPREAD), pair[1], count, tau)

        return jax.vmap(one)(keys).mean(axis=0)

    fair = np.array(
        [jax.jit(jax.vmap(lambda tau, count=count: over_federations(count, tau)))(jnp.array(taus)) for count in rounds]
    )  # [T, tau, 2]
    plain = np.array([jax.jit(lambda count=count: over_federations(count, None))() for count in rounds])
    return Course(rounds, taus, fair[..., 0].T, fair[..., 1].T, plain[:, 1])
