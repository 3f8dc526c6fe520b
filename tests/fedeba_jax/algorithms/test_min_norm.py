"""The shortest mixture of FedMGDA+: vectors, an independent solver, degenerate input."""

import jax
import numpy as np
import pytest

from fedeba_jax.algorithms import fedmgda_plus
from tests.support.programmes import assert_compiles_and_maps, assert_feasible, box, every_size, slsqp, three, units
from tests.twins.solvers import stationarity_gap

min_norm_weights = jax.jit(fedmgda_plus.min_norm_weights)  # one program for all cases of a size
MGDA = np.array([(2, 0, 0), (0, 1, 0), (0.3, 0.3, 0.9)])

LOSSES = np.array([0.5, 1.0, 2.0])
DELTAS = np.array([(-0.1, 0.2), (0.3, 0.0), (-0.2, -0.4)])  # they balance: 0 is a mixture of them
START = np.array([1.0, 2.0])
METHODS = {"qffl": {"q": 0.5}, "fedmgda_plus": {"eps": 0.1}, "fedfv": {"alpha": 0.1, "window": 1}}


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


def test_min_norm_compiles_and_maps(x64):
    start, lower, upper, u = three(np.random.default_rng(0))
    assert_compiles_and_maps(fedmgda_plus.min_norm_weights, (u @ u.transpose(0, 2, 1), start, lower, upper))
