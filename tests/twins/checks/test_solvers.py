"""The twins' solvers: known answers, invariants, and SciPy's as a rival."""

import numpy as np
import pytest
from scipy.optimize import minimize

from tests.support.twin_problems import close
from tests.twins.solvers import box_simplex_qp, project_simplex, stationarity_gap


@pytest.mark.parametrize(
    ("y", "expected"),
    [
        ((0.5, 0.5, 0.5), (1 / 3, 1 / 3, 1 / 3)),
        ((0.2, 0.3, 1.4), (0, 0, 1)),
        ((-1.0, 0.4, 0.2, 2.0), (0, 0, 0, 1)),
        ((7.0,), (1.0,)),
        ((0.0, 0.0), (0.5, 0.5)),
    ],
)
def test_simplex_projection_vectors(y, expected):
    close(project_simplex(y), expected, atol=1e-15)


def test_simplex_projection_invariants():
    rng = np.random.default_rng(0)
    for n in (1, 2, 5, 10, 50):
        for spread in (0.01, 1.0, 100.0):
            y = rng.normal(0.0, spread, n)
            x = project_simplex(y)
            assert np.all(x >= 0)
            assert x.sum() == pytest.approx(1.0, abs=1e-12)
            close(project_simplex(x), x, atol=1e-14)
            close(project_simplex(y + 3.7), x, atol=1e-12)
            close(project_simplex(y[::-1]), x[::-1], atol=1e-12)


def test_simplex_projection_is_that_of_the_sort():
    rng = np.random.default_rng(1)
    for _ in range(100):
        y = rng.normal(size=6).round(1)  # ties
        u = np.sort(y)[::-1]
        rho = max(k for k in range(1, 7) if u[k - 1] + (1 - u[:k].sum()) / k > 0)
        close(project_simplex(y), np.maximum(y - (u[:rho].sum() - 1) / rho, 0), atol=1e-14)


def test_simplex_projection_survives_equal_entries_that_do_not_round():
    for n in range(1, 60):
        close(project_simplex(np.full(n, 0.1)), np.full(n, 1.0 / n), atol=1e-15)


@pytest.mark.parametrize("dim", [4, 12])
@pytest.mark.parametrize("eps", [0.02, 0.1, 1.0])
def test_box_simplex_qp_against_slsqp(dim, eps):
    rng = np.random.default_rng(dim)
    for _ in range(3):
        prior = rng.dirichlet(np.full(6, 5.0))
        U = rng.normal(0.3, 1.0, (6, dim))
        Q, c = U @ U.T, rng.normal(size=6)
        lower, upper = np.maximum(0, prior - eps), np.minimum(1, prior + eps)
        x = box_simplex_qp(Q, c, lower, upper, prior)
        assert x.sum() == pytest.approx(1.0, abs=1e-12)
        assert np.all((x >= lower) & (x <= upper))
        assert stationarity_gap(Q, c, lower, upper, x) < 1e-12
        rival = minimize(
            lambda z, Q=Q, c=c: 0.5 * z @ Q @ z + c @ z,
            prior,
            jac=lambda z, Q=Q, c=c: Q @ z + c,
            bounds=list(zip(lower, upper, strict=True)),
            constraints={"type": "eq", "fun": lambda z: z.sum() - 1, "jac": lambda z: np.ones(6)},
            method="SLSQP",
            options={"ftol": 1e-14, "maxiter": 500},
        )
        assert 0.5 * x @ Q @ x + c @ x <= rival.fun + 1e-9
        if dim > 6:
            close(x, rival.x, atol=1e-5)


def test_box_simplex_qp_degenerate():
    prior = np.array([0.2, 0.3, 0.5])
    zero = np.zeros(3)
    close(box_simplex_qp(np.eye(3), zero, prior, prior, prior), prior, atol=0)  # an empty box
    close(box_simplex_qp(np.zeros((3, 3)), zero, zero, np.ones(3), prior), prior, atol=0)  # nothing to gain
    close(box_simplex_qp(np.ones((3, 3)), zero, zero, np.ones(3), prior), prior, atol=0)  # identical updates
    close(box_simplex_qp(np.zeros((3, 3)), np.array([1.0, 0.0, 2.0]), zero, np.ones(3), prior), [0, 1, 0], atol=1e-15)
    close(box_simplex_qp(np.eye(1), np.zeros(1), np.zeros(1), np.ones(1), np.ones(1)), [1.0], atol=0)
