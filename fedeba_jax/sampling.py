"""Who takes part in a round: values of the type `Sampler`."""

import functools
from collections.abc import Callable
from typing import Protocol

import jax
import jax.numpy as jnp
import numpy as np

from fedeba_jax.hyperparameters import Count, checked
from fedeba_jax.types import Key, Sizes

MANY = 2048
"""Clients beyond which a cohort is not drawn by a permutation of all."""


class Sampler(Protocol):
    """Draws the cohort of a round."""

    def __call__(self, key: Key, round_: jax.Array, sizes: Sizes, /) -> jax.Array:
        """Ids [n] of the cohort, different ones."""


def uniform(key: Key, round_: jax.Array, sizes: Sizes) -> jax.Array:
    """Uniform without replacement; everybody, in order, at full participation.

    The head of a permutation; among many clients, whose sorting would show in a round's time, those with the n
    largest of M random numbers; and for a cohort that is small beside them, `floyd`.
    """
    del round_
    count, clients = sizes.cohort_size, sizes.num_clients
    if count == clients:
        return jnp.arange(clients)
    if clients <= MANY:
        return jax.random.permutation(key, clients)[:count]
    if count**2 <= clients:
        return floyd(key, count, clients)
    return jax.lax.top_k(jax.random.uniform(key, (clients,)), count)[1]


def floyd(key: Key, count: int, clients: int) -> jax.Array:
    """Ids [count] below `clients`, different ones. Each set is equally likely; the time depends on `count` alone.

    Floyd's algorithm (Bentley & Floyd 1987): the i-th id is uniform below clients - count + i + 1, or, if it was drawn
    before, the largest of these numbers.
    """
    largest = clients - count + jnp.arange(count)
    drawn = jax.random.randint(key, (count,), 0, largest + 1)

    def add(chosen: jax.Array, i: jax.Array) -> tuple[jax.Array, None]:
        taken = (chosen == drawn[i]).any()
        return chosen.at[i].set(jnp.where(taken, largest[i], drawn[i])), None

    return jax.lax.scan(add, jnp.full((count,), -1, drawn.dtype), jnp.arange(count))[0]


@checked
def stratified(strata: Count) -> Sampler:
    """Equally many clients of each stratum, uniformly: client i is in stratum i // (M / strata).

    Everybody takes part with probability n / M, as under `uniform`; only who takes part together differs. Where
    devices keep the rows of clients (`ownership`), and their number divides that of the strata, everybody trains at
    home and all devices train equally many: no row travels, however large the cohort is.

    Args:
      strata: S; it divides the numbers of clients and of the cohort. The cohorts depend on it, not on the devices.
    """

    def sample(key: Key, round_: jax.Array, sizes: Sizes) -> jax.Array:
        del round_
        if sizes.num_clients % strata or sizes.cohort_size % strata:
            raise ValueError(
                f"strata={strata} does not divide num_clients={sizes.num_clients} and cohort_size={sizes.cohort_size}; "
                "change one of the three"
            )
        clients, count = sizes.num_clients // strata, sizes.cohort_size // strata
        draw = functools.partial(floyd, count=count, clients=clients)
        within = jnp.arange(clients)[None] if count == clients else jax.vmap(draw)(jax.random.split(key, strata))
        return (within + clients * jnp.arange(strata)[:, None]).reshape(-1)

    return sample


def weighted(weights: jax.Array) -> Sampler:
    """One client after the other without replacement, each with a probability proportional to its weight [M].

    A weight of 0 is never drawn: at least as many weights as a cohort has clients must be positive.
    """
    known = None if isinstance(weights, jax.core.Tracer) else np.asarray(weights)
    if known is not None and not (np.isfinite(known) & (known >= 0)).all():
        wrong = known[~(np.isfinite(known) & (known >= 0))][0]
        raise ValueError(f"weights hold {wrong}; give one finite number >= 0 for each client")

    def sample(key: Key, round_: jax.Array, sizes: Sizes) -> jax.Array:
        del round_
        if jnp.shape(weights) != (sizes.num_clients,):
            raise ValueError(
                f"weights are {list(jnp.shape(weights))}; give one for each of {sizes.num_clients} clients"
            )
        if known is not None and (positive := np.count_nonzero(known)) < sizes.cohort_size:
            raise ValueError(f"{positive} weights are positive, fewer than cohort_size={sizes.cohort_size}; lower it")
        scores = jnp.log(weights) + jax.random.gumbel(key, (sizes.num_clients,))
        return jax.lax.top_k(scores, sizes.cohort_size)[1]

    return sample


def listed(ids: jax.Array) -> Sampler:
    """The given cohorts, [T, n]: row t takes part in round t."""
    if jnp.ndim(ids) != 2 or not jnp.issubdtype(jnp.result_type(ids), jnp.integer):
        raise ValueError(f"ids are {jnp.result_type(ids)}{list(jnp.shape(ids))}; give client numbers [rounds, clients]")

    def sample(key: Key, round_: jax.Array, sizes: Sizes) -> jax.Array:
        del key
        if jnp.shape(ids)[1] != sizes.cohort_size:
            raise ValueError(f"ids list {jnp.shape(ids)[1]} clients per round, but cohort_size={sizes.cohort_size}")
        if not isinstance(ids, jax.core.Tracer):
            known = np.asarray(ids)
            if known.size and not 0 <= known.min() <= known.max() < sizes.num_clients:
                wrong = known[(known < 0) | (known >= sizes.num_clients)][0]
                raise ValueError(f"ids list client {wrong}; give numbers from 0 to {sizes.num_clients - 1}")
        return jnp.asarray(ids)[round_]

    return sample


def uniformly() -> Sampler:
    """Every cohort is as likely as any other."""
    return uniform


SAMPLERS: dict[str, Callable[..., Sampler]] = {"uniform": uniformly, "stratified": stratified}
"""By the names that settings give them."""
