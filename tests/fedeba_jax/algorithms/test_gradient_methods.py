"""q-FFL, FedMGDA+ and FedFV: published vectors, invariants, and input that tempts a NaN."""

import dataclasses
import functools
from itertools import pairwise

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedeba_jax import stack
from fedeba_jax.algorithms.fedfv import kept_clients, without_conflicts
from fedeba_jax.algorithms.fedmgda_plus import shortest_mixture
from fedeba_jax.algorithms.qffl import step_weights
from tests.support import vectors
from tests.support.dictated import play
from tests.support.problems import tiny
from tests.support.programmes import assert_compiles_and_maps, every_size, three
from tests.support.vectors import UNIFORM

LOSSES = np.array([0.5, 1.0, 2.0])
DELTAS = np.array([(-0.1, 0.2), (0.3, 0.0), (-0.2, -0.4)])  # they balance: 0 is a mixture of them
START = np.array([1.0, 2.0])
METHODS = {"qffl": {"q": 0.5}, "fedmgda_plus": {"eps": 0.1}, "fedfv": {"alpha": 0.1, "window": 1}}


def close(actual, expected, atol=6e-9):
    np.testing.assert_allclose(actual, expected, rtol=0, atol=atol)


def step(name, losses, **given):
    """The model's movement in one round."""
    return play(name, losses, **given)[0][0]


@functools.cache
def trained(name, **hparams):
    """The model after three rounds of the tiny problem."""
    problem, key = tiny(), jax.random.key(3)
    state, _ = jax.jit(lambda key: problem.train(problem.algorithm(name, **hparams), key, rounds=3))(key)
    return state.server.params


def same(left, right, atol=1e-12):
    jax.tree.map(lambda a, b: close(a, b, atol), left, right)


# Degenerate input, in float32.


@pytest.mark.parametrize("moves", [DELTAS, np.eye(3), np.zeros((3, 2)), 1e-20 * DELTAS, [(0, 0), (1, 0), (0, 2)]])
@pytest.mark.parametrize("name", METHODS)
def test_no_input_gives_a_nan(name, moves):
    losses = [[0.0] * 3, [0.7] * 3, [0.0, 0.0, 1.0], [1e-12, 1.0, 50.0]]
    movement, _ = play(name, losses, moves=moves, **METHODS[name])
    assert np.isfinite(movement).all()
    if not np.any(moves):
        close(movement, 0, atol=0)


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("cohort", [[0], [0, 1], [0, 1, 2]])
def test_identical_clients_are_one(x64, name, cohort):
    """q-FFL shortens its step; FedMGDA+ has its own; the direction is the clients'."""
    move = np.array([0.3, -0.4])
    actual = step(name, [0.7] * 3, moves=[move] * 3, cohorts=[cohort], **METHODS[name])
    length = {"qffl": 0.5 / (1 + 0.5 * 0.25 / 0.7), "fedmgda_plus": 1.0, "fedfv": 0.5}[name]
    close(actual, length * move / 0.5, atol=1e-9)


@pytest.mark.parametrize(
    ("name", "hparams"),
    [
        ("qffl", {"q": 0.0}),
        ("fedfv", {"alpha": 1.0, "window": 0}),
        ("fedfv", {"alpha": 1.0, "window": 9}),  # longer than the run
    ],
)
def test_what_is_left_without_the_idea_is_fedavg(x64, name, hparams):
    same(trained(name, **hparams), trained("fedavg", weighting="uniform"))


# q-FFL.


@pytest.mark.parametrize(
    ("q", "a", "model"),
    [
        (0.0, UNIFORM, (1.0, 1.93333333)),
        (0.5, (0.15265755, 0.21589037, 0.30531509), (0.98843834, 1.90840547)),
        (1.0, (0.07246377, 0.14492754, 0.28985507), (0.97826087, 1.89855072)),
    ],
)
def test_qffl_vector(x64, q, a, model):
    close(step_weights(LOSSES, np.sum(DELTAS**2, axis=1), q, 0.1), a)
    close(START + step("qffl", LOSSES, moves=DELTAS, rate=0.1, q=q), model)


@pytest.mark.parametrize(("q", "rate", "model"), [(1.0, 1.0, 8 / 21), (1.0, 0.25, 0.222), (2.0, 0.25, 0.143)])
def test_qffl_on_the_toy_case(x64, q, rate, model):
    """F_1 = 2 (x - 2)^2, F_2 = (x + 4)^2 / 2 at 0: both 8, and updates 2 and -1. The paper takes L = 1."""
    close(step("qffl", [8.0, 8.0], moves=[[2.0], [-1.0]], rate=rate, q=q), [model], atol=5e-4)


def test_qffl_invariants(x64):
    squares = np.sum(DELTAS**2, axis=1)
    for q in (0.001, 0.5, 1.0, 3.0, 15.0):
        a = np.asarray(step_weights(LOSSES, squares, q, 0.1))
        assert a.sum() <= 1
        np.testing.assert_allclose(a[1:] / a[0], (LOSSES[1:] / LOSSES[0]) ** q, rtol=1e-9 * (1 + q))
        equal = step_weights(np.full(3, 0.7), squares, q, 0.1)
        close(equal, equal[0], atol=1e-15)
        still = step_weights(LOSSES, np.zeros(3), q, 0.1)
        close(still, LOSSES**q / np.sum(LOSSES**q), atol=1e-9)


@pytest.mark.parametrize("q", [0.001, 0.5, 15.0, 100.0])
def test_qffl_powers_stay_in_float32(q):
    """0.01^100 is 0 and 50^100 infinite."""
    losses = jnp.array([1e-3, 0.01, 7.0, 50.0], jnp.float32)
    a = step_weights(losses, jnp.full(4, 1e-3), q, 0.1)
    with jax.enable_x64(True):
        exact = step_weights(np.asarray(losses, np.float64), np.full(4, 1e-3), q, 0.1)
    np.testing.assert_allclose(a, exact, rtol=1e-4, atol=1e-12)


def test_qffl_takes_the_rate_of_the_round(x64):
    """The tiny problem's rate decays; ten times the rate in L would change the weights."""
    problem = tiny()
    algorithm = problem.algorithm("qffl", rate=0.3, decay=0.5)
    _, info = jax.jit(lambda key: problem.train(algorithm, key, rounds=2))(jax.random.key(3))
    constant = problem.algorithm("qffl", rate=0.3, decay=1.0)
    _, other = jax.jit(lambda key: problem.train(constant, key, rounds=2))(jax.random.key(3))
    close(info["weight_sum"][0], other["weight_sum"][0])
    assert info["weight_sum"][1] > other["weight_sum"][1]  # |Delta|^2 / eta shrinks with the rate


def test_squared_norms_run_over_all_leaves(x64):
    rng = np.random.default_rng(0)
    one = {"u": rng.normal(size=(4, 2, 3)), "v": (rng.normal(size=4),)}
    flat = np.concatenate([one["u"].reshape(4, -1), one["v"][0][:, None]], axis=1)
    np.testing.assert_allclose(stack.squares(one), np.sum(flat**2, axis=1), atol=1e-14)


# FedMGDA+.

MGDA = np.array([(2, 0, 0), (0, 1, 0), (0.3, 0.3, 0.9)])


def mixture(deltas, prior, eps):
    return shortest_mixture(deltas @ deltas.T, np.asarray(prior), eps)[0]


def direction(deltas, prior, eps):
    return mixture(deltas, prior, eps) @ (deltas / np.linalg.norm(deltas, axis=1, keepdims=True))


@pytest.mark.parametrize(("eps", "expected", "squared"), vectors.MGDA)
def test_mgda_vector(x64, eps, expected, squared):
    close(mixture(MGDA, UNIFORM, eps), expected, atol=6e-8)
    for eta in (1.0, 0.5):
        movement = step("fedmgda_plus", LOSSES, moves=MGDA, eps=eps, eta=eta, prior="none")
        close(np.sum(movement**2), eta**2 * squared)


def test_mgda_direction(x64):
    close(step("fedmgda_plus", LOSSES, moves=MGDA, eps=0.0), (0.4338371, 0.4338371, 0.3015113), atol=6e-8)
    close(step("fedmgda_plus", LOSSES, moves=MGDA, eps=1.0), (0.4560772, 0.4560772, 0.2001609), atol=6e-8)
    lam, inverse_norms = shortest_mixture(MGDA @ MGDA.T, UNIFORM, 1.0)
    close(lam * inverse_norms, (0.1946785, 0.3893569, 0.2224009), atol=6e-8)


@pytest.mark.parametrize("eps", [0.03, 0.1, 1.0])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_mgda_stays_where_the_updates_balance(eps, dtype):
    with jax.enable_x64(dtype == "float64"):
        movement = step("fedmgda_plus", LOSSES, moves=DELTAS, eps=eps, prior="none")
        close(movement, 0, atol={"float32": 3e-7, "float64": 1e-12}[dtype])
    with jax.enable_x64(True):
        close(mixture(DELTAS, UNIFORM, eps), (0.3454915, 0.30901699, 0.3454915), atol=6e-8)


def test_mgda_priors(x64):
    shares = np.array([0.1, 0.3, 0.6])
    units = DELTAS / np.linalg.norm(DELTAS, axis=1, keepdims=True)
    given = {"moves": DELTAS, "counts": [10, 30, 60], "eps": 0.0}
    close(step("fedmgda_plus", LOSSES, **given), shares @ units, atol=1e-12)
    close(step("fedmgda_plus", LOSSES, **given, prior="none"), UNIFORM @ units, atol=1e-12)
    assert np.all(np.abs(mixture(DELTAS, shares, 0.05) - shares) <= 0.05 + 1e-15)


def test_mgda_invariants(x64):
    rng = np.random.default_rng(3)
    for _ in range(5):
        deltas, prior = rng.normal(0.2, 1.0, (6, 8)), rng.dirichlet(np.full(6, 4.0))
        units = deltas / np.linalg.norm(deltas, axis=1, keepdims=True)
        directions = [direction(deltas, prior, eps) for eps in (0.0, 0.01, 0.05, 0.2, 1.0)]
        squares = [d @ d for d in directions]
        assert all(after <= before + 1e-12 for before, after in pairwise(squares))
        assert np.all(units @ directions[-1] >= squares[-1] - 1e-12)  # every client improves
        assert squares[0] <= 1 + 1e-12
        rescaled = deltas * np.where(np.arange(6) == 2, 100.0, 1.0)[:, None]
        close(direction(rescaled, prior, 0.2), directions[3], atol=1e-9)


def test_mgda_with_updates_of_zero(x64):
    lam, inverse_norms = shortest_mixture(np.diag([0.0, 1.0, 1.0]), UNIFORM, 1.0)
    close(lam, (1, 0, 0), atol=1e-9)  # a client that is content stops the others
    close(inverse_norms, (0, 1, 1), atol=0)
    lam, inverse_norms = shortest_mixture(np.zeros((3, 3)), UNIFORM, 0.1)
    close(lam, UNIFORM, atol=1e-15)
    close(inverse_norms, 0, atol=0)


# FedFV.

CONFLICT = np.array([(1, 0, 0), (-1, 1, 0), (-1, -2, 1)])  # pseudo-gradients: every pair conflicts


@pytest.mark.parametrize(
    ("alpha", "expected"),
    [
        (0.0, (-0.30795659, -0.18951175, 0.45009040)),
        (0.34, (-0.24611679, -0.37864122, 0.35970916)),
        (0.67, (-0.42600643, -0.24343225, 0.30429031)),
        (1.0, (-1 / 3, -1 / 3, 1 / 3)),
    ],
)
def test_fedfv_vector(x64, alpha, expected):
    movement, states = play("fedfv", LOSSES, moves=-CONFLICT, alpha=alpha, window=0)
    close(-movement[0], expected)
    close(np.linalg.norm(movement[0]), 0.57735027)
    assert states[0].server.memory == ()


@pytest.mark.parametrize(
    ("older", "newer", "expected"),
    [
        ([(1, 1, 1)], [(0, 1, 1), (1, 0, 0)], (0, -0.31392919, 0.48454288)),
        ([(0, -1, 0), (1, 1, 1)], [(-1, 0, -1)], (-0.33796113, -0.32387942, 0.33796113)),
    ],
)
def test_fedfv_history(x64, older, newer, expected):
    """Cohorts are equally large here: clients without an update, who conflict with nobody, fill the earlier ones."""
    fill = [(0, 0, 0)] * 3
    gradients = np.array([*CONFLICT, *older, *newer, *fill])
    first = [3 + i for i in range(len(older))]
    second = [3 + len(older) + i for i in range(len(newer))]
    spare = [3 + len(older) + len(newer) + i for i in range(3)]
    cohorts = [(first + spare)[:3], (second + spare[::-1])[:3], [0, 1, 2]]
    losses = np.tile([*LOSSES, *[1.0] * (len(gradients) - 3)], (3, 1))
    movement, _ = play("fedfv", losses, moves=-gradients, cohorts=cohorts, alpha=0.34, window=2)
    close(-movement[2], expected)


@pytest.mark.parametrize(
    ("cohorts", "window", "opposed"),
    [
        ([[1], [2], [0]], 1, False),  # client 1 is two rounds ago
        ([[1], [2], [0]], 2, True),
        ([[2], [1], [0]], 1, True),
        ([[1], [1], [0]], 1, True),
        ([[1], [1], [0]], 2, True),  # the latest time counts, once
        ([[2], [1], [1]], 1, False),  # client 1 is here again
        ([[1], [0]], 2, False),  # t < tau
        ([[2], [2], [1], [2], [0]], 2, True),  # slots are used again
        ([[2], [1], [2], [2], [2], [0]], 3, False),
    ],
)
def test_fedfv_remembers_who_opposed(x64, cohorts, window, opposed):
    gradients = np.array([(1.0, 0.2), (-1.0, 0.0), (1.0, 0.1)])
    losses = np.tile(LOSSES, (len(cohorts), 1))
    movement, _ = play("fedfv", losses, moves=-gradients, cohorts=cohorts, alpha=1.0, window=window)
    own = -gradients[cohorts[-1][0]]
    expected = np.array([0.0, -np.linalg.norm(own)]) if opposed else own
    close(movement[-1], expected, atol=1e-12)


def test_fedfv_current_window_sees_its_own_round(x64):
    """alpha = 1 keeps every g_i; their mean (-1, -1, 1) / 3 conflicts with g_0 alone, and loses that part."""
    movement, states = play("fedfv", LOSSES, moves=-CONFLICT, alpha=1.0, window=1, fv_window="current")
    mean = CONFLICT.mean(axis=0)
    left = mean - CONFLICT[0] * (mean @ CONFLICT[0])
    close(-movement[0], left * np.linalg.norm(mean) / np.linalg.norm(left), atol=1e-12)
    assert states[0].server.memory == ()  # it needs no history


def test_fedfv_current_window_begins_a_round_later(x64):
    given = {"moves": -CONFLICT, "alpha": 1.0, "window": 2, "fv_window": "current"}
    movement, _ = play("fedfv", [LOSSES] * 2, **given)
    close(-movement[0], CONFLICT.mean(axis=0), atol=1e-12)
    assert np.abs(movement[1] - movement[0]).max() > 0.1


@pytest.mark.parametrize(
    ("n", "alpha", "kept"),
    [(10, 0.0, 0), (10, 0.1, 1), (10, 0.2, 2), (10, 0.5, 5), (10, 1.0, 10), (10, 1e-3, 1), (11, 0.7, 8), (1, 0.1, 1)],
)
def test_fedfv_kept_clients(n, alpha, kept):
    assert kept_clients(n, alpha) == kept


def test_fedfv_invariants(x64):
    rng = np.random.default_rng(2)
    for n in (2, 5):
        gradients, losses = rng.normal(size=(n, 3)), rng.uniform(size=n)
        movement = step("fedfv", losses, moves=-gradients, alpha=0.2, window=0)
        close(np.linalg.norm(movement), np.linalg.norm(gradients.mean(axis=0)), atol=1e-12)
        friends = rng.uniform(size=(n, 3))  # no conflict: FedAvg
        close(step("fedfv", losses, moves=-friends, alpha=0.2, window=0), -friends.mean(axis=0), atol=1e-12)
    for _ in range(5):
        pair = rng.normal(size=(2, 3))
        movement = step("fedfv", [0.3, 0.1], moves=-pair, alpha=0.0, window=0)
        assert np.min(-pair @ movement) >= -1e-12


def test_fedfv_ties_go_by_place_in_the_cohort(x64):
    """With equal losses the client in the last place is the worst-off: nobody's projection comes after its own."""
    for cohort in ([0, 1, 2], [2, 1, 0], [1, 2, 0]):
        movement = step("fedfv", [1.0] * 3, moves=-CONFLICT, cohorts=[cohort], alpha=0.34, window=0)
        ranked = np.empty(3)
        ranked[cohort] = LOSSES
        close(movement, step("fedfv", ranked, moves=-CONFLICT, cohorts=[cohort], alpha=0.34, window=0), atol=1e-12)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("factor", [1.0, 0.3, 1e-3])
def test_fedfv_does_not_follow_the_rounding_of_updates_that_cancel(dtype, factor):
    """Opposite updates leave nothing; scaled up to the length of the mean, their rounding would be a step."""
    move = np.random.default_rng(0).normal(size=50)
    with jax.enable_x64(dtype == "float64"):
        given = {"moves": [move, -factor * move], "alpha": 0.0}
        movement, _ = play("fedfv", [[1.0, 2.0]] * 3, **given, cohorts=[[0, 1]] * 3, window=1)
        close(movement, 0, atol=1e-6)
        movement, _ = play("fedfv", [[1.0, 2.0]] * 2, **given, cohorts=[[1], [0]], window=1)  # the past opposes all
        close(movement[1], 0, atol=1e-6)


def test_fedfv_keeps_a_window_of_updates():
    problem = dataclasses.replace(tiny(), rate=0.1)
    for hparams, slots in [
        ({"window": 3}, 4),
        ({"window": 3, "fv_window": "current"}, 3),
        ({"window": 0}, 0),
        ({"window": 0, "fv_window": "current"}, 0),
        ({"window": 1, "fv_window": "current"}, 0),
    ]:
        algorithm = problem.algorithm("fedfv", **hparams)
        state = jax.eval_shape(lambda k, a=algorithm: a.init(k, problem.model.init, problem.sizes), jax.random.key(0))
        kept = [leaf.shape for leaf in jax.tree.leaves(state.server.memory)]
        model = [leaf.shape for leaf in jax.tree.leaves(state.server.params)]
        assert kept == ([(4, slots, *shape) for shape in model] + [(slots, 4), (6,)] if slots else [])


# Projections among vectors of FedFV.


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


def test_without_conflicts_compiles_and_maps(x64):
    *_, u = three(np.random.default_rng(0))
    arguments = (u @ u.transpose(0, 2, 1), np.argsort(u[:, :, 0], axis=1))
    assert_compiles_and_maps(lambda gram, order: without_conflicts(gram, order, 3), arguments)


# Options.


def test_an_unknown_option_is_refused():
    with pytest.raises(ValueError, match="fv_window='future' is not one of past, current"):
        tiny().algorithm("fedfv", fv_window="future")
    with pytest.raises(ValueError, match="prior='size' is not one of none, examples"):
        tiny().algorithm("fedmgda_plus", prior="size")
