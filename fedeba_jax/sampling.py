"""Who takes part in a round: values of the type `Sampler`."""

from typing import Protocol

import jax
import jax.numpy as jnp

from fedeba_jax.types import Key, Sizes

MANY = 2048
"""Clients beyond which a cohort is not drawn by a permutation of all."""


class Sampler(Protocol):
    """Draws the cohort of a round."""

    def __call__(self, key: Key, round_: jax.Array, sizes: Sizes, /) -> jax.Array:
        """Ids [n] of the cohort, different ones."""


def uniform(key: Key, round_: jax.Array, sizes: Sizes) -> jax.Array:
    """Uniform without replacement; everybody, in order, at full participation.

    The head of a permutation, or among many clients, whose sorting would show in a round's time, those with the n
    largest of M random numbers.
    """
    del round_
    if sizes.cohort_size == sizes.num_clients:
        return jnp.arange(sizes.num_clients)
    if sizes.num_clients <= MANY:
        return jax.random.permutation(key, sizes.num_clients)[: sizes.cohort_size]
    return jax.lax.top_k(jax.random.uniform(key, (sizes.num_clients,)), sizes.cohort_size)[1]


def weighted(weights: jax.Array) -> Sampler:
    """One client after the other without replacement, each with a probability proportional to its weight [M]."""

    def sample(key: Key, round_: jax.Array, sizes: Sizes) -> jax.Array:
        del round_
        scores = jnp.log(weights) + jax.random.gumbel(key, (sizes.num_clients,))
        return jax.lax.top_k(scores, sizes.cohort_size)[1]

    return sample


def listed(ids: jax.Array) -> Sampler:
    """The given cohorts, [T, n]: row t takes part in round t."""

    def sample(key: Key, round_: jax.Array, sizes: Sizes) -> jax.Array:
        del key, sizes
        return jnp.asarray(ids)[round_]

    return sample
