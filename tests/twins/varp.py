"""FedVARP (Jhunjhunwala et al. 2022) as the server of any twin: Problem.aggregate."""

from tests.twins.algebra import add, combine, scale, subtract, zeros


def varp(problem):
    """v = sum_i a_i (Delta_i - y_i) + ybar, for a new run; y_j is client j's last update, ybar their mean.

    y holds Delta / eta_L of its round, and is used times eta_L of the current one.
    """
    y = [zeros(problem.params) for _ in problem.data]

    def aggregate(t, cohort, weights, deltas):
        rate = problem.learning_rate(t)
        surprises = [subtract(delta, scale(rate, y[i])) for delta, i in zip(deltas, cohort, strict=True)]
        mean = combine([1.0 / len(y)] * len(y), y)
        v = add(combine(weights, surprises), scale(rate, mean))
        for delta, i in zip(deltas, cohort, strict=True):
            y[i] = scale(1.0 / rate, delta)
        return v

    return aggregate
