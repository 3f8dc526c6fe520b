"""Small problems for the NumPy twins of tests/twins, and how their results are read and compared."""

import numpy as np

from tests.twins import network
from tests.twins.baselines_personal import flatten
from tests.twins.problem import Problem

DELTAS = np.array([(-0.1, 0.2), (0.3, 0.0), (-0.2, -0.4)])  # with LOSSES, the vectors' usual round
LOSSES = np.array([0.5, 1.0, 2.0])
START = np.array([1.0, 2.0])


# Problems.


def linear_loss(params, x, y):
    """Mean of <x_r, w> over the rows: its gradient is the mean row, so that data dictate the steps."""
    return float(np.mean(x @ params[0][0]))


def linear_gradient(params, x, y):
    return [(x.mean(axis=0),)]


def quadratic_loss(params, x, y):
    """Mean of a (w - b)^2 / 2 over the rows (a, b)."""
    return float(np.mean(0.5 * x[:, 0] * (params[0][0][0] - x[:, 1]) ** 2))


def quadratic_gradient(params, x, y):
    return [(np.mean(x[:, :1] * (params[0][0] - x[:, 1:]), axis=0),)]


def full_batch_problem(rows, sizes, start, rate, steps, loss, gradient, rounds=1):
    """One row a client, repeated N_i times; everyone takes part, in full batches."""
    clients = range(len(rows))
    data = [(np.tile(row, (n, 1)), np.zeros(n, int)) for row, n in zip(rows, sizes, strict=True)]
    batches = {i: [np.arange(sizes[i])] * steps for i in clients}
    return Problem(
        params=[(np.array(start, float),)],
        data=data,
        cohorts=[list(clients)] * rounds,
        batches=[batches] * rounds,
        learning_rate=lambda t: rate,
        loss=loss,
        gradient=gradient,
    )


def linear(rows, sizes, rate):
    return full_batch_problem(rows, sizes, [1.0, 2.0], rate, 1, linear_loss, linear_gradient)


def quadratic(rows, sizes, start, rate, steps):
    return full_batch_problem(rows, sizes, [start], rate, steps, quadratic_loss, quadratic_gradient)


def toy(start=0.0, steps=1, sizes=(1, 1)):
    """The paper's toy case: F1 = 2 (x - 2)^2, F2 = (x + 4)^2 / 2, step 1/4."""
    return quadratic([(4.0, 2.0), (1.0, -4.0)], sizes, start, 0.25, steps)


def classification(seed=0, rounds=3, steps=(2, 2, 2, 2), sizes=(5, 8, 3, 6), cohort_size=3, full_batch=False):
    """A small network on four unlike clients; a batch is three of a client's examples, or all of them."""
    rng = np.random.default_rng(seed)
    clients = range(len(sizes))
    data = [(rng.normal(i, 1.0, (n, 4)), rng.integers(0, 3, n)) for i, n in enumerate(sizes)]

    def batch(i):
        return np.arange(sizes[i]) if full_batch else rng.choice(sizes[i], min(3, sizes[i]), replace=False)

    return Problem(
        params=network.random_params(rng, [4, 5, 3]),
        data=data,
        cohorts=[rng.choice(len(sizes), cohort_size, replace=False).tolist() for _ in range(rounds)],
        batches=[{i: [batch(i) for _ in range(steps[i])] for i in clients} for _ in range(rounds)],
        learning_rate=lambda t: 0.1 * 0.9**t,
    )


def dictated(deltas, losses, sizes=None, rate=0.1, cohorts=None, start=START):
    """Client i has loss losses[i] at every model and moves by deltas[i] in its one step."""
    deltas = np.asarray(deltas, float)
    sizes = sizes or [1] * len(deltas)
    rows = [np.append(-delta / rate, loss) for delta, loss in zip(deltas, losses, strict=True)]
    cohorts = cohorts or [list(range(len(deltas)))]
    return Problem(
        params=[(np.array(start, float),)],
        data=[(np.tile(row, (n, 1)), np.zeros(n, int)) for row, n in zip(rows, sizes, strict=True)],
        cohorts=cohorts,
        batches=[{i: [np.arange(n)] for i, n in enumerate(sizes)}] * len(cohorts),
        learning_rate=lambda t: rate,
        loss=lambda params, x, y: float(np.mean(x[:, -1])),
        gradient=lambda params, x, y: [(x[:, :-1].mean(axis=0),)],
    )


def bowls(centres, rate, steps, start, rounds=1):
    """F_i(v) = |v - c_i|^2 / 2."""
    return full_batch_problem(
        np.asarray(centres, float),
        [1] * len(centres),
        start,
        rate,
        steps,
        lambda params, x, y: float(0.5 * np.mean(np.sum((params[0][0] - x) ** 2, axis=1))),
        lambda params, x, y: [(params[0][0] - x.mean(axis=0),)],
        rounds,
    )


# Results.


def vector(model):
    """A model, or FOCUS's list of models, as one vector."""
    return np.concatenate([flatten(part) if isinstance(part, list) else flatten([part]) for part in model])


def last(trace):
    return vector(trace.params[-1])


def weights(trace, t=-1):
    return trace.diagnostics[t]["weights"]


def same(left, right, atol=1e-12):
    np.testing.assert_allclose(last(left), last(right), rtol=0, atol=atol)


def close(actual, expected, atol=6e-9):
    np.testing.assert_allclose(actual, expected, rtol=0, atol=atol)


def models(vectors):
    return [[(np.array(v, float),)] for v in vectors]
