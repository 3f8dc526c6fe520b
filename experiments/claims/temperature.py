"""Proposition 4.1 and appendix K: the weights are the one solution of a constrained problem; what tau does to them."""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from scipy.optimize import minimize

from fedeba_jax import weights
from fedeba_jax.solvers import entropy_temperature

LARGE, SMALL = 1e6, 1e-3


class Uniqueness(NamedTuple):
    """Largest distances (of any weight) over all problems and starts."""

    problems: int
    starts: int
    between_starts: float
    to_closed_form: float
    positive_curvature: float  # the largest eigenvalue of the entropy's Hessian at a solution; negative: a maximum


def maximise(losses: np.ndarray, target: float, start: np.ndarray) -> np.ndarray:
    """max -sum p log p subject to sum p = 1 and sum p F = target, p >= 0, from a start, by SLSQP."""
    tiny = 1e-12
    found = minimize(
        lambda p: np.sum(p * np.log(p)),
        start,
        jac=lambda p: np.log(p) + 1,
        bounds=[(tiny, 1)] * len(losses),
        constraints=[
            {"type": "eq", "fun": lambda p: p.sum() - 1, "jac": lambda p: np.ones_like(p)},
            {"type": "eq", "fun": lambda p: p @ losses - target, "jac": lambda p: losses},
        ],
        method="SLSQP",
        options={"maxiter": 1000, "ftol": 1e-14},
    )
    return found.x


def uniqueness(seed: int, problems: int = 20, starts: int = 6, clients: int = 6) -> Uniqueness:
    """Random problems from random starts, compared with p_i ~ exp(F_i / tau) at the tau that meets the target."""
    rng = np.random.default_rng(seed)
    between = closed = 0.0
    curvature = -np.inf
    for _ in range(problems):
        losses = rng.exponential(size=clients)
        target = losses.mean() + rng.uniform(0.1, 0.7) * (losses.max() - losses.mean())
        found = np.array([maximise(losses, target, rng.dirichlet(np.ones(clients))) for _ in range(starts)])
        tau = entropy_temperature(jnp.asarray(losses), target, weights.uniform(clients).astype(losses.dtype))
        form = np.asarray(weights.entropy_based(jnp.asarray(losses), tau))
        between = max(between, float(np.ptp(found, axis=0).max()))
        closed = max(closed, float(np.abs(found - form).max()))
        curvature = max(curvature, float((-1 / form).max()))
    return Uniqueness(problems, starts, between, closed, curvature)


class Limits(NamedTuple):
    """What the weights become at the ends of tau, over random losses."""

    problems: int
    to_uniform: float  # largest |p_i - 1/m| at tau = LARGE
    on_the_worst: float  # smallest weight of the worst client at tau = SMALL
    to_prior: float  # largest |p_i - q_i| at tau = LARGE with a prior q
    is_monotone: bool  # whether sum p F falls as tau grows


def limits(seed: int, problems: int = 200, clients: int = 6) -> Limits:
    rng = np.random.default_rng(seed)
    losses = rng.exponential(size=(problems, clients))
    priors = rng.dirichlet(np.ones(clients), problems)
    far = [weights.entropy_based(jnp.asarray(own), LARGE) for own in losses]
    near = [weights.entropy_based(jnp.asarray(own), SMALL) for own in losses]
    with_prior = [
        weights.entropy_based(jnp.asarray(own), LARGE, jnp.asarray(q)) for own, q in zip(losses, priors, strict=True)
    ]
    taus = np.geomspace(0.05, 50, 12)
    means = [[float(weights.entropy_based(jnp.asarray(own), tau) @ own) for tau in taus] for own in losses[:20]]
    return Limits(
        problems,
        float(np.abs(np.array(far) - 1 / clients).max()),
        float(min(p[own.argmax()] for p, own in zip(near, losses, strict=True))),
        float(np.abs(np.array(with_prior) - priors).max()),
        bool((np.diff(means, axis=1) < 0).all()),
    )
