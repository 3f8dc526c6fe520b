"""Projections onto the simplex and its boxes against scipy, their optimality conditions, and the papers' vectors.

Quadratic programmes are tested with the methods that solve them (FedMGDA+, AAggFF).
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedeba_jax import solvers
from tests.support.marks import slow_but
from tests.support.programmes import SIZES, assert_compiles_and_maps, assert_feasible, box, every_size, slsqp, three
from tests.twins.solvers import stationarity_gap

# One program for all cases of a size.
project_simplex, project_capped_simplex = map(jax.jit, (solvers.project_simplex, solvers.project_capped_simplex))

# Projections.


@pytest.mark.parametrize(
    ("y", "x"),
    [
        ((0.5, 0.5, 0.5), (1 / 3, 1 / 3, 1 / 3)),
        ((0.2, 0.3, 1.4), (0, 0, 1)),
        ((-1, 0.4, 0.2, 2), (0, 0, 0, 1)),
        ((1 / 3 + 0.05, 1 / 3 + 0.1, 1 / 3 + 0.2), (0.26666667, 0.31666667, 0.41666667)),  # AFL, gamma = 0.1
        ((1 / 3 + 0.25, 1 / 3 + 0.5, 1 / 3 + 1.0), (0, 0.25, 0.75)),  # gamma = 0.5
        ((1 / 3 + 0.35, 1 / 3 + 0.7, 1 / 3 + 1.4), (0, 0.15, 0.85)),  # gamma = 0.7
        ((0.25, 0.2, 0.3, 0.2, 0.4), (0.18, 0.13, 0.23, 0.13, 0.33)),
        ((7.0,), (1,)),
    ],
)
def test_simplex_vectors(x64, y, x):
    np.testing.assert_allclose(project_simplex(jnp.array(y)), x, atol=5e-9)


@every_size
def test_projections_against_slsqp(x64, n):
    rng = np.random.default_rng(n)
    for scale in (0.1, 3.0):
        y = rng.normal(0, scale, n)
        start, lower, upper = box(n, rng)
        x = project_simplex(y)
        assert_feasible(x, atol=1e-14)
        np.testing.assert_allclose(x, slsqp(np.eye(n), -y, np.zeros(n), np.ones(n), start), atol=1e-7)
        x = project_capped_simplex(y, lower, upper)
        assert_feasible(x, lower, upper, atol=1e-14)
        np.testing.assert_allclose(x, slsqp(np.eye(n), -y, lower, upper, start), atol=1e-7)
        assert stationarity_gap(np.eye(n), -y, lower, upper, np.asarray(x)) < 1e-13


@every_size
def test_projections_in_float32(n):
    rng = np.random.default_rng(n)
    for _ in range(20):
        y = rng.normal(0, 1, n).astype(np.float32)
        _, lower, upper = (bound.astype(np.float32) for bound in box(n, rng))
        for x, again, low, high in [
            (project_simplex(y), project_simplex, 0.0, 1.0),
            (project_capped_simplex(y, lower, upper), lambda v: project_capped_simplex(v, lower, upper), lower, upper),  # noqa: B023
        ]:
            assert x.dtype == np.float32
            assert_feasible(x, low, high)
            np.testing.assert_allclose(again(x), x, atol=3e-7)  # idempotent


@every_size
def test_projections_ignore_a_common_shift(x64, n):
    rng = np.random.default_rng(n)
    y = rng.normal(size=n)
    _, lower, upper = box(n, rng)
    np.testing.assert_allclose(project_simplex(y + 100), project_simplex(y), atol=1e-12)
    np.testing.assert_allclose(
        project_capped_simplex(y - 100, lower, upper), project_capped_simplex(y, lower, upper), atol=1e-12
    )


def test_the_wide_box_is_the_simplex(x64):
    for y in np.random.default_rng(0).normal(size=(20, 7)):
        x = project_capped_simplex(y, np.zeros(7), np.ones(7))
        np.testing.assert_allclose(x, project_simplex(y), atol=1e-14)


@pytest.mark.parametrize("dtype", slow_but([np.float32], [np.float32, np.float64]))
def test_a_box_without_room_leaves_one_point(x64, dtype):
    for n in SIZES:
        point = np.random.default_rng(n).dirichlet(np.ones(n)).astype(dtype)  # its sum rounds to above or below 1
        np.testing.assert_array_equal(project_capped_simplex(np.linspace(-9, 9, n).astype(dtype), point, point), point)


def test_equal_entries_share():
    x = project_capped_simplex(jnp.full(4, 5.0), jnp.zeros(4), jnp.full(4, 0.25))
    np.testing.assert_array_equal(x, [0.25] * 4)
    x = project_capped_simplex(jnp.full(4, -5.0), jnp.array([0.1, 0, 0, 0]), jnp.array([1, 1, 0.2, 1]))
    np.testing.assert_allclose(x, [0.8 / 3, 0.8 / 3, 0.2, 0.8 / 3], atol=1e-6)


def test_projections_compile_and_map(x64):
    _, lower, upper, u = three(np.random.default_rng(0))
    assert_compiles_and_maps(solvers.project_simplex, (u[:, :, 0],))
    assert_compiles_and_maps(solvers.project_capped_simplex, (u[:, :, 0], lower, upper))


# Quadratic programmes.


@every_size
def test_a_quadratic_programme_against_slsqp(x64, n):
    """Over the simplex, with a linear term and a matrix that is not diagonal."""
    rng = np.random.default_rng(n)
    factors = rng.normal(size=(n, n))
    quadratic, linear = factors @ factors.T + 0.1 * np.eye(n), rng.normal(size=n)
    x = np.asarray(solvers.quadratic_programme(quadratic, linear, project_simplex, np.full(n, 1 / n), 3000))
    assert_feasible(x, atol=1e-13)
    assert stationarity_gap(quadratic, linear, np.zeros(n), np.ones(n), x) < 1e-8
    np.testing.assert_allclose(x, slsqp(quadratic, linear, np.zeros(n), np.ones(n), np.full(n, 1 / n)), atol=1e-6)
