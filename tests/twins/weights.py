"""Aggregation weights, and the angle that measures how unequal the losses are."""

import numpy as np


def uniform_weights(problem, cohort):
    """a_i = 1 / n."""
    return np.full(len(cohort), 1.0 / len(cohort))


def example_weights(problem, cohort):
    """a_i = N_i / sum_{j in cohort} N_j."""
    sizes = np.array([problem.size(i) for i in cohort], np.float64)
    return sizes / sizes.sum()


def fedavg_weights(problem, cohort, weighting):
    """FedAvg's weights by name."""
    rules = {"uniform": uniform_weights, "examples": example_weights}
    return rules[weighting](problem, cohort)


def entropy_weights(losses, tau, prior):
    """p_i = q_i exp(F_i / tau) / sum_j q_j exp(F_j / tau) (the EBA proposition, with prior q)."""
    losses = np.asarray(losses, np.float64)
    exponents = np.log(prior) + (losses - losses.max()) / tau
    unnormalised = np.exp(exponents - exponents.max())
    return unnormalised / unnormalised.sum()


def prior_weights(problem, cohort, prior):
    """q: by number of examples, or uniform for None."""
    return fedavg_weights(problem, cohort, {None: "uniform", "examples": "examples"}[prior])


def angle_degrees(losses):
    """arccos(<L, 1> / (|L| |1|)) as the arctangent of L's parts across and along 1 (Algorithm 1, line 7)."""
    losses = np.asarray(losses, np.float64)
    across = losses - losses[0]
    across = across - across.mean()
    along = abs(losses.mean()) * np.sqrt(len(losses))
    return float(np.degrees(np.arctan2(np.linalg.norm(across), along)))
