"""Baselines from the theory of the core: CoreFed and Rank-Core-Fed (Ray Chaudhury et al. 2022, 2024)."""

from fractions import Fraction
from itertools import combinations
from math import ceil

import numpy as np

from tests.twins.algebra import add, combine, scale, subtract
from tests.twins.baselines_weights import weighted_rounds
from tests.twins.local import local_sgd
from tests.twins.problem import Trace

# CoreFed.


def corefed(problem, *, M, eps=0.2):
    """CoreFed: ascent of the Nash welfare sum_i log(M - F_i)."""
    return weighted_rounds(problem, lambda r: (corefed_weights(r.losses, M, eps), {}))


def corefed_weights(losses, M, eps=0.2):
    """p_i ~ 1 / max(M - F_i, eps)."""
    inverse = 1.0 / np.maximum(M - np.asarray(losses, np.float64), eps)
    return inverse / inverse.sum()


# Rank-Core-Fed.


def rank_core_fed(problem, *, mixtures):
    """Rank-Core-Fed: x becomes a candidate in the proportional veto core of the cohort.

    Candidates: the mean update, each client's own, then the mixtures; weights are the winner's. mixtures[t]: the J
    Dirichlet draws [J, n] of round t, in cohort order.
    """
    trace = Trace()
    x = problem.params
    for t, cohort in enumerate(problem.cohorts):
        n = len(cohort)
        losses_before = problem.full_losses([x for _ in cohort], cohort)
        trained = [local_sgd(problem, t, i, x)[-1] for i in cohort]
        deltas = [subtract(z, x) for z in trained]
        weights = [np.full(n, 1.0 / n), *np.eye(n), *np.asarray(mixtures[t], np.float64).reshape(-1, n)]
        candidates = [add(x, scale(problem.server_rate, combine(a, deltas))) for a in weights]
        losses = np.array([[problem.full_loss(z, i) for z in candidates] for i in cohort])
        winner, _, _ = veto_by_consumption(losses)
        x = candidates[winner]
        trace.record(
            x,
            losses_before=losses_before,
            losses_after=problem.full_losses(trained, cohort),
            weights=weights[winner],
            candidate_losses=losses,
            winner=winner,
        )
    return trace


def veto_by_consumption(losses):
    """Ianovski & Kondratev 2021, in exact arithmetic: voters eat their worst candidate alive; the last one left wins.

    Returns the winner, the deaths [(candidate, time since the last death)] and the masses that are left. Voters' ties
    go to the lowest index; if all the rest die at once, the lowest mean loss wins.
    """
    losses = np.asarray(losses)
    mass = {c: Fraction(1) for c in range(losses.shape[1])}  # of those alive
    deaths = []
    while len(mass) > 1:
        meals = [max(mass, key=lambda c, row=row: (row[c], -c)) for row in losses]
        eaters = {c: meals.count(c) for c in mass}
        dt = min(mass[c] / eaters[c] for c in mass if eaters[c] > 0)
        left = {c: mass[c] - eaters[c] * dt for c in mass}
        if not any(left.values()):
            return min(mass, key=lambda c: (losses[:, c].mean(), c)), deaths, mass
        deaths += [(c, float(dt)) for c in mass if left[c] == 0]
        mass = {c: rest for c, rest in left.items() if rest > 0}
    return next(iter(mass)), deaths, mass


def proportional_veto_core(losses):
    """The candidates that no coalition blocks, by looking at every coalition.

    T blocks c if all of T strictly prefer every b in B to c, and |C| - |B| <= ceil(|C| |T| / n) - 1.
    """
    voters, candidates = losses.shape
    better = losses[:, :, None] < losses[:, None, :]  # better[i, b, c]
    blocked = set()
    for size in range(1, voters + 1):
        power = ceil(Fraction(candidates * size, voters)) - 1
        for coalition in combinations(range(voters), size):
            preferred = better[list(coalition)].all(axis=0).sum(axis=0)  # |B| for each c
            blocked |= {c for c in range(candidates) if candidates - preferred[c] <= power}
    return [c for c in range(candidates) if c not in blocked]
