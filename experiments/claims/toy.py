"""The paper's toy case (appendix I.1): F_1 = 2 (x - 2)^2, F_2 = (x + 4)^2 / 2, both from x = 0 by one step of 1/4."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from scipy.optimize import brentq

from experiments.claims.clients import Clients, variance
from fedeba_jax import weights
from fedeba_jax.algorithms.qffl import step_weights

TWO = Clients(jnp.array([4.0, 1.0]), jnp.array([[2.0], [-4.0]]), jnp.zeros(2))
START, RATE = jnp.zeros(1), 0.25
PRINTED = {"fedavg": 0.5, "eba": -0.1, "qffl": -0.4}  # the models that the paper gives


class Case(NamedTuple):
    """Where a method ends up, and how unequal the two clients are there."""

    method: str
    weights: tuple[float, float]
    x: float
    gap: float  # |F_1 - F_2|
    variance: float  # Definition 3.1
    entropy: float  # of the normalised losses, in bits


def case(method: str, p: jax.Array, x: jax.Array) -> Case:
    losses = TWO.losses(x)
    share = losses / losses.sum()
    entropy = -jnp.sum(jnp.where(share > 0, share * jnp.log2(jnp.where(share > 0, share, 1)), 0))
    gap = float(jnp.abs(losses[0] - losses[1]))
    return Case(method, (float(p[0]), float(p[1])), float(x[0]), gap, float(variance(losses)), float(entropy))


def averaged(method: str, p: jax.Array) -> Case:
    """The weighted mean of the two models after their step, x_1 = 2 and x_2 = -1."""
    return case(method, p, p @ TWO.trained(START, 1, RATE))


def eba(tau: float) -> Case:
    losses = TWO.own_losses(TWO.trained(START, 1, RATE))  # 0 and 4.5
    return averaged(f"FedEBA, tau = {tau:.4g}", weights.entropy_based(losses, tau))


def fedavg() -> Case:
    return averaged("FedAvg", weights.uniform(2))


def qffl(q: float, lipschitz: float) -> Case:
    """q-FedAvg's step with the estimate L of the Lipschitz constant: 1 is what the paper reckons with, 1 / rate = 4."""
    moves = TWO.trained(START, 1, RATE) - START
    p = step_weights(TWO.losses(START), jnp.sum(moves**2, axis=1), q, 1 / lipschitz)
    return case(f"q-FFL, q = {q:g}, L = {lipschitz:g}", p, START + p @ moves)


def crossings() -> dict[str, Any]:
    """The temperatures between which FedEBA is fairer than FedAvg, where it is fairest, and where it is as printed."""

    def gap(tau: float) -> float:
        losses = TWO.losses(jnp.array([eba(tau).x]))
        return float(losses[0] - losses[1])

    other = fedavg()
    grid = np.geomspace(0.5, 1e4, 400)
    fairer = [tau for tau in grid if eba(tau).variance < other.variance]
    first = brentq(lambda tau: abs(gap(tau)) - other.gap, 0.5, fairer[0] + 0.1)
    return {
        "fairer_from": float(first),
        "fairer_up_to": None if fairer[-1] == grid[-1] else float(fairer[-1]),
        "fairest": float(brentq(gap, 1.0, 100.0)),
        "as_printed": float(brentq(lambda tau: eba(tau).x - PRINTED["eba"], 1.0, 100.0)),
    }


def cases() -> list[Case]:
    """Every method that the toy case names, at the settings that it names or needs."""
    found = crossings()
    temperatures = (1.0, found["as_printed"], found["fairest"])
    return [fedavg(), *(eba(tau) for tau in temperatures), qffl(1.0, 1.0), qffl(2.0, 4.0)]
