"""Private training in plain loops. Every draw is given: which examples a step takes, and N(0, I) as a model."""

import numpy as np

from tests.twins.algebra import add, combine, norm, scale, subtract, zeros
from tests.twins.local import local_batches, local_sgd
from tests.twins.weights import example_weights, fedavg_weights, prior_weights


def clipped(u, limit):
    """u if it is no longer than the limit, else shortened to it."""
    length = norm(u)
    return u if length <= limit else scale(limit / length, u)


def capped_weights(w, cap):
    """min(P, nu w_i) with sum 1, nu by bisection; all P where that is too little."""
    w = np.asarray(w, np.float64) / np.max(w)
    if len(w) * cap <= 1:
        return np.full(len(w), cap)
    low, high = -800.0, 800.0  # of log nu
    for _ in range(200):
        middle = (low + high) / 2
        too_much = np.minimum(cap, np.exp(np.minimum(middle + np.log(w), 700.0))).sum() > 1
        low, high = (low, middle) if too_much else (middle, high)
    return np.minimum(cap, np.exp(np.minimum(low + np.log(w), 700.0)))


def example_level(problem, *, batch_size, sigma, clip, noise, weighting="examples", mu=0.0):
    """FedAvg (FedProx with mu) whose steps are DP-SGD's. noise[t][i][k]; batch_size None takes everything."""
    x = problem.params
    for t, cohort in enumerate(problem.cohorts):
        deltas = []
        for i in cohort:
            z, held = x, problem.size(i)
            expected = held if batch_size is None else min(batch_size, held)
            for k, (features, labels) in enumerate(local_batches(problem, t, i)):
                total = zeros(z)
                for j in range(len(labels)):
                    gradient = problem.gradient(z, features[j : j + 1], labels[j : j + 1])
                    total = add(total, clipped(gradient, clip))
                total = add(total, scale(sigma * clip, noise[t][i][k]))
                step = add(scale(1 / expected, total), scale(mu, subtract(z, x)))
                z = subtract(z, scale(problem.learning_rate(t), step))
            deltas.append(subtract(z, x))
        x = add(x, combine(fedavg_weights(problem, cohort, weighting), deltas))
    return x


def client_level(problem, rule, *, sigma, clip, loss_clip, noise):
    """Clipped updates and losses, rule's weights, noise in the sum. noise[t].

    rule(cohort, losses before, losses after) -> weights, the factor f in the sensitivity f * clip.
    """
    x = problem.params
    for t, cohort in enumerate(problem.cohorts):
        trained = [local_sgd(problem, t, i, x)[-1] for i in cohort]
        deltas = [clipped(subtract(z, x), clip) for z in trained]
        before = np.clip(problem.full_losses([x for _ in cohort], cohort), 0, loss_clip)
        after = np.clip(problem.full_losses(trained, cohort), 0, loss_clip)
        a, factor = rule(cohort, before, after)
        x = add(x, add(combine(a, deltas), scale(sigma * factor * clip, noise[t])))
    return x


def fedavg_rule(problem, *, weighting, weight_cap):
    def rule(cohort, before, after):
        n = len(cohort)
        if weighting == "uniform":
            return np.full(n, 1 / n), 2 / n
        return capped_weights([problem.size(i) for i in cohort], weight_cap / n), 2 * weight_cap / n

    return rule


def entropy_rule(problem, *, tau, prior, loss_clip, weight_cap, alpha=0.0, gate_open=True, steps=1):
    """FedEBA (alpha = 0) and Prac-FedEBA+ with a gate that is fixed."""

    def rule(cohort, before, after):
        n = len(cohort)
        cap = min(weight_cap / n, np.exp(loss_clip / tau) / (n - 1 + np.exp(loss_clip / tau)))
        q = prior_weights(problem, cohort, prior)
        p, fair = (capped_weights(q * np.exp(losses / tau), cap) for losses in (after, before))
        other = fair if gate_open else capped_weights(example_weights(problem, cohort), cap) / steps
        return (1 - alpha) * p + alpha * other, 2 * cap * ((1 - alpha) + alpha * other.sum())

    return rule
