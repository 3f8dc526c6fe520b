"""Values that change by round. Rounds count from 0."""

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Literal, cast, get_args

import jax
import jax.numpy as jnp
import optax

from fedeba_jax.hyperparameters import (
    Bounds,
    Count,
    Natural,
    NonNegative,
    Positive,
    check,
    check_values,
    checked,
    is_finite,
    is_whole,
)
from fedeba_jax.types import Algorithm, Info, Scalar, Schedule

Shape = Literal["linear", "concave", "convex"]

SHAPES = dict(zip(get_args(Shape), (1.0, 0.5, 3.0), strict=True))
"""Exponents of the paper's annealing strategies ("linear" is its name for the hyperbola)."""


def as_schedule(value: Scalar | Schedule) -> Schedule:
    """A schedule as it is; a number as the constant schedule."""
    return cast(Schedule, value) if callable(value) else lambda round_: jnp.asarray(value)


@checked
def decay(initial: Scalar, factor: Positive = 1.0) -> Schedule:
    """initial * factor^round: the learning rate of the paper's runs (0.999 per round)."""
    return lambda round_: jnp.asarray(initial) * jnp.asarray(factor) ** round_


@checked
def anneal(initial: Positive, kappa: NonNegative, shape: Shape = "linear", minimum: NonNegative = 1e-3) -> Schedule:
    """tau_t = max(minimum, tau_0 / (1 + kappa (t - 1))^s), t = 1, 2, ... (paper, appendix).

    s = 1 (linear), 1/2 (concave), 3 (convex); the paper's T is read as the round t.
    """
    check("shape", shape, Shape)
    exponent = SHAPES[shape]

    def value(round_: jax.Array) -> jax.Array:
        return jnp.maximum(minimum, initial / (1 + kappa * round_) ** exponent)

    return value


def scheduled(make: Callable[..., Algorithm], **hparams: Any) -> Algorithm:
    """`make(**hparams)` where some are schedules: each round runs the algorithm at that round's values.

    The state of an algorithm does not depend on its numbers, so one round's algorithm hands it to the next round's.

    Args:
      make: a factory with its collaborators bound.
      **hparams: values; those that are functions of the round are schedules.
    """
    schedules = {name: value for name, value in hparams.items() if callable(value)}
    if not schedules:
        return make(**hparams)

    def at(round_: Any) -> Algorithm:
        return make(**{**hparams, **{name: schedule(round_) for name, schedule in schedules.items()}})

    def update(server: Any, cohort: Any) -> tuple[Any, Any, Info]:
        return at(cohort.round).update(server, cohort)

    first = at(jnp.zeros((), jnp.int32))
    return first._replace(update=update)


Factor = Annotated[float, Bounds(0, open=True)]
TYPES: dict[str, Any] = {"transition_begin": Natural, "decay_rate": Factor, "power": Factor, "exponent": Factor}
"""Of parameters of optax; those that count steps are `Count`. Outside of these types a schedule never changes."""


def from_optax(make: Callable[..., Schedule]) -> Callable[..., Schedule]:
    """An optax schedule that refuses what would be no schedule: 0 steps, a rate of 0, no pieces."""

    def typed(parameter: inspect.Parameter) -> inspect.Parameter:
        kind = Count if parameter.name.endswith("_steps") else TYPES.get(parameter.name)
        return parameter.replace(annotation=kind) if kind else parameter

    signature = inspect.signature(make)
    signature = signature.replace(parameters=[typed(p) for p in signature.parameters.values()])

    @functools.wraps(make)
    def schedule(*args: Any, **kwargs: Any) -> Schedule:
        given = signature.bind(*args, **kwargs)
        given.apply_defaults()
        check_values(schedule, given.arguments)
        if "boundaries_and_scales" in given.arguments:
            _check_pieces(make.__name__, given.arguments["boundaries_and_scales"])
        if "cosine_kwargs" in given.arguments:
            _check_cycles(make.__name__, given.arguments["cosine_kwargs"])
        return make(*given.args, **given.kwargs)

    schedule.__signature__ = signature  # type: ignore[attr-defined]
    return schedule


def _check_pieces(owner: str, pieces: Any) -> None:
    """An error unless there are pieces, {ROUND: FACTOR, ...}."""
    valid = isinstance(pieces, Mapping) and bool(pieces)
    if not valid or not all(is_whole(r) and r >= 1 and is_finite(f, Bounds(0)) for r, f in pieces.items()):
        raise ValueError(f"{owner}: boundaries_and_scales={pieces} has no pieces; give {{ROUND: FACTOR, ...}}")


def _check_cycles(owner: str, cycles: Any) -> None:
    """An error unless there are cycles, each the arguments of a warmup_cosine_decay_schedule."""
    if not isinstance(cycles, list | tuple) or not cycles or not all(isinstance(cycle, Mapping) for cycle in cycles):
        raise ValueError(f"{owner}: cosine_kwargs={cycles} has no cycles; give a list of dicts of arguments")
    for cycle in cycles:
        SCHEDULES["warmup_cosine_decay_schedule"](**cycle)


SCHEDULES: dict[str, Callable[..., Schedule]] = {
    "anneal": anneal,
    "decay": decay,
    **{
        name: from_optax(getattr(optax, name))
        for name in (
            "linear_schedule", "polynomial_schedule", "exponential_decay", "cosine_decay_schedule",
            "piecewise_constant_schedule", "piecewise_interpolate_schedule", "warmup_constant_schedule",
            "warmup_cosine_decay_schedule", "warmup_exponential_decay_schedule", "cosine_onecycle_schedule",
            "linear_onecycle_schedule", "sgdr_schedule",
        )
    },
}  # fmt: skip
"""Schedules by name: ours, whose numbers may be traced, and those of optax."""
