"""AFL and AAggFF: published vectors, invariants, whole cohorts, and input that tempts a NaN."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedeba_jax.algorithms.aaggff import Memory, follow_leader, newton_step, online_newton, response
from fedeba_jax.algorithms.afl import ascend
from fedeba_jax.solvers import project_simplex
from tests.support import vectors
from tests.support.dictated import play
from tests.support.problems import tiny
from tests.support.programmes import assert_compiles_and_maps, assert_feasible, every_size, slsqp, three
from tests.support.vectors import UNIFORM
from tests.twins.solvers import stationarity_gap

LOSSES = np.array([0.5, 1.0, 2.0])
PARTICIPATION = ["all", "block", "full_simplex"]


def close(actual, expected, atol=6e-9):
    np.testing.assert_allclose(actual, expected, rtol=0, atol=atol)


# AFL.


@pytest.mark.parametrize(
    ("gamma", "expected"),
    [(0.0, UNIFORM), (0.1, (0.26666667, 0.31666667, 0.41666667)), (0.5, (0, 0.25, 0.75)), (0.7, (0, 0.15, 0.85))],
)
@pytest.mark.parametrize("participation", PARTICIPATION)
def test_afl_vector(x64, gamma, expected, participation):
    weights, (state,) = play("afl", LOSSES, gamma=gamma, participation=participation)
    close(state.server.memory.mixture, expected)
    close(weights[0], UNIFORM if participation == "all" else expected)


@pytest.mark.parametrize(
    ("participation", "mixture"),
    [
        ("full_simplex", (0.18, 0.13, 0.23, 0.13, 0.33)),
        ("block", (0.26666667, 0.2, 0.31666667, 0.2, 0.41666667)),
    ],
)
def test_the_ascent_of_a_cohort(x64, participation, mixture):
    close(ascend(jnp.full(5, 0.2), jnp.array([0, 2, 4]), jnp.asarray(LOSSES), 0.1, participation), mixture)


def test_afl_with_a_cohort(x64):
    losses = [0.5, 9.0, 1.0, 9.0, 2.0]
    weights, (state,) = play("afl", losses, cohorts=[[0, 2, 4]], gamma=0.1)
    close(weights[0], (0.26666667, 0, 0.31666667, 0, 0.41666667))
    close(state.server.memory.mixture[jnp.array([1, 3])], 1 / 3)  # a block starts at 1/n
    weights, _ = play("afl", losses, cohorts=[[4, 0, 2]], gamma=0.1, participation="full_simplex")
    close(weights[0], np.array([0.18, 0, 0.23, 0, 0.33]) / 0.74)


@pytest.mark.parametrize("participation", PARTICIPATION)
def test_the_old_mixture_is_the_new_one_of_the_round_before(x64, participation):
    losses = [LOSSES, 2 * LOSSES[::-1], LOSSES]
    old, new = (play("afl", losses, participation=participation, order=order) for order in ("old", "new"))
    close(old[0][0], UNIFORM)
    close(old[0][1:], new[0][:-1], atol=1e-12)
    close(old[1][-1].server.memory.mixture, new[1][-1].server.memory.mixture, atol=1e-12)


@pytest.mark.parametrize("participation", PARTICIPATION)
def test_afl_invariants(x64, participation):
    for gamma in (0.0, 0.4):
        weights, states = play("afl", [[0.7] * 3] * 2, gamma=gamma, participation=participation)
        close(weights, np.tile(UNIFORM, (2, 1)), atol=1e-12)
        close(states[-1].server.memory.mixture, UNIFORM, atol=1e-12)
    weights, states = play("afl", [LOSSES, LOSSES[::-1], LOSSES] * 3, gamma=0.3, participation=participation)
    for state in states:
        assert (state.server.memory.mixture >= 0).all()
        close(state.server.memory.mixture.sum(), 1, atol=1e-12)
    close(weights.sum(1), 1, atol=1e-12)
    _, (state,) = play("afl", LOSSES, gamma=1e3, participation=participation)
    close(state.server.memory.mixture, [0, 0, 1], atol=1e-12)


def test_afl_with_no_mass_in_the_cohort_is_uniform():
    """Client 2 takes all of lambda, then a cohort without it comes with losses of zero."""
    weights, _ = play("afl", [[0.0, 0.0, 50.0]] * 2, cohorts=[[0, 2], [0, 1]], gamma=1.0, participation="full_simplex")
    close(weights, [[0, 0, 1], [0.5, 0.5, 0]])


@pytest.mark.parametrize(
    ("hparams", "averaged"),
    [
        ({}, False),
        ({"average_iterate": True}, True),
        ({"participation": "full_simplex"}, False),
        ({"participation": "all"}, True),
        ({"participation": "all", "average_iterate": False}, False),
    ],
)
def test_the_global_model_of_afl_is_the_mean_iterate_if_that_is_kept(x64, hparams, averaged):
    weights, states = play("afl", [LOSSES] * 3, **hparams)
    iterates = np.cumsum(weights, axis=0)
    algorithm = tiny(6).algorithm("afl", **hparams)
    models = [algorithm.models(state) for state in states]
    for t in range(3):
        mean = iterates[: t + 1].mean(0)
        expected = {"global": mean, "iterate": iterates[t]} if averaged else {"global": iterates[t]}
        assert set(models[t]) == set(expected)
        for name, model in expected.items():
            close(models[t][name], model, atol=1e-12)


# AAggFF.

CDFS = {
    "normal": (0.28385458, 0.44320150, 0.76247474),
    "exponential": (0.34856094, 0.57562715, 0.81990769),
    "weibull": (0.16779250, 0.52034773, 0.94706950),
    "frechet": (0.09697197, 0.31140322, 0.55803515),
    "gumbel": (0.17019764, 0.31550997, 0.61290725),
    "logistic": (0.36090725, 0.46434633, 0.67134745),
    "published_normal": (1.21614542, 1.05679850, 0.73752526),
}


@pytest.mark.parametrize("cdf", CDFS)
def test_response_vectors(x64, cdf):
    close(response(jnp.asarray(LOSSES), cdf), CDFS[cdf])
    close(response(jnp.asarray(3 * LOSSES), cdf), CDFS[cdf])
    at_mean = response(jnp.ones(3), cdf)
    close(response(jnp.zeros(3), cdf), at_mean, atol=1e-12)
    assert np.isfinite(response(jnp.array([0.0, 1.0]), cdf)).all()


@pytest.mark.parametrize(("published", "p", "a"), vectors.AAGGFF)
def test_aaggff_d_vector(x64, published, p, a):
    losses = [0.5, 9.0, 1.0, 9.0, 9.0, 2.0]
    weights, (state,) = play("aaggff", losses, cohorts=[[0, 2, 5]], published_code=published)
    close(state.server.memory.p, p)
    close(weights[0], np.insert(a, [1, 2, 2], 0))
    if not published:  # G = -r~ / (1 + rbar)
        robust = np.array((0.03559945, 0.24825514, 0.19494637, 0.24825514, 0.24825514, 0.51421960))
        close(state.server.memory.gradients, -robust / 1.24825514)


def test_aaggff_s_vector(x64):
    losses = [LOSSES, [0.4, 1.1, 1.9], [0.6, 0.7, 2.2]]
    weights, states = play("aaggff", losses, variant="S")
    close(weights[0], (0.31815613, 0.32952870, 0.35231517))
    close(states[-1].server.memory.p, weights[-1], atol=1e-12)
    past, p = [], UNIFORM
    for row, state in zip(losses, states, strict=True):
        r = np.asarray(response(jnp.array(row), "normal")) / 3
        past.append((-r / (1 + p @ r), p))
        p = np.asarray(state.server.memory.p)

        def programme(p, past=tuple(past)):
            """sum <g, p> + alpha/2 |p|^2 + beta/2 sum <g, p - p_tau>^2."""
            return sum(g @ p + 0.375 * (g @ (p - q)) ** 2 for g, q in past) + 2 * p @ p

        for i in range(3):
            for j in range(3):
                assert programme(p) <= programme(p + 1e-4 * (np.eye(3)[i] - np.eye(3)[j])) + 1e-14


def test_aaggff_s_as_published_in_code_by_hand(x64):
    """p starts at 1, A at alpha I, no cross term: (4 + 3 + .75 g g') p = -g - nu."""
    r = np.array(CDFS["published_normal"]) / 3
    g = -r / (1 + r.sum())
    inverse = np.linalg.inv(7.0 * np.eye(3) + 0.75 * np.outer(g, g))
    nu = (-(inverse @ g).sum() - 1) / inverse.sum()
    close(play("aaggff", LOSSES, variant="S", published_code=True)[0][0], inverse @ (-g - nu), atol=1e-8)


@pytest.mark.parametrize("cdf", [name for name in CDFS if name != "published_normal"])
@pytest.mark.parametrize("variant", ["D", "S"])
def test_aaggff_invariants(x64, variant, cdf):
    weights, states = play("aaggff", [LOSSES] * 4, variant=variant, cdf=cdf)
    assert (np.diff(weights) > 0).all()  # a higher loss has a higher weight
    for state in states:
        assert (state.server.memory.p > 0).all()
        close(state.server.memory.p.sum(), 1, atol=1e-12)
    close(play("aaggff", [4 * LOSSES] * 4, variant=variant, cdf=cdf)[0], weights, atol=1e-12)


@pytest.mark.parametrize("losses", [[0.0] * 3, [0.7] * 3])
@pytest.mark.parametrize("published", [False, True])
@pytest.mark.parametrize("variant", ["D", "S"])
def test_equal_losses_have_equal_weights(variant, published, losses):
    close(play("aaggff", [losses] * 3, variant=variant, published_code=published)[0], 1 / 3, atol=1e-6)


@pytest.mark.parametrize("variant", ["D", "S"])
def test_the_published_code_favours_low_losses(variant):
    weights, _ = play("aaggff", [LOSSES] * 3, variant=variant, published_code=True)
    assert (np.diff(weights[0]) < 0).all()


def test_steps_in_float32_with_many_clients_and_rounds():
    """100 clients, fixed losses: D stays near FedAvg early; both stay on the simplex."""
    losses, ids = jax.random.uniform(jax.random.key(0), (100,), minval=0.2, maxval=3.0), jnp.arange(100)

    def device(memory, t):
        cohort = jax.random.choice(jax.random.fold_in(jax.random.key(1), t), 100, (10,), replace=False)
        memory = follow_leader(memory, cohort, response(losses[cohort], "normal"), t)
        return memory, memory.p[cohort] / memory.p[cohort].sum()

    def silo(memory, t):
        memory = newton_step(memory, ids, response(losses, "normal"), t)
        return memory, memory.p

    start = Memory(jnp.ones(100) / 100, jnp.zeros(100))
    _, weights = jax.jit(lambda m: jax.lax.scan(device, m, jnp.arange(400)))(start)
    assert weights[9].min() == pytest.approx(0.081, abs=0.015)
    assert weights[9].max() == pytest.approx(0.123, abs=0.015)
    spread = weights.max(1) - weights.min(1)
    assert spread[-50:].mean() > spread[:10].mean()
    start = start._replace(outer=jnp.zeros((100, 100)), cross=jnp.zeros(100))
    _, p = jax.jit(lambda m: jax.lax.scan(silo, m, jnp.arange(50)))(start)
    assert (p >= 0).all()
    close(p.sum(1), 1, atol=1e-5)
    assert (np.diff(p[-1][jnp.argsort(losses)]) >= -1e-7).all()


# The online Newton step of AAggFF-S.


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


def test_online_newton_compiles_and_maps(x64):
    start, _, _, u = three(np.random.default_rng(0))
    assert_compiles_and_maps(online_newton, (-u[:, :, 0], u @ u.transpose(0, 2, 1), np.ones(3), start))


# Choices.


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("afl", {"participation": "some"}),
        ("afl", {"order": "first"}),
        ("aaggff", {"variant": "X"}),
        ("aaggff", {"cdf": "published_normal"}),
    ],
)
def test_wrong_choices_are_refused(name, wrong):
    with pytest.raises(ValueError, match=f"{next(iter(wrong))}="):
        tiny(6).algorithm(name, **wrong)
