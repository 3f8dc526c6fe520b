"""Quadratic programmes over the simplex, and an independent solver of them."""

import jax
import numpy as np
import pytest
from scipy.optimize import minimize

SIZES = [1, 2, 10, 100]
every_size = pytest.mark.parametrize("n", SIZES)


def slsqp(quadratic, linear, lower, upper, start):
    """argmin x'Qx / 2 + c'x over {lower <= x <= upper, sum x = 1}, by sequential least squares."""
    found = minimize(
        lambda x: x @ quadratic @ x / 2 + linear @ x,
        start,
        jac=lambda x: quadratic @ x + linear,
        bounds=np.stack([lower, upper], axis=1),
        constraints={"type": "eq", "fun": lambda x: x.sum() - 1, "jac": np.ones_like},
        method="SLSQP",
        options={"ftol": 1e-13, "maxiter": 200},
    )
    return np.clip(found.x, lower, upper)


def box(n, rng, width=1.5):
    """Bounds around a point of the simplex, some of them tight."""
    prior = rng.dirichlet(np.full(n, 2.0))
    return prior, np.maximum(prior - width * rng.uniform(size=n) / n, 0), np.minimum(prior + width / n, 1)


def units(n, dim, rng, common=0.0):
    """Unit vectors that share a direction, the more so the larger `common`."""
    vectors = rng.normal(size=(n, dim)) + common * rng.normal(size=dim)
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def assert_feasible(x, lower=0.0, upper=1.0, atol=1e-6):
    assert np.all(np.isfinite(x))
    assert np.all((x >= lower) & (x <= upper))
    np.testing.assert_allclose(np.sum(x), 1, atol=atol)


def assert_compiles_and_maps(function, arguments):
    """A function of one programme, over three stacked ones, compiled."""
    mapped = jax.jit(jax.vmap(function))(*arguments)
    for i in range(3):
        single = function(*(v[i] for v in arguments))
        np.testing.assert_allclose(mapped[i], single, atol=1e-12)


def three(rng):
    """Three programmes of five entries, stacked: start, lower, upper and unit vectors [3, 5, 8]."""
    start, lower, upper = (np.stack(v) for v in zip(*(box(5, rng) for _ in range(3)), strict=True))
    return start, lower, upper, np.stack([units(5, 8, rng) for _ in range(3)])
