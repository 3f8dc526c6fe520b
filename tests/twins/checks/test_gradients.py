"""The twins of FedMGDA+ and FedFV: published vectors, cases by hand, invariants, inputs that tempt a NaN."""

from itertools import pairwise

import numpy as np
import pytest

from tests.support import vectors
from tests.support.twin_problems import (
    DELTAS,
    LOSSES,
    START,
    classification,
    close,
    dictated,
    last,
    models,
    same,
    vector,
    weights,
)
from tests.support.vectors import UNIFORM
from tests.twins.algebra import combine, dot, norm, scale, subtract
from tests.twins.averaging import fedavg
from tests.twins.baselines_gradients import (
    fedfv,
    fedmgda_plus,
    kept_clients,
    mgda_weights,
    mitigate_external,
    mitigate_internal,
    past_rounds,
    rescaling,
)
from tests.twins.local import local_sgd

# FedMGDA+.

MGDA = models([(2, 0, 0), (0, 1, 0), (0.3, 0.3, 0.9)])


@pytest.mark.parametrize(("eps", "lam", "objective"), vectors.MGDA)
def test_mgda_vector(eps, lam, objective):
    a, actual, d = mgda_weights(MGDA, UNIFORM, eps)
    close(actual, lam, atol=6e-8)
    assert dot(d, d) == pytest.approx(objective, abs=6e-9)
    close(a, actual / [2, 1, 0.99498744], atol=1e-8)


def test_mgda_direction():
    close(vector(mgda_weights(MGDA, UNIFORM, 0.0)[2]), (-0.4338371, -0.4338371, -0.3015113), atol=6e-8)
    a, _, d = mgda_weights(MGDA, UNIFORM, 1.0)
    close(mgda_weights(MGDA, UNIFORM, 2 / 3)[1], mgda_weights(MGDA, UNIFORM, 1.0)[1], atol=0)  # 1 - 1/n frees all
    close(vector(d), (-0.4560772, -0.4560772, -0.2001609), atol=6e-8)
    close(a, (0.1946785, 0.3893569, 0.2224009), atol=6e-8)


def test_mgda_twin_steps_by_the_direction():
    deltas = np.array([(2, 0, 0), (0, 1, 0), (0.3, 0.3, 0.9)])
    trace = fedmgda_plus(dictated(deltas, LOSSES, start=np.zeros(3)), eps=1.0, eta=0.5, prior="uniform")
    close(last(trace), 0.5 * np.array([0.4560772, 0.4560772, 0.2001609]), atol=6e-8)
    close(last(trace), -0.5 * vector(trace.diagnostics[0]["direction"]), atol=1e-12)


@pytest.mark.parametrize("eps", [0.03, 0.1, 1.0])
def test_mgda_stays_where_the_updates_balance(eps):
    trace = fedmgda_plus(dictated(DELTAS, LOSSES), eps=eps, prior="uniform")
    close(trace.diagnostics[0]["lambda"], (0.3454915, 0.30901699, 0.3454915), atol=6e-8)
    close(last(trace), START, atol=1e-12)


def test_mgda_priors():
    sizes = dictated(DELTAS, LOSSES, sizes=[10, 30, 60])
    close(fedmgda_plus(sizes, eps=0.0).diagnostics[0]["lambda"], [0.1, 0.3, 0.6], atol=1e-15)
    close(fedmgda_plus(sizes, eps=0.0, prior="uniform").diagnostics[0]["lambda"], UNIFORM, atol=1e-15)
    units = DELTAS / np.linalg.norm(DELTAS, axis=1, keepdims=True)
    close(last(fedmgda_plus(sizes, eps=0.0)), START + [0.1, 0.3, 0.6] @ units, atol=1e-12)
    lam = fedmgda_plus(sizes, eps=0.05).diagnostics[0]["lambda"]
    assert np.all(np.abs(lam - [0.1, 0.3, 0.6]) <= 0.05 + 1e-15)


def test_mgda_invariants():
    rng = np.random.default_rng(3)
    for _ in range(5):
        deltas = models(rng.normal(0.2, 1.0, (6, 8)))
        prior = rng.dirichlet(np.full(6, 4.0))
        directions = [mgda_weights(deltas, prior, eps)[2] for eps in (0.0, 0.01, 0.05, 0.2, 1.0)]
        objectives = [dot(d, d) for d in directions]
        assert all(after <= before + 1e-12 for before, after in pairwise(objectives))
        d = directions[-1]
        for delta in deltas:  # a common descent direction
            assert dot(d, scale(-1.0 / norm(delta), delta)) >= dot(d, d) - 1e-12
        assert norm(d) <= 1 + 1e-12
        rescaled = [scale(100.0 if i == 2 else 1.0, delta) for i, delta in enumerate(deltas)]
        close(vector(mgda_weights(rescaled, prior, 0.2)[2]), vector(directions[3]), atol=1e-9)


def test_mgda_with_updates_of_zero():
    a, lam, d = mgda_weights(models([(0, 0), (1, 0), (0, 1)]), UNIFORM, 1.0)
    assert np.all(np.isfinite(a))
    assert lam[0] == pytest.approx(1.0)  # a client that is content stops the others
    assert norm(d) < 1e-12
    a, lam, d = mgda_weights(models([(0, 0)] * 3), UNIFORM, 0.1)
    close(a, [0, 0, 0], atol=0)
    close(lam, UNIFORM, atol=0)


# FedFV.

CONFLICT = models([(1, 0, 0), (-1, 1, 0), (-1, -2, 1)])


def fedfv_direction(alpha, groups=(), losses=LOSSES, gradients=CONFLICT):
    gbar, _ = mitigate_internal(gradients, losses, alpha)
    gbar, _ = mitigate_external(gbar, [dict(enumerate(group)) for group in groups])
    return vector(gbar), vector(scale(rescaling(gradients, gbar), gbar))


@pytest.mark.parametrize(
    ("alpha", "expected"),
    [
        (0.0, (-0.30795659, -0.18951175, 0.45009040)),
        (0.34, (-0.24611679, -0.37864122, 0.35970916)),
        (0.67, (-0.42600643, -0.24343225, 0.30429031)),
        (1.0, (-1 / 3, -1 / 3, 1 / 3)),
    ],
)
def test_fedfv_vector(alpha, expected):
    close(fedfv_direction(alpha)[1], expected)
    trace = fedfv(dictated(-np.array([vector(g) for g in CONFLICT]), LOSSES, start=np.zeros(3)), alpha=alpha, window=0)
    close(-last(trace), expected)
    assert norm(trace.params[0]) == pytest.approx(0.57735027, abs=6e-9)


def test_fedfv_projections():
    gbar, a = mitigate_internal(CONFLICT, LOSSES, 0.0)
    close(vector(gbar), np.mean([(0.25, 0, 0.25), (-1 / 3, 1 / 3, 1 / 3), (-1, -1, 1)], axis=0), atol=1e-15)
    close(vector(combine(a, CONFLICT)), vector(gbar), atol=1e-15)
    close(fedfv_direction(0.34)[0], (-0.36111111, -0.55555556, 0.52777778))


@pytest.mark.parametrize(
    ("groups", "gbar", "scaled"),
    [
        (
            [[(1, 1, 1)], [(0, 1, 1), (1, 0, 0)]],
            (0, -0.42592593, 0.65740741),
            (0, -0.31392919, 0.48454288),
        ),
        (
            [[(0, -1, 0), (1, 1, 1)], [(-1, 0, -1)]],
            (-0.44444444, -0.42592593, 0.44444444),
            (-0.33796113, -0.32387942, 0.33796113),
        ),
    ],
)
def test_fedfv_history(groups, gbar, scaled):
    actual = fedfv_direction(0.34, [models(group) for group in groups])
    close(actual[0], gbar)
    close(actual[1], scaled)
    flat_history = [h for group in groups for h in group]
    first = list(range(3, 3 + len(groups[0])))
    second = list(range(3 + len(groups[0]), 3 + len(flat_history)))
    gradients = np.concatenate([[vector(g) for g in CONFLICT], flat_history])
    losses = [*LOSSES, *[1.0] * len(flat_history)]
    problem = dictated(-gradients, losses, cohorts=[first, second, [0, 1, 2]], start=np.zeros(3))
    trace = fedfv(problem, alpha=0.34, window=2)
    close(vector(trace.diagnostics[2]["direction"]), scaled)
    own = weights(trace) @ gradients[:3]
    past = sum(c * gradients[i] for i, c in trace.diagnostics[2]["history_weights"].items())
    close(own + past, scaled)


def test_fedfv_forgets_a_client_that_is_back_or_out_of_the_window():
    gradients = [(1.0, 0.0), (-1.0, 0.0), (1.0, 0.1)]
    for cohorts, moves in [
        ([[1], [2], [0]], False),  # client 1 is two rounds ago
        ([[2], [1], [0]], True),
        ([[1], [1], [0]], True),  # the latest time counts
        ([[2], [1], [0, 1]], False),  # client 1 is here again
    ]:
        trace = fedfv(dictated(-np.array(gradients), LOSSES, cohorts=cohorts), alpha=1.0, window=1)
        assert bool(trace.diagnostics[2]["history_weights"]) == moves
    early = fedfv(dictated(-np.array(gradients), LOSSES, cohorts=[[1], [0]]), alpha=1.0, window=2)
    assert not early.diagnostics[1]["history_weights"]  # t < tau


def test_fedfv_windows():
    assert past_rounds(3, 2, "past") == [1, 2]
    assert past_rounds(3, 2, "current") == [2, 3]
    assert past_rounds(1, 2, "past") == []
    assert past_rounds(1, 2, "current") == [0, 1]
    assert past_rounds(0, 2, "current") == []
    assert past_rounds(5, 0, "past") == past_rounds(5, 0, "current") == []
    with pytest.raises(ValueError, match="fv_window"):
        past_rounds(0, 1, "future")


def test_fedfv_current_window_sees_its_own_round():
    """alpha = 1 keeps every g_i; their mean (-1, -1, 1) / 3 conflicts with g_0 alone, and loses that part."""
    gradients = np.array([vector(g) for g in CONFLICT])
    problem = dictated(-gradients, LOSSES, start=np.zeros(3))
    trace = fedfv(problem, alpha=1.0, window=1, fv_window="current")
    mean = gradients.mean(axis=0)
    left = mean - gradients[0] * (mean @ gradients[0])
    close(-last(trace), left * np.linalg.norm(mean) / np.linalg.norm(left), atol=1e-12)
    close(weights(trace) @ gradients, -last(trace), atol=1e-12)
    same(fedfv(problem, alpha=1.0, window=1), fedavg(problem))


@pytest.mark.parametrize(
    ("n", "alpha", "kept"),
    [(10, 0.0, 0), (10, 0.1, 1), (10, 0.2, 2), (10, 0.5, 5), (10, 1.0, 10), (10, 1e-3, 1), (11, 0.7, 8), (1, 0.1, 1)],
)
def test_fedfv_kept_clients(n, alpha, kept):
    assert kept_clients(n, alpha) == kept


def test_fedfv_invariants():
    problem = classification(rounds=4)
    same(fedfv(problem, alpha=1.0, window=0), fedavg(problem, weighting="uniform"))
    rng = np.random.default_rng(2)
    for n in (2, 5):
        gradients = models(rng.normal(size=(n, 3)))
        mean = norm(combine([1.0 / n] * n, gradients))
        scaled = fedfv_direction(0.2, losses=rng.uniform(size=n), gradients=gradients)[1]
        assert np.linalg.norm(scaled) == pytest.approx(mean)
        friends = models(rng.uniform(size=(n, 3)))  # no conflict: FedAvg
        scaled = fedfv_direction(0.2, losses=rng.uniform(size=n), gradients=friends)[1]
        close(scaled, vector(combine([1.0 / n] * n, friends)), atol=1e-12)
    for _ in range(20):
        pair = models(rng.normal(size=(2, 3)))
        gbar = models([fedfv_direction(0.0, losses=[0.3, 0.1], gradients=pair)[0]])[0]
        assert min(dot(gbar, g) for g in pair) >= -1e-12


def test_fedfv_length_of_step_is_fedavg_s():
    problem = classification(rounds=5)
    x = problem.params
    trace = fedfv(problem, alpha=0.1, window=2)
    for t, cohort in enumerate(problem.cohorts):
        mean = combine([1 / 3] * 3, [subtract(local_sgd(problem, t, i, x)[-1], x) for i in cohort])
        assert norm(subtract(trace.params[t], x)) == pytest.approx(norm(mean))
        x = trace.params[t]


def test_fedfv_opposite_updates_stay():
    trace = fedfv(dictated([(1, 0), (-1, 0)], [1.0, 1.0], cohorts=[[0, 1]] * 3), alpha=0.0, window=1)
    close(last(trace), START, atol=0)
