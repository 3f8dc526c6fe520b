"""Values that change by round. Rounds count from 0."""

from collections.abc import Callable
from typing import Literal, get_args

import jax
import jax.numpy as jnp
import optax

from fedeba_jax.types import NonNegative, Positive, Scalar, Schedule

Shape = Literal["linear", "concave", "convex"]

SHAPES = dict(zip(get_args(Shape), (1.0, 0.5, 3.0), strict=True))
"""Exponents of the paper's annealing strategies ("linear" is its name for the hyperbola)."""


def as_schedule(value: Scalar | Schedule) -> Schedule:
    """A schedule as it is; a number as the constant schedule."""
    return value if callable(value) else lambda round_: jnp.asarray(value)


def decay(initial: Scalar, factor: Positive = 1.0) -> Schedule:
    """initial * factor^round: the learning rate of the paper's runs (0.999 a round)."""
    return lambda round_: jnp.asarray(initial) * jnp.asarray(factor) ** round_


def anneal(initial: Positive, kappa: NonNegative, shape: Shape = "linear", minimum: NonNegative = 1e-3) -> Schedule:
    """tau_t = max(minimum, tau_0 / (1 + kappa (t - 1))^s), t = 1, 2, ... (paper, appendix).

    s = 1 (linear), 1/2 (concave), 3 (convex); the paper's T is read as the round t.
    """
    if shape not in SHAPES:
        raise ValueError(f"shape={shape!r} is not one of {', '.join(SHAPES)}")
    exponent = SHAPES[shape]

    def value(round_: jax.Array) -> jax.Array:
        return jnp.maximum(minimum, initial / (1 + kappa * round_) ** exponent)

    return value


SCHEDULES: dict[str, Callable[..., Schedule]] = {
    "anneal": anneal,
    "decay": decay,
    **{
        name: getattr(optax, name)
        for name in (
            "linear_schedule", "polynomial_schedule", "exponential_decay", "cosine_decay_schedule",
            "piecewise_constant_schedule", "piecewise_interpolate_schedule", "warmup_constant_schedule",
            "warmup_cosine_decay_schedule", "warmup_exponential_decay_schedule", "cosine_onecycle_schedule",
            "linear_onecycle_schedule", "sgdr_schedule",
        )
    },
}  # fmt: skip
"""Schedules by name: ours, whose numbers may be traced, and those of optax."""
