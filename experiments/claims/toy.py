"""The paper's toy case (appendix I.1): F_1 = 2 (x - 2)^2, F_2 = (x + 4)^2 / 2, both from x = 0 by one step of 1/4."""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
from scipy.optimize import brentq

from experiments.claims.clients import Clients, variance
from fedeba_jax import weights
from fedeba_jax.algorithms.qffl import step_weights

RATE = 0.25
PRINTED = {"fedavg": 0.5, "eba": -0.1, "qffl": -0.4}  # the models that the paper gives


def two() -> Clients:
    """Made when it is asked for: in the precision that is then set."""
    return Clients(jnp.array([4.0, 1.0]), jnp.array([[2.0], [-4.0]]), jnp.zeros(2))


def trained() -> jax.Array:
    """The models after the step, x_1 = 2 and x_2 = -1."""
    return two().trained(jnp.zeros(1), 1, RATE)


class Case(NamedTuple):
    """Where a method ends up, and how unequal the two clients are there."""

    method: str
    weights: tuple[float, float]
    x: float
    gap: float  # |F_1 - F_2|
    variance: float  # Definition 3.1
    entropy: float  # of the normalised losses, in bits


def case(method: str, p: jax.Array, x: jax.Array) -> Case:
    losses = two().losses(x)
    share = losses / losses.sum()
    entropy = -jnp.sum(jnp.where(share > 0, share * jnp.log2(jnp.where(share > 0, share, 1)), 0))
    gap = float(jnp.abs(losses[0] - losses[1]))
    return Case(method, (float(p[0]), float(p[1])), float(x[0]), gap, float(variance(losses)), float(entropy))


def averaged(method: str, p: jax.Array) -> Case:
    """The weighted mean of the two models after their step."""
    return case(method, p, p @ trained())


def eba(tau: float) -> Case:
    losses = two().own_losses(trained())  # 0 and 4.5
    return averaged(f"FedEBA, tau = {tau:.4g}", weights.entropy_based(losses, tau))


def fedavg() -> Case:
    return averaged("FedAvg", weights.uniform(2))


def qffl(q: float, lipschitz: float) -> Case:
    """q-FedAvg's step with the estimate L of the Lipschitz constant: 1 is what the paper reckons with, 1 / rate = 4."""
    moves = trained()
    p = step_weights(two().losses(jnp.zeros(1)), jnp.sum(moves**2, axis=1), q, 1 / lipschitz)
    return case(f"q-FFL, q = {q:g}, L = {lipschitz:g}", p, p @ moves)


def crossings() -> dict[str, float]:
    """The temperature above which FedEBA is fairer than FedAvg, where it is fairest, and where it is as printed.

    The mean model moves from x = -1 (tau = 0) to FedAvg's 0.5 (tau = infinity), and so towards FedAvg's gap in the end.
    """

    first, second = (float(model) for model in trained()[:, 0])  # 2 and -1
    loss = float(two().own_losses(trained())[1])  # 4.5; the other is 0

    def tau_at(x: float) -> float:
        """tau / 4.5 = 1 / log(p_2 / p_1), where the weighted mean is x."""
        p = (x - second) / (first - second)
        return loss / math.log((1 - p) / p)

    def gap(x: float) -> float:
        losses = two().losses(jnp.array([x]))
        return float(losses[0] - losses[1])

    as_unfair = brentq(lambda x: gap(x) - fedavg().gap, second, 0.0)  # on the side of the second client
    return {
        "fairer_above": tau_at(as_unfair),
        "fairest": tau_at(brentq(gap, second, first)),
        "as_printed": tau_at(PRINTED["eba"]),
    }


def cases() -> list[Case]:
    """Every method that the toy case names, at the settings that it names or needs."""
    found = crossings()
    temperatures = (1.0, found["as_printed"], found["fairest"])
    return [fedavg(), *(eba(tau) for tau in temperatures), qffl(1.0, 1.0), qffl(2.0, 4.0)]
