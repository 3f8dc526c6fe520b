"""Projections and quadratic programmes against scipy, their optimality conditions, and the papers' vectors."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import minimize

from fedeba_jax.solvers import (
    min_norm_weights,
    online_newton,
    project_capped_simplex,
    project_simplex,
    without_conflicts,
)
from tests.twins.solvers import stationarity_gap

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


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_box_without_room_leaves_one_point(x64, dtype):
    for n in SIZES:
        point = np.random.default_rng(n).dirichlet(np.ones(n)).astype(dtype)  # its sum rounds to above or below 1
        np.testing.assert_array_equal(project_capped_simplex(np.linspace(-9, 9, n).astype(dtype), point, point), point)


def test_equal_entries_share():
    x = project_capped_simplex(jnp.full(4, 5.0), jnp.zeros(4), jnp.full(4, 0.25))
    np.testing.assert_array_equal(x, [0.25] * 4)
    x = project_capped_simplex(jnp.full(4, -5.0), jnp.array([0.1, 0, 0, 0]), jnp.array([1, 1, 0.2, 1]))
    np.testing.assert_allclose(x, [0.8 / 3, 0.8 / 3, 0.2, 0.8 / 3], atol=1e-6)


# The shortest mixture.

MGDA = np.array([(2, 0, 0), (0, 1, 0), (0.3, 0.3, 0.9)])  # FedMGDA+


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(
    ("eps", "weights", "objective"),
    [
        (0.0, (1 / 3, 1 / 3, 1 / 3), 0.46733838),
        (0.03, (0.3483333, 0.3483333, 0.3033333), 0.46211543),
        (0.1, (0.3833333, 0.3833333, 0.2333333), 0.45620739),
        (1.0, (0.3893569, 0.3893569, 0.2212861), 0.45607721),
    ],
)
def test_min_norm_vectors(x64, dtype, eps, weights, objective):
    u = (MGDA / np.linalg.norm(MGDA, axis=1, keepdims=True)).astype(dtype)
    start = np.full(3, 1 / 3, dtype)
    x = min_norm_weights(u @ u.T, start, np.maximum(start - eps, 0), np.minimum(start + eps, 1))
    tolerance = {np.float32: 1e-6, np.float64: 6e-8}[dtype]
    np.testing.assert_allclose(x, weights, atol=tolerance)
    np.testing.assert_allclose(np.sum((x @ u) ** 2), objective, atol=tolerance)


@every_size
@pytest.mark.parametrize("common", [0.0, 1.0, 10.0])
def test_min_norm_against_slsqp(x64, n, common):
    rng = np.random.default_rng(n)
    u = units(n, max(n, 30), rng, common)
    gram = u @ u.T
    for start, lower, upper in (box(n, rng), (np.full(n, 1 / n), np.zeros(n), np.ones(n))):
        x = np.asarray(min_norm_weights(gram, start, lower, upper))
        assert_feasible(x, lower, upper, atol=1e-13)
        assert stationarity_gap(2 * gram, np.zeros(n), lower, upper, x) < 1e-9
        expected = slsqp(2 * gram, np.zeros(n), lower, upper, start)
        np.testing.assert_allclose(x @ gram @ x, expected @ gram @ expected, atol=1e-9)
        np.testing.assert_allclose(x, expected, atol=2e-5)  # SLSQP stops at differences of its objective


@every_size
@pytest.mark.parametrize("common", [0.0, 1.0, 10.0])
@pytest.mark.parametrize("dim", ["square", 1000])
def test_min_norm_in_float32(n, common, dim):
    """Within 3e-6 of the weights; with vectors that nearly agree the weights matter less, and the direction is."""
    rng = np.random.default_rng(n)
    u = units(n, n if dim == "square" else dim, rng, common)
    start, lower, upper = box(n, rng)
    x = np.asarray(min_norm_weights(*(v.astype(np.float32) for v in (u @ u.T, start, lower, upper))))
    assert_feasible(x, lower.astype(np.float32), upper.astype(np.float32))
    with jax.enable_x64(True):
        exact = np.asarray(min_norm_weights(u @ u.T, start, lower, upper))
    assert np.linalg.norm((x - exact) @ u) < 3e-6
    np.testing.assert_allclose(x, exact, atol=3e-6 if common < 10 else 1e-3)


@pytest.mark.parametrize("n", [10, 100])
def test_min_norm_of_groups_that_nearly_agree(n):
    """Three opinions, 5 % apart inside each: an ill-conditioned matrix, where the objective is what counts."""
    rng = np.random.default_rng(0)
    u = rng.normal(size=(3, 1000))[rng.integers(0, 3, n)] + 0.05 * rng.normal(size=(n, 1000))
    u /= np.linalg.norm(u, axis=1, keepdims=True)
    start = np.full(n, 1 / n)
    x = np.asarray(min_norm_weights(*(v.astype(np.float32) for v in (u @ u.T, start, np.zeros(n), np.ones(n)))))
    best = slsqp(2 * u @ u.T, np.zeros(n), np.zeros(n), np.ones(n), start)
    assert np.sum((x @ u) ** 2) < np.sum((best @ u) ** 2) + 8e-6


@pytest.mark.parametrize("n", [2, 10, 100])
def test_min_norm_of_dependent_vectors(n):
    """Fewer dimensions than vectors: many weights serve, the direction is one."""
    rng = np.random.default_rng(n)
    u = units(n, max(1, n // 3), rng)
    start, lower, upper = box(n, rng)
    x = np.asarray(min_norm_weights(*(v.astype(np.float32) for v in (u @ u.T, start, lower, upper))))
    assert_feasible(x, lower.astype(np.float32), upper.astype(np.float32))
    expected = slsqp(2 * u @ u.T, np.zeros(n), lower, upper, start)
    assert np.sum((x @ u) ** 2) < np.sum((expected @ u) ** 2) + 8e-6


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@every_size
def test_mixtures_that_do_not_differ_stay_at_the_start(x64, n, dtype):
    start, lower, upper = (v.astype(dtype) for v in box(n, np.random.default_rng(n)))
    for gram in (np.zeros((n, n)), np.ones((n, n)), np.full((n, n), 1e-20), 1 + 1e-8 * np.eye(n)[::-1].cumsum(1)):
        if dtype == np.float64 and 1 < gram.max() < 2:
            continue  # float64 sees the difference
        x = min_norm_weights(gram.astype(dtype), start, lower, upper)
        np.testing.assert_allclose(x, start, atol=4 * np.finfo(dtype).eps)


def test_identical_rows_are_interchangeable(x64):
    u = np.array([(1.0, 0), (1, 0), (0, 1), (0, 1), (0, 1)])
    x = np.asarray(min_norm_weights(u @ u.T, np.full(5, 0.2), np.zeros(5), np.ones(5)))
    np.testing.assert_allclose(x @ u, (0.5, 0.5), atol=1e-12)
    np.testing.assert_allclose(x, (0.25, 0.25, 1 / 6, 1 / 6, 1 / 6), atol=1e-12)


def test_a_vector_of_zero_takes_all(x64):
    x = min_norm_weights(np.diag([0.0, 1.0, 1.0]), np.full(3, 1 / 3), np.zeros(3), np.ones(3))
    np.testing.assert_allclose(x, (1, 0, 0), atol=1e-9)


def test_min_norm_ignores_the_scale_of_the_vectors(x64):
    rng = np.random.default_rng(0)
    u = units(6, 9, rng)
    start, lower, upper = box(6, rng)
    x = min_norm_weights(u @ u.T, start, lower, upper)
    for scale in (1e-30, 1e20):
        np.testing.assert_allclose(min_norm_weights(scale * (u @ u.T), start, lower, upper), x, atol=1e-12)


# The online Newton step.


@every_size
def test_online_newton_against_slsqp(x64, n):
    rng = np.random.default_rng(n)
    history = rng.uniform(size=(20, n)) / n
    hessian, linear = n / 4 * history.T @ history, -rng.uniform(size=n) * 20 / n
    for ridge in (4.0, 0.1):
        p = np.asarray(online_newton(linear, hessian, ridge, np.full(n, 1 / n)))
        assert_feasible(p, atol=1e-13)
        quadratic = hessian + ridge * np.eye(n)
        assert stationarity_gap(quadratic, linear, np.zeros(n), np.ones(n), p) < 1e-11
        expected = slsqp(quadratic, linear, np.zeros(n), np.ones(n), np.full(n, 1 / n))
        np.testing.assert_allclose(p, expected, atol=1e-6)


def test_online_newton_limits(x64):
    start = np.array([0.5, 0.3, 0.2])
    y = np.array([0.9, 0.4, -0.1])
    np.testing.assert_allclose(
        online_newton(-2.0 * y, np.zeros((3, 3)), 2.0, start), project_simplex(y), atol=1e-12
    )  # a ridge alone projects
    np.testing.assert_allclose(online_newton(np.array([1.0, 0, 2]), np.zeros((3, 3)), 0.0, start), [0, 1, 0])
    np.testing.assert_allclose(online_newton(np.zeros(3), np.zeros((3, 3)), 0.0, start), start, atol=1e-15)


def test_online_newton_in_float32():
    rng = np.random.default_rng(1)
    n = 100
    history = rng.uniform(size=(2000, n)) / n
    arguments = (-history.sum(0), n / 4 * history.T @ history, 4.0, np.full(n, 1 / n))
    p = online_newton(*(np.asarray(v, np.float32) for v in arguments))
    assert p.dtype == np.float32
    with jax.enable_x64(True):
        exact = np.asarray(online_newton(*arguments, iterations=3000))
    np.testing.assert_allclose(p, exact, atol=1e-6)


# Projections among vectors.


@every_size
def test_without_conflicts_against_projections_of_the_vectors(x64, n):
    rng = np.random.default_rng(n)
    u = rng.normal(size=(n, 7))
    u[n // 2] *= n != 10  # one of them is zero
    order = rng.permutation(n)
    for mended in {0, n // 2, n}:
        expected = u.copy()
        for i in order[:mended]:
            for j in order:
                if j != i and expected[i] @ u[j] < 0:
                    expected[i] -= (expected[i] @ u[j]) / (u[j] @ u[j]) * u[j]
        weights = np.asarray(without_conflicts(u @ u.T, order, mended))
        assert np.all(weights >= 0)
        np.testing.assert_allclose(weights @ u, expected, atol=1e-9)
        np.testing.assert_array_equal(weights[order[mended:]], np.eye(n)[order[mended:]])


def test_nobody_is_mended_where_nobody_is_opposed(x64):
    u = np.random.default_rng(0).uniform(size=(6, 4))
    np.testing.assert_array_equal(without_conflicts(u @ u.T, np.arange(6), 6), np.eye(6))
    np.testing.assert_array_equal(without_conflicts(np.zeros((6, 6)), np.arange(6), 6), np.eye(6))


def test_solvers_compile_and_map(x64):
    rng = np.random.default_rng(0)
    start, lower, upper = (np.stack(v) for v in zip(*(box(5, rng) for _ in range(3)), strict=True))
    u = np.stack([units(5, 8, rng) for _ in range(3)])
    gram = u @ u.transpose(0, 2, 1)
    calls = [
        (project_simplex, (u[:, :, 0],)),
        (project_capped_simplex, (u[:, :, 0], lower, upper)),
        (min_norm_weights, (gram, start, lower, upper)),
        (online_newton, (-u[:, :, 0], gram, np.ones(3), start)),
        (lambda g, order: without_conflicts(g, order, 3), (gram, np.argsort(u[:, :, 0], axis=1))),
    ]
    for function, arguments in calls:
        mapped = jax.jit(jax.vmap(function))(*arguments)
        for i in range(3):
            single = function(*(v[i] for v in arguments))
            np.testing.assert_allclose(mapped[i], single, atol=1e-12)
