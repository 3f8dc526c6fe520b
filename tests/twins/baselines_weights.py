"""Baselines that weight or bend FedAvg: q-FFL, TERM, PropFair, FedwAvg and FedDISCO."""

from typing import NamedTuple

import numpy as np

from tests.twins import network
from tests.twins.algebra import add, norm, scale, subtract
from tests.twins.local import local_sgd
from tests.twins.problem import Trace
from tests.twins.weights import example_weights, fedavg_weights, uniform_weights


class Round(NamedTuple):
    """What a weighting rule sees: lists and arrays in cohort order, losses F_i(x) before training."""

    t: int
    cohort: list
    x: list
    losses: np.ndarray
    trained: list
    deltas: list


def weighted_rounds(problem, rule, train=None):
    """x <- x + eta sum_i a_i Delta_i with (a, diagnostics) = rule(Round); train(t, client, x) is the local model."""
    train = train or (lambda t, i, x: local_sgd(problem, t, i, x)[-1])
    trace = Trace()
    x = problem.params
    for t, cohort in enumerate(problem.cohorts):
        losses_before = problem.full_losses([x for _ in cohort], cohort)
        trained = [train(t, i, x) for i in cohort]
        deltas = [subtract(z, x) for z in trained]
        a, more = rule(Round(t, cohort, x, losses_before, trained, deltas))
        losses_after = problem.full_losses(trained, cohort)
        x = add(x, scale(problem.server_rate, problem.aggregate(t, cohort, a, deltas)))
        trace.record(x, losses_before=losses_before, losses_after=losses_after, weights=a, **more)
    return trace


def mixing_prior(problem, cohort, prior):
    """N_i / sum N for "size", 1 / n for "uniform"."""
    return {"size": example_weights, "uniform": uniform_weights}[prior](problem, cohort)


# q-FFL.


def qffl(problem, *, q):
    """q-FedAvg (Li et al. 2020, Algorithm 2), with L = 1 / eta_L of the round."""

    def rule(r):
        moves = np.array([norm(delta) for delta in r.deltas])
        a, h = qffl_weights(r.losses, moves, q, problem.learning_rate(r.t))
        return a, {"h": h}

    return weighted_rounds(problem, rule)


def qffl_weights(losses, moves, q, rate):
    """a_i = L F_i^q / sum_j h_j, h_i = q F_i^(q-1) |G_i|^2 + L F_i^q, |G_i| = L |Delta_i|; F is raised by 1e-10."""
    L = 1.0 / rate if rate > 0 else 1.0  # at rate 0 nobody moves, and L cancels
    F = np.asarray(losses, np.float64) + 1e-10
    h = q * F ** (q - 1.0) * (L * np.asarray(moves)) ** 2 + L * F**q
    return L * F**q / h.sum(), h


# TERM.


def term(problem, *, t, normalised=True, size_prior=False):
    """TERM (Li et al. 2021): a_i = softmax(t F)_i; normalised=False is the published code's smoothed normaliser."""
    if size_prior and not normalised:
        raise ValueError("size_prior=True belongs to the normalised form; set normalised=True")
    Z = 0.0

    def rule(r):
        nonlocal Z
        if normalised:
            q = mixing_prior(problem, r.cohort, "size" if size_prior else "uniform")
            return term_weights(r.losses, t, q), {}
        a, omega, Z = term_code_weights(r.losses, t, Z)
        return a, {"Z": Z, "omega": omega}

    return weighted_rounds(problem, rule)


def tilts(losses, t):
    """e_i = exp(t (F_i - F*)), F* the largest loss (the smallest for t < 0): no exponent is positive."""
    losses = np.asarray(losses, np.float64)
    return np.exp(t * (losses - (losses.max() if t >= 0 else losses.min())))


def term_weights(losses, t, prior):
    """a_i = q_i e_i / sum_j q_j e_j."""
    e = prior * tilts(losses, t)
    return e / e.sum()


def term_code_weights(losses, t, Z):
    """Z <- Z / 2 + mean(e) / 2, omega_i = e_i / (n Z), and the mean of n re-scaled updates: a_i = omega_i / n.

    e_i = exp(t (F_i - max F)) for both signs of t.
    """
    losses = np.asarray(losses, np.float64)
    e = np.exp(t * (losses - losses.max()))
    Z = 0.5 * Z + 0.5 * e.mean()
    omega = e / (len(e) * Z)
    return omega / len(e), omega, Z


# PropFair.


def propfair(problem, *, M, eps=0.2, huber=False, weighting="examples"):
    """PropFair (Zhang et al. 2023): local SGD on T(batch loss), then FedAvg."""

    def direction(z, x, y):
        return scale(propfair_slope(problem.loss(z, x, y), M, eps, huber), problem.gradient(z, x, y))

    def rule(r):
        return fedavg_weights(problem, r.cohort, weighting), {}

    return weighted_rounds(problem, rule, lambda t, i, x: local_sgd(problem, t, i, x, direction)[-1])


def propfair_loss(loss, M, eps, huber):
    """T(l) = -log(1 - l/M) while M - l >= eps; beyond it l/M, or l/eps for huber."""
    if M - loss >= eps:
        return -np.log(1.0 - loss / M)
    return loss / eps if huber else loss / M


def propfair_slope(loss, M, eps, huber):
    """T'(l) = 1 / (M - l) while M - l >= eps; beyond it 1/M, or 1/eps for huber."""
    if M - loss >= eps:
        return 1.0 / (M - loss)
    return 1.0 / eps if huber else 1.0 / M


# FedwAvg.


def fedwavg(problem, *, alpha, forget_every=1, prior="uniform", predict=None):
    """FedWAvg (Hong et al. 2022): more weight where the global model forgets what the last local model knew."""
    predict = predict or (lambda z, x: np.argmax(network.logits(z, x), axis=1))
    known = [np.zeros(problem.size(i), bool) for i in range(len(problem.data))]  # by each client's last local model
    forgotten = np.zeros(len(problem.data), int)

    def correct(z, client):
        x, y = problem.data[client]
        return predict(z, x) == y

    def rule(r):
        if r.t % forget_every == 0:
            for i in r.cohort:
                forgotten[i] = np.sum(known[i] & ~correct(r.x, i))
        for i, z in zip(r.cohort, r.trained, strict=True):
            known[i] = correct(z, i)
        a = fedwavg_weights(forgotten[r.cohort], alpha, mixing_prior(problem, r.cohort, prior))
        return a, {"forgotten": forgotten.copy(), "known": [bits.copy() for bits in known]}

    return weighted_rounds(problem, rule)


def fedwavg_weights(forgotten, alpha, prior):
    """p_i = (1 - alpha) q_i + alpha f_i / sum_j f_j; the prior q if nothing is forgotten."""
    total = np.sum(forgotten)
    if total == 0:
        return prior
    return (1.0 - alpha) * prior + alpha * np.asarray(forgotten) / total


# FedDISCO.


def feddisco(problem, *, a, b, num_classes, metric="l2", target=None):
    """FedDisco (Ye et al. 2023): less weight to clients whose labels are far from the target's distribution."""
    target = np.full(num_classes, 1.0 / num_classes) if target is None else np.asarray(target, np.float64)

    def rule(r):
        histograms = [label_histogram(problem.data[i][1], num_classes) for i in r.cohort]
        d = discrepancies(histograms, target, metric)
        weights = feddisco_weights(example_weights(problem, r.cohort), d, a, b)
        return weights, {"discrepancy": d}

    return weighted_rounds(problem, rule)


def label_histogram(labels, num_classes):
    """D_k: the share of each label."""
    return np.array([np.mean(np.asarray(labels) == c) for c in range(num_classes)])


def discrepancies(histograms, target, metric):
    """d_k = |D_k - T|_2, or KL(D_k | T) divided by its sum over the participants."""
    if metric == "l2":
        return np.array([np.sqrt(np.sum((D - target) ** 2)) for D in histograms])
    if metric == "kl":
        kl = np.array([sum(p * np.log(p / q) for p, q in zip(D, target, strict=True) if p > 0) for D in histograms])
        return kl / kl.sum() if kl.sum() > 0 else np.zeros_like(kl)
    raise ValueError(f"metric={metric!r} is unknown; take 'l2' or 'kl'")


def feddisco_weights(shares, d, a, b):
    """p_k = relu(n_k - a d_k + b) / sum_j relu(n_j - a d_j + b); n_k if no term is positive."""
    terms = np.maximum(shares - a * np.asarray(d) + b, 0.0)
    return terms / terms.sum() if terms.sum() > 0 else shares
