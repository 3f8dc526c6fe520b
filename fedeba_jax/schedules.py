"""Values that change by round. Rounds count from 0."""

import jax
import jax.numpy as jnp

from fedeba_jax.types import Scalar, Schedule

SHAPES = {"linear": 1.0, "concave": 0.5, "convex": 3.0}
"""Exponents of the paper's annealing strategies ("linear" is its name for the hyperbola)."""


def as_schedule(value: Scalar | Schedule) -> Schedule:
    """A schedule as it is; a number as the constant schedule."""
    return value if callable(value) else lambda round_: jnp.asarray(value)


def decay(initial: Scalar, factor: Scalar = 1.0) -> Schedule:
    """initial * factor^round: the learning rate of the paper's runs (0.999 a round)."""
    return lambda round_: jnp.asarray(initial) * jnp.asarray(factor) ** round_


def anneal(initial: Scalar, kappa: Scalar, shape: str = "linear", minimum: Scalar = 1e-3) -> Schedule:
    """tau_t = max(minimum, tau_0 / (1 + kappa (t - 1))^s), t = 1, 2, ... (paper, appendix).

    s = 1 (linear), 1/2 (concave), 3 (convex); the paper's T is read as the round t.
    """
    if shape not in SHAPES:
        raise ValueError(f"shape={shape!r} is not one of {', '.join(SHAPES)}")
    exponent = SHAPES[shape]

    def value(round_: jax.Array) -> jax.Array:
        return jnp.maximum(minimum, initial / (1 + kappa * round_) ** exponent)

    return value
