"""FedVARP (Jhunjhunwala et al. 2022) as the server of any twin: Problem.aggregate."""

import numpy as np

from tests.twins.algebra import add, combine, scale, subtract, zeros


def varp(problem, steps=None):
    """v = sum_i a_i (Delta_i - y_i) + ybar, for a new run; y_j is client j's last update, ybar their mean.

    y holds Delta / (eta_L K_i), and is used times eta_L K_i of the current round, ybar times the cohort's mean of that.
    steps: K, for a twin that does not take the problem's batches.
    """
    y = [zeros(problem.params) for _ in problem.data]

    def aggregate(t, cohort, weights, deltas):
        reach = [problem.learning_rate(t) * (steps or len(problem.batches[t][i])) for i in cohort]
        surprises = [subtract(delta, scale(r, y[i])) for r, delta, i in zip(reach, deltas, cohort, strict=True)]
        mean = combine([1.0 / len(y)] * len(y), y)
        v = add(combine(weights, surprises), scale(float(np.mean(reach)), mean))
        for r, delta, i in zip(reach, deltas, cohort, strict=True):
            y[i] = scale(1.0 / r, delta)
        return v

    return aggregate
