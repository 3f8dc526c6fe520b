"""What attackers say of their losses: lies that go with any attack (`fedeba_jax.attacks`)."""

from collections.abc import Callable
from typing import Annotated, Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp

from fedeba_jax.hyperparameters import NonNegative, checked
from fedeba_jax.types import Scalar


class Told(Protocol):
    """The losses that the server is told."""

    def __call__(self, losses: jax.Array, attackers: jax.Array, /) -> jax.Array:
        """Losses [n, ...] as they are told, from what they are and from who attacks ([n, ...] of bool)."""


class Lie(NamedTuple):
    """What attackers say of their losses, by name."""

    name: str
    of: Told

    def __str__(self) -> str:
        return self.name


def honest() -> Lie:
    """The truth."""
    return HONEST


@checked
def inflate(add: Scalar = 100.0, factor: NonNegative = 1.0) -> Lie:
    """factor F_i + add. An attacker knows its own loss.

    Args:
      add: what is added, also where a factor is given; for a factor alone give add=0.
      factor: what the loss is multiplied by.
    """
    return Lie("inflate", lambda losses, attackers: jnp.where(attackers, factor * losses + add, losses))


@checked
def max_plus(margin: Scalar = 1.0) -> Lie:
    """The largest loss of an honest client of the cohort, plus a margin. Attackers know all losses of the round.

    Args:
      margin: how far above.
    """

    def of(losses: jax.Array, attackers: jax.Array) -> jax.Array:
        largest = jnp.where(honest_or_all(attackers), losses, -jnp.inf).max(0)
        return jnp.where(attackers, largest + margin, losses)

    return Lie("max_plus", of)


def zero() -> Lie:
    """0, of a free rider who wants no attention. An attacker needs to know nothing."""
    return Lie("zero", lambda losses, attackers: jnp.where(attackers, 0.0, losses))


HONEST = Lie("honest", lambda losses, attackers: losses)
LIES: dict[str, Callable[..., Lie]] = {"honest": honest, "inflate": inflate, "max_plus": max_plus, "zero": zero}
"""What attackers may say of their losses, by name."""
LossLie = Annotated[Any, "lie"]  # one of LIES


def honest_or_all(attackers: jax.Array) -> jax.Array:
    """Who is honest; everybody, should nobody be."""
    return ~attackers | attackers.all(0, keepdims=True)
