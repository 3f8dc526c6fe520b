"""Epsilon of repeated Gaussian releases, by Google's dp-accounting (the `privacy` extra).

sigma is always the noise's standard deviation over the sensitivity *under the relation that is accounted for*: adding
or removing one for Poisson samples, replacing one for samples of fixed size, where that of a mean is twice as large.
"""

import functools
import importlib.util
from typing import Any, NamedTuple

from absl import logging

HOPELESS = 100.0
"""An epsilon so large protects nothing, and takes the tight accountant minutes: the quick one's bound has to do."""


class Epsilon(NamedTuple):
    value: float
    accountant: str


def require() -> None:
    """An error, in one line, where the accountant is not installed."""
    if importlib.util.find_spec("dp_accounting") is None:
        raise ValueError("an epsilon needs dp-accounting, which is not installed; pip install 'fedeba_jax[privacy]'")


@functools.cache
def poisson(sigma: float, rate: float, releases: int, delta: float, accountant: str = "pld") -> Epsilon:
    """Each of the population takes part in a release with probability `rate`; one is added or removed.

    Args:
      sigma: noise multiplier, positive.
      rate: q.
      releases: how many.
      delta: of the guarantee.
      accountant: "pld" (privacy loss distributions: tight), or "rdp" (Rényi: a bound).
    """
    require()
    from dp_accounting import GaussianDpEvent, PoissonSampledDpEvent, pld, rdp

    event = PoissonSampledDpEvent(rate, GaussianDpEvent(sigma))
    bound = _epsilon(rdp.RdpAccountant(), event, releases, delta)
    if accountant == "rdp" or bound > HOPELESS:
        return Epsilon(bound, "RDP")
    return Epsilon(_epsilon(pld.PLDAccountant(), event, releases, delta), "PLD")


@functools.cache
def fixed_size(sigma: float, sample: int, population: int, releases: int, delta: float) -> Epsilon:
    """`sample` of the population, drawn without replacement, take part in a release; one is replaced.

    PLD accounting does not know this sampling; RDP does (Wang, Balle, Kasiviswanathan 2019, Theorem 27).
    """
    require()
    from dp_accounting import GaussianDpEvent, NeighboringRelation, SampledWithoutReplacementDpEvent, rdp

    event = SampledWithoutReplacementDpEvent(population, sample, GaussianDpEvent(sigma))
    accountant = rdp.RdpAccountant(neighboring_relation=NeighboringRelation.REPLACE_ONE)
    return Epsilon(_epsilon(accountant, event, releases, delta), "RDP")


def _epsilon(accountant: Any, event: Any, releases: int, delta: float) -> float:
    """Without warnings on orders that the Rényi accountant leaves out: its bound is one without them."""
    from dp_accounting import SelfComposedDpEvent

    verbosity = logging.get_verbosity()
    logging.set_verbosity(logging.ERROR)
    try:
        return float(accountant.compose(SelfComposedDpEvent(event, releases)).get_epsilon(delta))
    except ValueError as error:  # "math domain error": a logarithm of 0
        raise ArithmeticError(str(error)) from None
    finally:
        logging.set_verbosity(verbosity)
