"""Baselines that look at the geometry of the updates: FedMGDA+ and FedFV."""

import math

import numpy as np

from tests.twins.algebra import add, combine, dot, norm, scale, subtract
from tests.twins.baselines_weights import mixing_prior, weighted_rounds
from tests.twins.local import local_sgd
from tests.twins.problem import Trace
from tests.twins.solvers import box_simplex_qp

TINY = 1e-12  # a norm below it is none


# FedMGDA+.


def fedmgda_plus(problem, *, eps, eta=1.0, prior="size"):
    """FedMGDA+ (Hu et al. 2022): x <- x - eta d, d the shortest mixture of the unit updates within eps of the prior."""

    def rule(r):
        a, lam, d = mgda_weights(r.deltas, mixing_prior(problem, r.cohort, prior), eps, eta)
        return a, {"lambda": lam, "direction": d}

    return weighted_rounds(problem, rule)


def mgda_weights(deltas, prior, eps, eta=1.0):
    """lambda = argmin |sum_i lambda_i u_i|^2, u_i = -Delta_i / |Delta_i|; a_i = eta lambda_i / |Delta_i|, and d."""
    inverses = [1.0 / norm(delta) if norm(delta) >= TINY else 0.0 for delta in deltas]
    units = [scale(-inverse, delta) for inverse, delta in zip(inverses, deltas, strict=True)]
    gram = np.array([[dot(u, v) for v in units] for u in units])
    lower, upper = np.maximum(0.0, prior - eps), np.minimum(1.0, prior + eps)
    lam = box_simplex_qp(2.0 * gram, np.zeros(len(units)), lower, upper, start=prior)
    return eta * lam * np.array(inverses), lam, combine(lam, units)


# FedFV.


def fedfv(problem, *, alpha, window, fv_window="past"):
    """FedFV (Wang et al. 2021): x <- x - gbar, gbar free of conflicts inside the cohort and with recent rounds."""
    trace = Trace()
    x = problem.params
    last_gradient, last_round = {}, {}
    for t, cohort in enumerate(problem.cohorts):
        losses_before = problem.full_losses([x for _ in cohort], cohort)
        trained = [local_sgd(problem, t, i, x)[-1] for i in cohort]
        gradients = [subtract(x, z) for z in trained]
        last_gradient.update(zip(cohort, gradients, strict=True))
        last_round.update((i, t) for i in cohort)
        groups = [
            {i: last_gradient[i] for i, seen in last_round.items() if seen == past}
            for past in past_rounds(t, window, fv_window)
        ]
        internal, a = mitigate_internal(gradients, losses_before, alpha)
        external, moved = mitigate_external(internal, groups)
        size = rescaling(gradients, external)
        a = size * (a + np.array([moved.pop(i, 0.0) for i in cohort]))
        deltas = [scale(-1.0, g) for g in gradients]
        of_history = subtract(scale(-size, external), combine(a, deltas))
        x = add(x, scale(problem.server_rate, add(problem.aggregate(t, cohort, a, deltas), of_history)))
        trace.record(
            x,
            losses_before=losses_before,
            losses_after=problem.full_losses(trained, cohort),
            weights=a,
            history_weights={i: size * c for i, c in moved.items()},
            direction=scale(size, external),
        )
    return trace


def past_rounds(t, window, fv_window):
    """The rounds whose clients may conflict, oldest first: t-tau..t-1, or t-tau+1..t for "current"; t from 0."""
    if fv_window == "past":
        return [t - k for k in range(window, 0, -1)] if t >= window else []
    if fv_window == "current":
        return [t - k for k in range(window - 1, -1, -1)] if t + 1 >= window else []
    raise ValueError(f"fv_window={fv_window!r} is unknown; take 'past' or 'current'")


def kept_clients(n, alpha):
    """How many of the worst-off clients keep their update: n - ceil((n-1)(1-alpha)), none for alpha = 0."""
    return n - math.ceil(round((n - 1) * (1.0 - alpha), 9)) if alpha > 0 else 0


def mitigate_internal(gradients, losses, alpha):
    """Algorithm 2: each g_i loses its parts against g_j, j from the best-off; the mean, and its weights on the g_i."""
    n = len(gradients)
    order = [int(i) for i in np.argsort(losses, kind="stable")]
    kept = order[n - kept_clients(n, alpha) :]
    projected, coefficients = list(gradients), np.eye(n)
    for i in range(n):
        if i in kept:
            continue
        for j in order:
            against = dot(gradients[j], projected[i])
            if j == i or against >= 0:
                continue
            overlap = against / dot(gradients[j], gradients[j])
            projected[i] = subtract(projected[i], scale(overlap, gradients[j]))
            coefficients[i, j] -= overlap
    return combine([1.0 / n] * n, projected), coefficients.mean(axis=0)


def mitigate_external(gbar, groups):
    """Algorithm 3: gbar loses its part against each past round's conflicting clients; the change by client."""
    moved = {}
    for group in groups:
        conflicting = {i: h for i, h in group.items() if dot(h, gbar) < 0}
        if not conflicting:
            continue
        c = combine([1.0] * len(conflicting), list(conflicting.values()))
        overlap = dot(gbar, c) / dot(c, c)
        gbar = subtract(gbar, scale(overlap, c))
        for i in conflicting:
            moved[i] = moved.get(i, 0.0) - overlap
    return gbar, moved


def rescaling(gradients, gbar):
    """|mean_i g_i| / |gbar|, zero where gbar vanishes."""
    mean = combine([1.0 / len(gradients)] * len(gradients), gradients)
    return norm(mean) / norm(gbar) if norm(gbar) >= TINY else 0.0
