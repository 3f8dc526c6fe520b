"""Hyper-parameters that change by round, under any algorithm."""

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp

from fedeba_jax.cohort import Cohort
from fedeba_jax.types import Algorithm, Info


def scheduled(make: Callable[..., Algorithm], **hparams: Any) -> Algorithm:
    """`make(**hparams)` where some are schedules: each round runs the algorithm at that round's values.

    The state of an algorithm does not depend on its numbers, so it goes from one round's algorithm to the next's.

    Args:
      make: a factory with its collaborators bound.
      **hparams: values; those that are functions of the round are schedules.
    """
    schedules = {name: value for name, value in hparams.items() if callable(value)}
    if not schedules:
        return make(**hparams)

    def at(round_: Any) -> Algorithm:
        return make(**{**hparams, **{name: schedule(round_) for name, schedule in schedules.items()}})

    def update(server: Any, cohort: Cohort) -> tuple[Any, Any, Info]:
        return at(cohort.round).update(server, cohort)

    first = at(jnp.zeros((), jnp.int32))
    return first._replace(update=update)
