"""Projections and small quadratic programmes, by methods that the fast code does not use."""

import numpy as np


def project_simplex(y):
    """The nearest point of {x >= 0, sum x = 1}: drop what max(y - theta, 0) makes zero until nothing is (Michelot)."""
    y = np.asarray(y, np.float64)
    support = list(range(len(y)))
    while True:
        theta = (sum(y[i] for i in support) - 1.0) / len(support)
        stays = [i for i in support if y[i] > theta]
        if len(stays) in (0, len(support)):  # 0: equal entries, that rounding puts at theta
            break
        support = stays
    x = np.zeros_like(y)
    x[support] = np.maximum(y[support] - theta, 0.0)
    return x


def box_simplex_qp(Q, c, lower, upper, start, tolerance=1e-14, most_steps=200_000):
    """argmin x'Qx / 2 + c'x over {sum x = 1, lower <= x <= upper}, from a feasible start.

    While an exchange between two coordinates pays, make the best one of the steepest pair (Platt's SMO). No such pair
    is left exactly at the solution: grad_i >= grad_j for all i that may rise and j that may fall.
    """
    x = np.array(start, np.float64)
    tolerance *= max(1.0, np.abs(c).max(), np.abs(Q).max())
    for _ in range(most_steps):
        gradient = Q @ x + c
        rises = min((i for i in range(len(x)) if x[i] < upper[i]), key=lambda i: gradient[i], default=None)
        falls = max((i for i in range(len(x)) if x[i] > lower[i]), key=lambda i: gradient[i], default=None)
        if rises is None or falls is None or gradient[falls] - gradient[rises] <= tolerance:
            return x
        room = min(upper[rises] - x[rises], x[falls] - lower[falls])
        curvature = Q[rises, rises] + Q[falls, falls] - 2.0 * Q[rises, falls]
        slope = gradient[falls] - gradient[rises]
        if slope < room * curvature:
            room = slope / curvature  # the parabola's bottom is inside the box
        x[rises] = min(x[rises] + room, upper[rises])
        x[falls] = max(x[falls] - room, lower[falls])
    raise RuntimeError(f"no solution to {tolerance} in {most_steps} exchanges")


def stationarity_gap(Q, c, lower, upper, x, margin=1e-12):
    """How far x is from the KKT conditions of box_simplex_qp: the steepest exchange that the box allows."""
    gradient = Q @ x + c
    may_rise = [gradient[i] for i in range(len(x)) if x[i] < upper[i] - margin]
    may_fall = [gradient[i] for i in range(len(x)) if x[i] > lower[i] + margin]
    return max(may_fall, default=-np.inf) - min(may_rise, default=np.inf)
