"""Clients with quadratic losses, F_i(x) = b_i/2 |x - c_i|^2 + a_i: strongly convex, and everything in closed form.

Linear regression is of this kind: with X_i' X_i = n b_i I, c_i is the least-squares estimate and a_i what is left over.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from fedeba_jax import weights
from fedeba_jax.types import Scalar


class Clients(NamedTuple):
    """A federation of m clients in d dimensions; what they are tested on may differ from what they train on."""

    curvature: jax.Array  # b_i, [m]
    centre: jax.Array  # c_i, [m, d]
    floor: jax.Array  # a_i, [m]

    def losses(self, x: jax.Array) -> jax.Array:
        """F_i(x), [m]."""
        return self.curvature / 2 * jnp.sum((x[None] - self.centre) ** 2, axis=1) + self.floor

    def gradients(self, x: jax.Array) -> jax.Array:
        """grad F_i(x), [m, d]."""
        return self.curvature[:, None] * (x[None] - self.centre)

    def trained(self, x: jax.Array, steps: int, rate: Scalar) -> jax.Array:
        """Every client's model after K full gradient steps from x, [m, d]."""
        left = (1 - rate * self.curvature) ** steps
        return self.centre + left[:, None] * (x[None] - self.centre)

    def own_losses(self, models: jax.Array) -> jax.Array:
        """F_i(x_i), [m], each client at its own model."""
        return self.curvature / 2 * jnp.sum((models - self.centre) ** 2, axis=1) + self.floor


def variance(losses: jax.Array) -> jax.Array:
    """Definition 3.1: mean_i (F_i - mean F)^2."""
    return jnp.var(losses)


def weighted_variance(losses: jax.Array, p: jax.Array) -> jax.Array:
    """The form of the proof (appendix I.2): sum_i p_i (F_i - sum_j p_j F_j)^2."""
    return jnp.vdot(p, (losses - jnp.vdot(p, losses)) ** 2)


def round_of(clients: Clients, x: jax.Array, tau: Scalar | None, steps: int, rate: Scalar) -> jax.Array:
    """x_{t+1} = sum_i p_i x_i: FedEBA with the losses after training, or FedAvg with tau = None."""
    models = clients.trained(x, steps, rate)
    size = len(clients.floor)
    p = weights.uniform(size) if tau is None else weights.entropy_based(clients.own_losses(models), tau)
    return p @ models
