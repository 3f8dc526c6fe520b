"""The baselines' twins: published vectors, cases worked out by hand, invariants, and inputs that tempt a NaN."""

import math
from itertools import pairwise

import numpy as np
import pytest
from scipy.optimize import minimize

from tests.reference.algebra import add, combine, dot, norm, scale, subtract
from tests.reference.averaging import fedavg
from tests.reference.baselines import BASELINE_TWINS
from tests.reference.baselines_core import (
    corefed,
    corefed_weights,
    proportional_veto_core,
    rank_core_fed,
    veto_by_consumption,
)
from tests.reference.baselines_gradients import (
    fedfv,
    fedmgda_plus,
    kept_clients,
    mgda_weights,
    mitigate_external,
    mitigate_internal,
    past_rounds,
    rescaling,
)
from tests.reference.baselines_online import (
    CDFS,
    DeviceLearner,
    SiloLearner,
    aaggff,
    afl,
    afl_ascent,
    afl_weights,
    responses,
)
from tests.reference.baselines_personal import (
    Tie,
    clipped,
    ditto,
    ditto_sgd,
    faa,
    flatten,
    focus,
    focus_assignments,
    focus_predict,
    focus_weights,
    lp_proj,
    shared_step,
    theta_step,
    unflatten,
)
from tests.reference.baselines_weights import (
    discrepancies,
    feddisco,
    feddisco_weights,
    fedwavg,
    fedwavg_weights,
    label_histogram,
    propfair,
    propfair_loss,
    propfair_slope,
    qffl,
    qffl_weights,
    term,
    term_code_weights,
    term_weights,
)
from tests.reference.local import local_sgd
from tests.reference.network import random_params
from tests.reference.problem import Problem
from tests.reference.solvers import box_simplex_qp, project_simplex, stationarity_gap
from tests.reference.weights import entropy_weights
from tests.test_reference import classification, full_batch_problem, quadratic, toy

DELTAS = np.array([(-0.1, 0.2), (0.3, 0.0), (-0.2, -0.4)])  # with LOSSES, the vectors' usual round
LOSSES = np.array([0.5, 1.0, 2.0])
UNIFORM = np.full(3, 1.0 / 3.0)
START = np.array([1.0, 2.0])

LIKE_FEDAVG = ["afl", "term", "aaggff", "ditto", "corefed", "rank_core_fed", "fedwavg", "feddisco"]  # for equal clients
NORMALISED = [*LIKE_FEDAVG, "propfair", "lp_proj"]  # weights that sum to 1


# Problems.


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


def twins_of_one_client(rounds=2, clients=4):
    """Every client holds the same data and takes the same batches."""
    problem = classification(rounds=rounds, cohort_size=clients)
    problem.data = [problem.data[0]] * clients
    problem.batches = [dict.fromkeys(range(clients), batches[0]) for batches in problem.batches]
    return problem


def options(name, problem):
    """Arguments for any twin, draws included."""
    rng = np.random.default_rng(5)
    width = flatten(problem.params).size
    models = [scale(1.0 + 0.1 * k, problem.params) for k in range(len(problem.data))]
    return {
        "qffl": {"q": 0.5},
        "afl": {"gamma": 0.1},
        "term": {"t": 1.0},
        "propfair": {"M": 5.0},
        "fedmgda_plus": {"eps": 0.1},
        "fedfv": {"alpha": 0.34, "window": 1},
        "aaggff": {},
        "ditto": {"lam": 0.5},
        "focus": {"clusters": models[:2]},
        "lp_proj": {
            "projection": rng.normal(size=(3, width)) / np.sqrt(width),
            "personal": models,
            "outer": 2,
            "inner": 3,
        },
        "corefed": {"M": 5.0},
        "rank_core_fed": {"mixtures": [rng.dirichlet(np.ones(len(cohort)), 4) for cohort in problem.cohorts]},
        "fedwavg": {"alpha": 0.3, "predict": None if len(problem.params) > 1 else lambda z, x: np.zeros(len(x), int)},
        "feddisco": {"a": 0.1, "b": 0.1, "num_classes": 3},
    }[name]


def run(name, problem, **more):
    return BASELINE_TWINS[name](problem, **{**options(name, problem), **more})


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


# Solvers.


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


# q-FFL.


@pytest.mark.parametrize(
    ("q", "a", "model"),
    [
        (0.0, UNIFORM, (1.0, 1.93333333)),
        (0.5, (0.15265755, 0.21589037, 0.30531509), (0.98843834, 1.90840547)),
        (1.0, (0.07246377, 0.14492754, 0.28985507), (0.97826087, 1.89855072)),
    ],
)
def test_qffl_vector(q, a, model):
    trace = qffl(dictated(DELTAS, LOSSES), q=q)
    close(weights(trace), a)
    close(last(trace), model)


@pytest.mark.parametrize(("q", "h"), [(0.0, (10, 10, 10)), (1.0, (10, 19, 40))])
def test_qffl_denominators(q, h):
    close(qffl(dictated(DELTAS, LOSSES), q=q).diagnostics[0]["h"], h, atol=1e-7)


@pytest.mark.parametrize(("q", "model"), [(0.0, 1 / 2), (1.0, 2 / 9), (2.0, 1 / 7)])
def test_qffl_on_the_toy_case(q, model):
    """F1 = 2 (x - 2)^2, F2 = (x + 4)^2 / 2 at 0, L = 1 / step = 4; the paper's own steps are those of L = 1."""
    assert last(qffl(toy(), q=q)) == pytest.approx(model, abs=1e-9)
    close(qffl_weights([8.0, 8.0], [2.0, 1.0], 1.0, 1.0)[0], [8 / 21, 8 / 21])


def test_qffl_invariants():
    moves = np.array([norm(m) for m in models(DELTAS)])
    for q in (0.001, 0.1, 0.5, 1.0, 5.0, 15.0):
        a, _ = qffl_weights(LOSSES, moves, q, 0.1)
        assert a.sum() <= 1
        close(a / a[0], (LOSSES / LOSSES[0]) ** q, atol=1e-5 * 4.0**q)
        rho = (LOSSES + 1e-10) / (LOSSES.max() + 1e-10)  # the scaled form for float32
        h = q * rho ** (q - 1) * (10 * moves) ** 2 / (LOSSES.max() + 1e-10) + 10 * rho**q
        np.testing.assert_allclose(a, 10 * rho**q / h.sum(), rtol=1e-12)
        equal, _ = qffl_weights([0.7, 0.7], [1.0, 3.0], q, 0.1)
        assert equal[0] == equal[1]
    close(qffl_weights(LOSSES, np.zeros(3), 1.0, 0.1)[0], LOSSES / LOSSES.sum())


def test_qffl_without_fairness_is_fedavg():
    problem = classification()
    same(qffl(problem, q=0.0), fedavg(problem, weighting="uniform"))


def test_qffl_uses_the_rate_of_the_round():
    problem = dictated(DELTAS, LOSSES, cohorts=[[0, 1, 2]] * 2)
    problem.learning_rate = lambda t: [0.1, 0.01][t]
    trace = qffl(problem, q=1.0)
    for t, rate in enumerate([0.1, 0.01]):
        a, _ = qffl_weights(LOSSES, np.linalg.norm(DELTAS, axis=1) * rate / 0.1, 1.0, rate)
        close(weights(trace, t), a, atol=1e-12)


# AFL.


@pytest.mark.parametrize(
    ("gamma", "expected"),
    [(0.0, UNIFORM), (0.1, (0.26666667, 0.31666667, 0.41666667)), (0.5, (0, 0.25, 0.75)), (0.7, (0, 0.15, 0.85))],
)
def test_afl_vector(gamma, expected):
    for participation in ("all", "block", "full_simplex"):
        trace = afl(dictated(DELTAS, LOSSES), gamma=gamma, participation=participation)
        close(trace.diagnostics[0]["lambda"], expected)
        close(weights(trace), UNIFORM if participation == "all" else expected)


@pytest.mark.parametrize(
    ("participation", "lam", "a"),
    [
        ("full_simplex", (0.18, 0.13, 0.23, 0.13, 0.33), np.array([0.18, 0.23, 0.33]) / 0.74),
        ("block", (0.26666667, 0.2, 0.31666667, 0.2, 0.41666667), (0.26666667, 0.31666667, 0.41666667)),
    ],
)
def test_afl_with_a_cohort(participation, lam, a):
    start = np.full(5, 0.2)
    close(afl_ascent(start, [0, 2, 4], LOSSES, 0.1, participation), lam)
    close(start, 0.2, atol=0)
    problem = dictated(np.zeros((5, 2)), [0.5, 9.0, 1.0, 9.0, 2.0], cohorts=[[0, 2, 4]])
    trace = afl(problem, gamma=0.1, participation=participation)
    close(weights(trace), a)
    outside = trace.diagnostics[0]["lambda"][[1, 3]]
    close(outside, 1 / 3 if participation == "block" else 0.13, atol=1e-15)  # a block starts at 1 / n


def test_afl_order():
    problem = dictated(DELTAS, LOSSES, cohorts=[[0, 1, 2]] * 3)
    for participation in ("all", "block", "full_simplex"):
        old = afl(problem, gamma=0.1, participation=participation, order="old")
        new = afl(problem, gamma=0.1, participation=participation, order="new")
        close(weights(old, 0), UNIFORM)
        for t in range(2):
            close(weights(old, t + 1), weights(new, t), atol=1e-15)
        close(old.diagnostics[2]["lambda"], new.diagnostics[2]["lambda"], atol=0)


def test_afl_average_iterate():
    problem = dictated(DELTAS, LOSSES, cohorts=[[0, 1, 2]] * 3)
    trace = afl(problem, gamma=0.1, participation="all")
    for t, measured in enumerate(trace.diagnostics):
        mean = np.mean([vector(x) for x in trace.params[: t + 1]], axis=0)
        close(vector(measured["average"]), mean, atol=1e-14)
    assert "average" not in afl(problem, gamma=0.1).diagnostics[0]
    assert "average" in afl(problem, gamma=0.1, average_iterate=True).diagnostics[0]
    assert "average" not in afl(problem, gamma=0.1, participation="all", average_iterate=False).diagnostics[0]


@pytest.mark.parametrize("participation", ["all", "block", "full_simplex"])
def test_afl_invariants(participation):
    problem = classification(rounds=4, cohort_size=4)
    uniform = fedavg(problem, weighting="uniform")
    same(afl(problem, gamma=0.0, participation=participation), uniform)
    for measured in afl(problem, gamma=0.3, participation=participation).diagnostics:
        assert np.all(measured["lambda"] >= 0)
        assert measured["lambda"].sum() == pytest.approx(1.0)
    trace = afl(problem, gamma=1e3, participation=participation)
    worst = int(np.argmax(trace.diagnostics[0]["losses_before"]))
    close(trace.diagnostics[0]["lambda"][problem.cohorts[0]], np.eye(4)[worst], atol=0)
    equal = afl(dictated(DELTAS, [0.7] * 3, cohorts=[[0, 1, 2]] * 2), gamma=0.4, participation=participation)
    close(equal.diagnostics[1]["lambda"], UNIFORM, atol=1e-15)


def test_afl_with_no_mass_in_the_cohort_is_uniform():
    """Client 2 takes all of lambda, then a cohort without it comes with losses of zero."""
    problem = dictated(DELTAS, [0.0, 0.0, 50.0], cohorts=[[0, 2], [0, 1]])
    trace = afl(problem, gamma=1.0, participation="full_simplex")
    close(weights(trace, 0), [0, 1], atol=0)
    close(weights(trace, 1), [0.5, 0.5], atol=0)
    close(afl_weights(np.array([0.1, 0.3, 0.6]), [0, 1]), [0.25, 0.75], atol=1e-15)


def test_afl_all_needs_all():
    with pytest.raises(ValueError, match="every client"):
        afl(classification(), gamma=0.1, participation="all")


# TERM.


@pytest.mark.parametrize(
    ("t", "expected", "atol"),
    [
        (0.0, UNIFORM, 1e-15),
        (0.1, (0.31122540, 0.32718227, 0.36159233), 6e-9),
        (1.0, (0.14024438, 0.23122390, 0.62853172), 6e-9),
        (10.0, (3.06e-7, 4.54e-5, 0.99995430), 6e-9),
    ],
)
def test_term_vector(t, expected, atol):
    close(weights(term(dictated(DELTAS, LOSSES), t=t)), expected, atol=atol)


def test_term_as_published_in_code():
    a, omega, Z = term_code_weights(LOSSES, 1.0, 0.0)
    close(omega, (0.28048877, 0.46244780, 1.25706344))
    assert pytest.approx(0.26516827, abs=6e-9) == Z
    close(a, omega / 3)
    a, omega, Z = term_code_weights([1.0, 0.8, 0.6], 1.0, Z)
    assert pytest.approx(0.54742593, abs=6e-9) == Z
    close(omega, (0.60891038, 0.49853365, 0.40816483))
    close(a, (0.20297013, 0.16617788, 0.13605494))
    trace = term(dictated(DELTAS, LOSSES, cohorts=[[0, 1, 2]] * 40), t=1.0, normalised=False)
    close(weights(trace, 0), np.array([0.28048877, 0.46244780, 1.25706344]) / 3)
    close(weights(trace), term_weights(LOSSES, 1.0, UNIFORM) / 3)  # the steady state: an extra 1 / n
    assert trace.diagnostics[0]["Z"] == pytest.approx(0.26516827, abs=6e-9)


def test_term_invariants():
    close(term_weights(LOSSES + 7.0, 2.0, UNIFORM), term_weights(LOSSES, 2.0, UNIFORM), atol=1e-12)
    close(term_weights([1.0, 3.0, 3.0], 1e3, UNIFORM), [0, 0.5, 0.5], atol=0)
    close(term_weights([900.0, 3.0, 3.0], -1e3, UNIFORM), [0, 0.5, 0.5], atol=0)
    close(term_weights(LOSSES, 4.0, UNIFORM), entropy_weights(LOSSES, 0.25, UNIFORM), atol=1e-15)
    close(term_weights(LOSSES, 1e-12, UNIFORM), UNIFORM, atol=1e-11)


def test_term_without_tilt_is_fedavg():
    problem = classification()
    same(term(problem, t=0.0), fedavg(problem, weighting="uniform"))
    same(term(problem, t=0.0, size_prior=True), fedavg(problem, weighting="examples"))


def test_term_size_prior():
    problem = dictated(DELTAS, LOSSES, sizes=[10, 30, 60])
    e = np.array([10, 30, 60]) * np.exp(LOSSES)
    close(weights(term(problem, t=1.0, size_prior=True)), e / e.sum(), atol=1e-14)
    with pytest.raises(ValueError, match="normalised"):
        term(problem, t=1.0, size_prior=True, normalised=False)


# PropFair.


@pytest.mark.parametrize(
    ("M", "loss", "code", "huber"),
    [
        (2.0, 0.5, (0.28768207, 0.66666667), (0.28768207, 0.66666667)),
        (2.0, 1.5, (1.38629436, 2.0), (1.38629436, 2.0)),
        (2.0, 1.9, (0.95, 0.5), (9.5, 5.0)),
        (2.0, 2.3, (1.15, 0.5), (11.5, 5.0)),
        (5.0, 0.5, (0.10536052, 0.22222222), (0.10536052, 0.22222222)),
        (5.0, 4.9, (0.98, 0.2), (24.5, 5.0)),
    ],
)
def test_propfair_vector(M, loss, code, huber):
    close((propfair_loss(loss, M, 0.2, False), propfair_slope(loss, M, 0.2, False)), code)
    close((propfair_loss(loss, M, 0.2, True), propfair_slope(loss, M, 0.2, True)), huber)


@pytest.mark.parametrize("huber", [False, True])
def test_propfair_slope_is_the_slope(huber):
    for M in (0.2, 2.0, 5.0):
        slopes = []
        for loss in np.linspace(0.01, 8.0, 200):
            slope = propfair_slope(loss, M, 0.2, huber)
            if abs(M - loss - 0.2) > 1e-5:
                rise = propfair_loss(loss + 1e-6, M, 0.2, huber) - propfair_loss(loss - 1e-6, M, 0.2, huber)
                assert rise / 2e-6 == pytest.approx(slope, rel=1e-6)
            if M - loss >= 0.2:
                slopes.append(slope)
        assert all(u < v for u, v in pairwise(slopes))


def faster(problem, factor):
    rate = problem.learning_rate
    problem.learning_rate = lambda t: factor * rate(t)
    return problem


@pytest.mark.parametrize("huber", [False, True])
@pytest.mark.parametrize("weighting", ["uniform", "examples"])
def test_propfair_of_the_headline_row_is_fedavg_at_five_times_the_rate(huber, weighting):
    trace = propfair(classification(), M=0.2, eps=0.2, huber=huber, weighting=weighting)
    same(trace, fedavg(faster(classification(), 5.0), weighting=weighting))


def test_propfair_of_large_m_is_fedavg():
    same(propfair(faster(classification(), 1e9), M=1e9), fedavg(classification()), atol=1e-7)


def test_propfair_by_hand():
    """F = a (x - 3)^2 / 2 with a = 2, at 1: l = 4, M = 5, slope 1; then x = 1.4, l = 2.56, slope 1 / 2.44."""
    trace = propfair(quadratic([(2.0, 3.0)], (1,), 1.0, 0.1, 2), M=5.0)
    assert last(trace) == pytest.approx(1.4 + 0.1 * 3.2 / 2.44)


# FedMGDA+.

MGDA = models([(2, 0, 0), (0, 1, 0), (0.3, 0.3, 0.9)])


@pytest.mark.parametrize(
    ("eps", "lam", "objective"),
    [
        (0.0, UNIFORM, 0.46733838),
        (0.03, (0.3483333, 0.3483333, 0.3033333), 0.46211543),
        (0.1, (0.3833333, 0.3833333, 0.2333333), 0.45620739),
        (1.0, (0.3893569, 0.3893569, 0.2212861), 0.45607721),
    ],
)
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


# AAggFF.


@pytest.mark.parametrize(
    ("cdf", "expected"),
    [
        ("normal", (0.28385458, 0.44320150, 0.76247474)),
        ("exponential", (0.34856094, 0.57562715, 0.81990769)),
        ("weibull", (0.16779250, 0.52034773, 0.94706950)),
        ("frechet", (0.09697197, 0.31140322, 0.55803515)),
        ("gumbel", (0.17019764, 0.31550997, 0.61290725)),
        ("logistic", (0.36090725, 0.46434633, 0.67134745)),
        ("repo_normal", (1.21614542, 1.05679850, 0.73752526)),
    ],
)
def test_cdf_vectors(cdf, expected):
    close(responses(LOSSES, cdf), expected)
    close(responses(3.0 * LOSSES, cdf), expected)
    close(responses(np.zeros(3), cdf), [CDFS[cdf](1.0)] * 3)
    assert np.all(np.isfinite(responses([0.0, 1.0], cdf)))


def test_repo_normal_vectors():
    close([CDFS["repo_normal"](z) for z in (0.2, 1.0, 3.0)], (1.288, 1.0, 0.523), atol=5e-4)
    close([CDFS["normal"](z) for z in (0.2, 1.0, 3.0)], (0.212, 0.5, 0.977), atol=5e-4)


@pytest.mark.parametrize(
    ("repo_exact", "p", "a"),
    [
        (
            False,
            (0.15611271, 0.16651378, 0.16384308, 0.16651378, 0.16651378, 0.18050288),
            (0.31193926, 0.32738584, 0.36067490),
        ),
        (
            True,
            (0.16555195, 0.17294501, 0.16161287, 0.17294501, 0.17294501, 0.15400015),
            (0.34406485, 0.33587829, 0.32005686),
        ),
    ],
)
def test_aaggff_d_vector(repo_exact, p, a):
    deltas, losses = np.zeros((6, 2)), [0.5, 9.0, 1.0, 9.0, 9.0, 2.0]
    trace = aaggff(dictated(deltas, losses, cohorts=[[0, 2, 5]]), repo_exact=repo_exact)
    close(trace.diagnostics[0]["p"], p)
    close(weights(trace), a)
    if not repo_exact:
        robust = (0.03559945, 0.24825514, 0.19494637, 0.24825514, 0.24825514, 0.51421960)
        close(trace.diagnostics[0]["responses"], robust)


def test_aaggff_d_in_closed_form():
    """p = softmax(sum r~ / (1 + rbar) sqrt(log m) / ((2 + C) sqrt(t + 1))): the rest is equal over clients."""
    problem = classification(rounds=6)
    trace, total = aaggff(problem), np.zeros(4)
    for t, (cohort, measured) in enumerate(zip(problem.cohorts, trace.diagnostics, strict=True)):
        r = 0.75 * responses(measured["losses_before"], "normal")
        robust = np.full(4, r.mean())
        robust[cohort] += (r - r.mean()) / 0.75
        total += robust / (1 + r.mean())
        e = np.exp(total * math.sqrt(math.log(4)) / (2.75 * math.sqrt(t + 2)))
        close(measured["p"], e / e.sum(), atol=1e-12)
        close(measured["weights"], (e / e[cohort].sum())[cohort], atol=1e-12)


def test_aaggff_s_vector_and_its_programme():
    learner, gradients, ps = SiloLearner(3, 1.0, "normal", False), [], [UNIFORM]
    for losses in [(0.5, 1, 2), (0.4, 1.1, 1.9), (0.6, 0.7, 2.2)]:
        r = responses(losses, "normal") / 3
        gradients.append(-r / (1 + ps[-1] @ r))
        ps.append(learner.update([0, 1, 2], np.array(losses)))
        fit = [(g, p) for g, p in zip(gradients, ps[:-1], strict=True)]

        def poster(p, fit=fit):
            """sum <g, p> + alpha/2 |p|^2 + beta/2 sum <g, p - p_tau>^2."""
            return sum(g @ p + 0.375 * (g @ (p - q)) ** 2 for g, q in fit) + 2.0 * p @ p

        for i in range(3):
            for j in range(3):
                for step in (1e-3, 1e-6):
                    assert poster(ps[-1]) <= poster(ps[-1] + step * (np.eye(3)[i] - np.eye(3)[j])) + 1e-15
    close(ps[1], (0.31815613, 0.32952870, 0.35231517))


@pytest.mark.parametrize("cdf", [name for name in CDFS if name != "repo_normal"])
@pytest.mark.parametrize("variant", ["D", "S"])
def test_aaggff_invariants(variant, cdf):
    trace = aaggff(dictated(DELTAS, LOSSES, cohorts=[[0, 1, 2]] * 5), variant=variant, cdf=cdf)
    scaled = aaggff(dictated(DELTAS, 4 * LOSSES, cohorts=[[0, 1, 2]] * 5), variant=variant, cdf=cdf)
    for measured, other in zip(trace.diagnostics, scaled.diagnostics, strict=True):
        assert np.all(measured["p"] > 0)
        assert measured["p"].sum() == pytest.approx(1.0)
        assert np.all(np.diff(measured["weights"]) > 0)
        close(measured["p"], other["p"], atol=1e-9)
    for losses in ([0.7] * 3, [0.0] * 3):
        equal = aaggff(dictated(DELTAS, losses, cohorts=[[0, 1, 2]] * 3), variant=variant, cdf=cdf)
        close(weights(equal), UNIFORM, atol=1e-12)


@pytest.mark.parametrize("variant", ["D", "S"])
def test_aaggff_as_published_in_code_favours_low_losses(variant):
    trace = aaggff(dictated(DELTAS, LOSSES, cohorts=[[0, 1, 2]] * 3), variant=variant, repo_exact=True)
    assert np.all(np.diff(weights(trace, 0)) < 0)
    assert all(np.isfinite(measured["p"]).all() for measured in trace.diagnostics)


def test_aaggff_s_as_published_in_code_by_hand():
    """p starts at 1, A at alpha I, no cross term: (4 + 3 + .75 g g') p = -g - nu."""
    r = responses(LOSSES, "repo_normal") / 3
    g = -r / (1 + r.sum())
    inverse = np.linalg.inv(7.0 * np.eye(3) + 0.75 * np.outer(g, g))
    nu = (-(inverse @ g).sum() - 1) / inverse.sum()
    close(SiloLearner(3, 1.0, "normal", True).update([0, 1, 2], LOSSES), inverse @ (-g - nu), atol=1e-12)


def test_aaggff_d_stays_close_to_fedavg_early():
    rng = np.random.default_rng(0)
    losses, learner, spreads = rng.uniform(0.2, 3.0, 100), DeviceLearner(100, 0.1, "normal", False), []
    for _ in range(400):
        cohort = rng.choice(100, 10, replace=False)
        p = learner.update(cohort, losses[cohort])
        a = p[cohort] / p[cohort].sum()
        spreads.append((a.min(), a.max()))
    assert spreads[9] == pytest.approx((0.081, 0.123), abs=0.01)
    assert np.mean([high - low for low, high in spreads[-50:]]) > np.mean([high - low for low, high in spreads[:10]])


def test_aaggff_s_needs_all():
    with pytest.raises(ValueError, match="every client"):
        aaggff(classification(), variant="S")


# Ditto.


@pytest.mark.parametrize(
    ("lam", "steps", "expected"),
    [
        (0.5, 1, (0.775, -0.8)),
        (0.5, 2, (1.00875, -0.63)),
        (0.5, 10, (1.97239693, 0.07083413)),
        (0.5, 500, (7 / 3, 1 / 3)),
        (0.0, 2, (0.975, -0.81)),
        (2.0, 2, (1.095, -0.15)),
    ],
)
def test_ditto_vector(lam, steps, expected):
    problem = bowls([(3, 0)], 0.1, steps, (1.0, 1.0))
    start = [(np.array([0.5, -1.0]),)]
    close(vector(ditto_sgd(problem, 0, 0, start, problem.params, lam)[-1]), expected)


def test_ditto_rounds_by_hand():
    """w = (1, 1), (1, .9); v = (1, 1), (1.2, .9) and then a step along (-1.8, .9) + (v - w) / 2."""
    trace = ditto(bowls([(3, 0), (-1, 0)], 0.1, 1, (1.0, 1.0), rounds=2), lam=0.5)
    close(vector(trace.params[0]), (1.0, 0.9))
    close(vector(trace.personal[0][0]), (1.2, 0.9))
    close(vector(trace.personal[1][0]), (1.37, 0.81))


@pytest.mark.parametrize("weighting", ["uniform", "examples"])
@pytest.mark.parametrize("lam", [0.0, 0.5, 7.0])
def test_ditto_global_model_is_fedavg(lam, weighting):
    problem = classification()
    same(ditto(problem, lam=lam, weighting=weighting), fedavg(problem, weighting=weighting), atol=0)


def test_ditto_without_tie_is_local_training():
    problem = classification(rounds=4)
    trace = ditto(problem, lam=0.0)
    for client in range(4):
        v = problem.params
        for t, cohort in enumerate(problem.cohorts):
            v = local_sgd(problem, t, client, v)[-1] if client in cohort else v
            close(vector(trace.personal[t][client]), vector(v), atol=0)


def test_ditto_with_a_strong_tie_is_the_broadcast_model():
    problem = classification()
    problem.learning_rate = lambda t: 1e-7
    trace = ditto(problem, lam=1e7)
    for client in problem.cohorts[2]:
        assert norm(subtract(trace.personal[2][client], trace.params[1])) < 1e-6


# FOCUS.

PI = np.array([[0.5, 0.5], [0.5, 0.5], [0.2, 0.8]])


def test_focus_vector():
    pi = focus_assignments(PI, np.array([[0.3, 1.3], [1.0, 0.4], [0.7, 0.7]]))
    close(pi, [[0.73105858, 0.26894142], [0.35434369, 0.64565631], [0.2, 0.8]])
    close(np.sum(focus_weights(pi) * [[1, 10], [2, 20], [4, 40]], axis=0), (1.74244749, 27.76309543))


def test_focus_assignments():
    losses = np.array([[0.3, 1.3], [1.0, 0.4], [0.7, 0.7]])
    close(focus_assignments(PI, losses, damping=0.5), 0.5 * PI + 0.5 * focus_assignments(PI, losses))
    close(focus_assignments(PI, np.full((3, 2), 1.7)), PI, atol=1e-15)
    sure = focus_assignments(PI, np.array([[0.0, 5e3], [5e3, 0.0], [0.0, 0.0]]))
    close(sure.sum(axis=1), 1.0, atol=1e-15)
    assert sure.min() == pytest.approx(1e-8)
    back = focus_assignments(sure, np.array([[50.0, 0.0], [0.0, 50.0], [0.0, 0.0]]))
    assert back[0, 1] > 0.99  # the floor lets a client return


def test_focus_keeps_a_cluster_that_nobody_is_in():
    close(focus_weights(np.array([[1.0, 0.0], [1.0, 0.0]])), [[0.5, 0.0], [0.5, 0.0]], atol=0)


def test_focus_of_one_cluster_is_uniform_fedavg():
    problem = classification()
    trace = focus(problem, clusters=[problem.params])
    close(last(trace), last(fedavg(problem, weighting="uniform")), atol=1e-12)


def test_focus_of_identical_clusters_stays_identical():
    problem = classification(rounds=4)
    trace = focus(problem, clusters=[problem.params] * 3)
    for clusters, measured in zip(trace.params, trace.diagnostics, strict=True):
        close(measured["pi"], 1 / 3, atol=1e-12)
        assert norm(subtract(clusters[0], clusters[1])) == norm(subtract(clusters[0], clusters[2])) == 0.0
    close(vector(trace.params[-1][0]), last(fedavg(problem, weighting="uniform")), atol=1e-12)


@pytest.mark.parametrize("damping", [0.0, 0.5])
def test_focus_rounds(damping):
    problem, rng = classification(rounds=3), np.random.default_rng(4)
    start = [random_params(rng, [4, 5, 3]) for _ in range(2)]
    trace = focus(problem, clusters=start, pi_damping=damping)
    pi, clusters = np.full((4, 2), 0.5), start
    for t, (cohort, measured) in enumerate(zip(problem.cohorts, trace.diagnostics, strict=True)):
        for i in cohort:
            e = pi[i] * np.exp([-problem.full_loss(w, i) for w in clusters])
            pi[i] = (1 - damping) * e / e.sum() + damping * pi[i]
        close(measured["pi"], pi, atol=1e-12)
        close(measured["pi"].sum(axis=1), 1.0, atol=1e-12)
        before, after = np.zeros(3), np.zeros(3)
        for k in range(2):
            trained = [local_sgd(problem, t, i, clusters[k])[-1] for i in cohort]
            mean = combine(pi[cohort, k] / pi[cohort, k].sum(), trained)
            close(vector(trace.params[t][k]), vector(mean), atol=1e-12)
            before += pi[cohort, k] * problem.full_losses([clusters[k]] * 3, cohort)
            after += pi[cohort, k] * problem.full_losses(trained, cohort)
        close(measured["losses_before"], before, atol=1e-12)
        close(measured["losses_after"], after, atol=1e-12)
        clusters = trace.params[t]


def test_focus_finds_the_clusters():
    """Two groups of bowls around +-1, models that start on either side."""
    problem = bowls([(1.0,), (1.2,), (-1.0,), (-1.2,)], 0.5, 3, (0.0,), rounds=20)
    trace = focus(problem, clusters=[[(np.array([0.1]),)], [(np.array([-0.1]),)]])
    close(trace.diagnostics[-1]["pi"].round(6), [[1, 0], [1, 0], [0, 1], [0, 1]])
    close(last(trace), (1.1, -1.1), atol=1e-4)


def test_focus_prediction_is_a_mixture():
    rng = np.random.default_rng(0)
    clusters, x = [random_params(rng, [4, 3]) for _ in range(2)], rng.normal(size=(5, 4))
    probabilities = focus_predict([0.3, 0.7], clusters, x)
    close(probabilities.sum(axis=1), 1.0, atol=1e-12)
    alone = [focus_predict([1.0], [w], x) for w in clusters]
    close(probabilities, 0.3 * alone[0] + 0.7 * alone[1], atol=1e-15)


def test_faa_vector():
    losses = np.array([0.40, 0.55, 1.10, 0.35])
    assert faa(losses, [0.30, 0.20, 0.45, 0.35]) == pytest.approx(0.65)
    assert faa(losses) == pytest.approx(0.75)


# lp-proj.

P = np.array([[0.6, 0.8, 0.0], [0.0, 0.6, -0.8]])
THETA = [(np.array([1.0, 2.0, -1.0]),)]
W = np.array([0.5, 3.0])


def test_lp_proj_vector():
    tie = Tie(P, 15.0)
    close(W - P @ flatten(THETA), (-1.7, 1.0), atol=1e-15)
    theta = theta_step(THETA, W, [(np.array([0.1, -0.2, 0.3]),)], tie, 0.1)
    close(vector(theta), (0.09, 1.72, -2.23), atol=1e-12)
    close(W - P @ flatten(theta), (-0.93, 0.184), atol=1e-12)
    close(shared_step(theta, W, tie, 0.1), (2.0, 1.5), atol=1e-12)
    untied = theta_step(THETA, W, [(np.array([0.1, -0.2, 0.3]),)], Tie(P, 0.0), 0.1)
    close(vector(untied), (0.99, 2.02, -1.03), atol=1e-12)


def test_lp_proj_damped_steps_stop_at_zero():
    theta = shared_step(THETA, W, Tie(P, 15.0, damped=True), 0.1)
    close(theta, (0.5 + 1.5, 2.0), atol=1e-12)  # |c| = 1.7 and 1, lam eta = 1.5
    close(shared_step(THETA, P @ flatten(THETA), Tie(P, 15.0), 0.1), P @ flatten(THETA), atol=0)  # sign(0) = 0


def test_lp_proj_forbids_other_norms():
    with pytest.raises(ValueError, match="p=3"):
        shared_step(THETA, W, Tie(P, 15.0, p=3), 0.1)


def test_lp_proj_clips_the_gradient():
    close(vector(clipped(models([(3, 4)])[0], 1.0)), (0.6, 0.8), atol=1e-15)
    close(vector(clipped(models([(3, 4)])[0], 5.0)), (3, 4), atol=0)
    close(vector(clipped(models([(0, 0)])[0], 1.0)), (0, 0), atol=0)


def lp_problem(rounds=3):
    problem = classification(rounds=rounds)
    rng = np.random.default_rng(6)
    personal = [random_params(rng, [4, 5, 3]) for _ in range(4)]
    projection = rng.normal(size=(3, flatten(problem.params).size))
    return problem, {"projection": projection / np.linalg.norm(projection, axis=1, keepdims=True), "personal": personal}


def test_lp_proj_without_tie_is_local_training():
    problem, given = lp_problem()
    trace = lp_proj(problem, **given, lam=0.0, outer=3, inner=2)  # K = 2: three passes over the round's batches
    personal = given["personal"]
    for t, cohort in enumerate(problem.cohorts):
        close(trace.diagnostics[t]["shared"], 0.0, atol=0)
        for i in range(4):
            for _ in range(3 if i in cohort else 0):
                personal[i] = local_sgd(problem, t, i, personal[i])[-1]
            close(vector(trace.personal[t][i]), vector(personal[i]), atol=1e-12)
        mean = combine([0.25] * 4, personal)
        close(vector(trace.params[t]), vector(mean), atol=1e-12)


def test_lp_proj_batches_run_through_the_inner_loops():
    """outer x inner = 1 x 4 and 2 x 2 take the same batches."""
    problem, given = lp_problem(rounds=1)
    problem.batches = [{i: [np.array([k]) for k in range(3)] for i in range(4)}]
    same(lp_proj(problem, **given, lam=0.0, outer=1, inner=4), lp_proj(problem, **given, lam=0.0, outer=2, inner=2))


def test_lp_proj_averages_the_shared_vectors():
    problem, given = lp_problem()
    trace = lp_proj(problem, **given, outer=2, inner=2)
    for measured in trace.diagnostics:
        close(measured["shared"], measured["local_shared"].mean(axis=0), atol=1e-14)
    problem.server_rate = 0.25
    slow = lp_proj(problem, **given, outer=2, inner=2)
    close(slow.diagnostics[0]["shared"], 0.25 * trace.diagnostics[0]["shared"], atol=1e-14)


def test_lp_proj_can_train_those_outside_the_cohort():
    problem, given = lp_problem(rounds=1)
    some, everyone = lp_proj(problem, **given), lp_proj(problem, **given, train_all=True)
    close(some.diagnostics[0]["shared"], everyone.diagnostics[0]["shared"], atol=0)
    outside = next(i for i in range(4) if i not in problem.cohorts[0])
    assert norm(subtract(some.personal[0][outside], given["personal"][outside])) == 0.0
    assert norm(subtract(everyone.personal[0][outside], given["personal"][outside])) > 0.0


@pytest.mark.parametrize(("clip", "theta", "w"), [(60.0, 0.37, 0.4), (1.0, 0.4, 0.4)])
def test_lp_proj_by_hand(clip, theta, w):
    """F = (theta - 3)^2 / 2, P = 1, lam eta = .2: (theta, w) = (0, 0), (.3, .2), (.3 + .27 - .2, .4).

    With gradients of at most 1: (.1, .2), (.1 + .1 + .2, .4).
    """
    problem = bowls([(3.0,)], 0.1, 1, (0.0,))
    given = {"projection": np.eye(1), "personal": [problem.params], "lam": 2.0, "outer": 2, "inner": 1}
    trace = lp_proj(problem, **given, clip=clip)
    close(last(trace), [theta], atol=1e-12)
    close(trace.diagnostics[0]["shared"], [w], atol=1e-12)


def test_lp_proj_of_the_identity_is_pfedme():
    """P = I, p = 2: theta is the proximal point (c + lam w) / (1 + lam), and w <- w - eta lam (w - theta)."""
    problem = bowls([(3.0, 0.0), (1.0, 2.0)], 0.1, 1, (0.0, 0.0), rounds=2)
    trace = lp_proj(problem, projection=np.eye(2), personal=[problem.params] * 2, lam=2.0, p=2, outer=1, inner=300)
    w = np.zeros(2)
    for measured in trace.diagnostics:
        thetas = (np.array([(3.0, 0.0), (1.0, 2.0)]) + 2.0 * w) / 3.0
        w = np.mean(w - 0.1 * 2.0 * (w - thetas), axis=0)
        close(measured["shared"], w, atol=1e-12)


def test_flatten_and_back():
    model = random_params(np.random.default_rng(0), [4, 5, 3])
    assert norm(subtract(unflatten(flatten(model), model), model)) == 0.0


# CoreFed.


@pytest.mark.parametrize(
    ("M", "expected"),
    [
        (2.0, (0.13698630, 0.16438356, 0.49315068, 0.20547945)),
        (5.0, (0.21829522, 0.23284823, 0.29937630, 0.24948025)),
    ],
)
def test_corefed_vector(M, expected):
    problem = dictated(np.zeros((4, 2)), [0.2, 0.5, 1.5, 0.8])
    close(weights(corefed(problem, M=M)), expected)


def test_corefed_limits():
    close(corefed_weights(LOSSES, 1e12), UNIFORM, atol=1e-11)
    close(corefed_weights([0.7] * 3, 2.0), UNIFORM, atol=1e-15)
    close(corefed_weights([9.0, 99.0, 1.0], 2.0), np.array([5, 5, 1]) / 11, atol=1e-15)  # beyond M - eps: 1 / eps
    problem = classification()
    same(corefed(problem, M=1e15), fedavg(problem, weighting="uniform"))


# Rank-Core-Fed.


def test_veto_vector():
    losses = np.array([[0.1, 0.5, 0.9, 0.4], [0.8, 0.3, 0.2, 0.4], [0.9, 0.6, 0.1, 0.5]])
    winner, deaths, left = veto_by_consumption(losses)
    assert winner == 3
    assert deaths == [(0, 0.5), (2, 0.5), (1, 0.25)]
    assert left == {3: 0.25}
    assert proportional_veto_core(losses) == [1, 3]


def test_veto_of_a_large_minority():
    """60 voters a > b > c, 40 voters b > c > a."""
    winner, deaths, left = veto_by_consumption(np.array([[0, 1, 2]] * 60 + [[2, 0, 1]] * 40))
    assert winner == 1
    assert deaths == [(2, pytest.approx(1 / 60)), (0, pytest.approx(1 / 120))]
    assert left == {1: 0.5}


def test_veto_winner_is_in_the_core():
    rng = np.random.default_rng(0)
    for _ in range(500):
        losses = rng.uniform(size=(5, 7))
        assert veto_by_consumption(losses)[0] in proportional_veto_core(losses)


def test_veto_degenerate():
    assert veto_by_consumption(np.zeros((3, 1)))[0] == 0
    assert veto_by_consumption(np.zeros((3, 4)))[0] == 3  # equal candidates are eaten from the lowest index
    assert veto_by_consumption([[0.3, 0.1, 0.2]])[0] == 1  # a voter alone
    assert veto_by_consumption([[0.4, 1.0], [1.0, 0.0]])[0] == 1  # both die at once: the lower mean
    assert veto_by_consumption([[0.0, 1.0], [1.0, 0.0]])[0] == 0  # and then the lower index
    same_ranking = np.array([[3.0, 1.0, 2.0, 4.0]] * 5)
    assert veto_by_consumption(same_ranking)[0] == 1


def test_rank_core_candidates():
    problem = classification(rounds=2)
    mixtures = [np.random.default_rng(t).dirichlet(np.ones(3), 5) for t in range(2)]
    trace = rank_core_fed(problem, mixtures=mixtures)
    x = problem.params
    for t, (cohort, measured) in enumerate(zip(problem.cohorts, trace.diagnostics, strict=True)):
        deltas = [subtract(local_sgd(problem, t, i, x)[-1], x) for i in cohort]
        omegas = np.concatenate([[[1 / 3] * 3], np.eye(3), mixtures[t]])
        close(measured["weights"], omegas[measured["winner"]], atol=0)
        for c, omega in enumerate(omegas):
            candidate = add(x, combine(omega, deltas))
            close(measured["candidate_losses"][:, c], [problem.full_loss(candidate, i) for i in cohort], atol=1e-12)
        assert measured["winner"] == veto_by_consumption(measured["candidate_losses"])[0]
        assert measured["winner"] in proportional_veto_core(measured["candidate_losses"])
        x = trace.params[t]


def test_rank_core_of_one_client_without_mixtures_is_its_local_model():
    problem = classification(cohort_size=1)
    trace = rank_core_fed(problem, mixtures=[np.zeros((0, 1))] * 3)
    same(trace, fedavg(problem))
    problem.server_rate = 0.5
    same(rank_core_fed(problem, mixtures=[np.zeros((0, 1))] * 3), fedavg(problem))


# FedwAvg.


def test_fedwavg_vector():
    close(fedwavg_weights([10, 40, 50], 0.3, UNIFORM), (0.26333333, 0.35333333, 0.38333333))
    close(fedwavg_weights([10, 40, 50], 0.3, np.array([0.2, 0.3, 0.5])), (0.17, 0.33, 0.5), atol=1e-15)
    share = np.array([10, 40, 50]) / (100 + 1e-6)  # the other implementation's form
    raw = 0.7 + 0.3 * 3 * share
    close(fedwavg_weights([10, 40, 50], 0.3, UNIFORM), raw / raw.sum(), atol=1e-8)


def test_fedwavg_invariants():
    close(fedwavg_weights([1, 5, 0], 0.0, UNIFORM), UNIFORM, atol=1e-15)
    close(fedwavg_weights([4, 4, 4], 0.3, UNIFORM), UNIFORM, atol=1e-15)
    close(fedwavg_weights([0, 0, 0], 0.3, UNIFORM), UNIFORM, atol=0)
    problem = classification(rounds=6)
    same(fedwavg(problem, alpha=0.0), fedavg(problem, weighting="uniform"))
    same(fedwavg(problem, alpha=0.0, prior="size"), fedavg(problem, weighting="examples"))
    for measured in fedwavg(problem, alpha=0.3).diagnostics:
        assert np.all(measured["forgotten"] <= [5, 8, 3, 6])
        assert np.all(measured["weights"] >= 0.7 / 3 - 1e-15)


def knowing(cohorts):
    """A model [v]; client i's examples are the numbers x, known (label 1) where v >= x; its step goes to x[0] + 3."""
    data = [np.array([1.0, 2, 3]), np.array([4.0, 5, 9]), np.array([-9.0, -8, -7])]
    return Problem(
        params=[(np.array([0.0]),)],
        data=[(x[:, None], np.ones(3, int)) for x in data],
        cohorts=cohorts,
        batches=[{i: [np.array([0])] for i in range(3)}] * len(cohorts),
        learning_rate=lambda t: 1.0,
        loss=lambda params, x, y: 0.0,
        gradient=lambda params, x, y: [(params[0][0] - x[:, 0].mean() - 3.0,)],
    ), lambda model, x: (model[0][0] >= x[:, 0]).astype(int)


def test_fedwavg_forgetting_by_hand():
    """Local models are 4, 7 and -6: they know 3, 2 and 3 examples of their own."""
    problem, predict = knowing([[0, 1, 2]] * 3)
    trace = fedwavg(problem, alpha=0.3, predict=predict)
    first, second, third = trace.diagnostics
    close(first["forgotten"], [0, 0, 0], atol=0)
    close(first["weights"], UNIFORM, atol=0)
    close([bits.sum() for bits in first["known"]], [3, 2, 3], atol=0)
    close(vector(trace.params[0]), [5 / 3], atol=1e-12)  # knows 1 of the first's, none of the second's, all the third's
    close(second["forgotten"], [2, 2, 0], atol=0)
    close(second["weights"], [0.7 / 3 + 0.15, 0.7 / 3 + 0.15, 0.7 / 3], atol=1e-15)
    x = second["weights"] @ [4, 7, -6]
    close(vector(trace.params[1]), [x], atol=1e-12)
    close(third["forgotten"], [int(np.sum(np.array([1, 2, 3]) > x)), 2, 0], atol=0)


def test_fedwavg_reuses_what_was_forgotten():
    problem, predict = knowing([[0, 1, 2]] * 4)
    often = fedwavg(problem, alpha=0.3, predict=predict)
    seldom = fedwavg(problem, alpha=0.3, forget_every=2, predict=predict)
    close(seldom.diagnostics[1]["forgotten"], often.diagnostics[0]["forgotten"], atol=0)
    close(seldom.diagnostics[3]["forgotten"], seldom.diagnostics[2]["forgotten"], atol=0)
    close(weights(seldom, 1), UNIFORM, atol=0)
    assert seldom.diagnostics[2]["forgotten"].sum() > 0


def test_fedwavg_counts_a_newcomer_as_forgetting_nothing():
    problem, predict = knowing([[1, 2], [1, 0]])
    trace = fedwavg(problem, alpha=0.3, predict=predict)
    close(vector(trace.params[0]), [0.5], atol=1e-12)
    close(trace.diagnostics[1]["forgotten"], [0, 2, 0], atol=0)
    close(weights(trace), [0.35 + 0.3, 0.35], atol=1e-15)


# FedDISCO.


def histograms():
    labels = [[0, 1], [3], list(range(10)), list(range(5))]
    return [label_histogram(one, 10) for one in labels]


def test_feddisco_vector():
    d = discrepancies(histograms(), np.full(10, 0.1), "l2")
    close(d, (0.63245553, 0.9486833, 0, 0.31622777))
    quarter = np.full(4, 0.25)
    close(feddisco_weights(quarter, d, 0.1, 0.1), (0.23693558, 0.21080674, 0.28919326, 0.26306442))
    close(feddisco_weights(quarter, d, 0.5, 0.1), (0.05866715, 0, 0.60799952, 0.33333333))


def test_feddisco_twin_vector():
    problem = dictated(np.zeros((4, 2)), np.ones(4), sizes=[10] * 4)
    shards = [np.arange(10) // 5, np.full(10, 3), np.arange(10), np.arange(10) // 2]
    problem.data = [(x, y) for (x, _), y in zip(problem.data, shards, strict=True)]
    trace = feddisco(problem, a=0.1, b=0.1, num_classes=10)
    close(weights(trace), (0.23693558, 0.21080674, 0.28919326, 0.26306442))
    kl = np.log([5, 10, 1, 2])
    close(feddisco(problem, a=0.5, b=0.1, num_classes=10, metric="kl").diagnostics[0]["discrepancy"], kl / kl.sum())


def test_feddisco_two_shards_of_different_labels():
    d = discrepancies([label_histogram([a, b], 10) for a, b in [(0, 1), (3, 7), (5, 5)]], np.full(10, 0.1), "l2")
    close(d, np.sqrt([0.4, 0.4, 0.9]), atol=1e-15)


def test_feddisco_invariants():
    uniform_target, shares = np.full(10, 0.1), np.array([0.1, 0.2, 0.3, 0.4])
    d = discrepancies(histograms(), uniform_target, "l2")
    close(feddisco_weights(np.full(4, 0.25), d, 0.0, 0.1), 0.25, atol=1e-15)
    close(feddisco_weights(shares, d, 0.5, 1e12), 0.25, atol=1e-11)
    close(feddisco_weights(np.full(4, 0.25), np.full(4, 0.6), 0.1, 0.1), 0.25, atol=1e-15)
    close(feddisco_weights(shares, d + 1.0, 9.0, 0.1), shares, atol=0)  # nothing is positive
    close(discrepancies([uniform_target] * 3, uniform_target, "kl"), 0.0, atol=1e-12)
    with pytest.raises(ValueError, match="metric"):
        discrepancies(histograms(), uniform_target, "l1")
    problem = classification()
    same(feddisco(problem, a=0.0, b=0.0, num_classes=3), fedavg(problem))


# Laws for every twin.


@pytest.mark.parametrize("name", BASELINE_TWINS)
def test_trace(name):
    problem = classification(rounds=4)
    trace = run(name, problem)
    assert len(trace.params) == len(trace.diagnostics) == 4
    for t, (cohort, measured) in enumerate(zip(problem.cohorts, trace.diagnostics, strict=True)):
        assert np.all(np.isfinite(vector(trace.params[t])))
        assert np.all(np.isfinite(measured["weights"]))
        assert measured["losses_before"].shape == measured["losses_after"].shape == (len(cohort),)
        assert len(measured["weights"]) == len(cohort)
        if name in NORMALISED:
            assert np.all(measured["weights"] >= 0)
            assert measured["weights"].sum() == pytest.approx(1.0)
    if name in ("ditto", "lp_proj"):
        assert [sorted(models) for models in trace.personal] == [[0, 1, 2, 3]] * 4


@pytest.mark.parametrize("name", sorted(set(BASELINE_TWINS) - {"focus", "lp_proj"}))
def test_losses_are_the_broadcast_model_s(name):
    problem = classification()
    trace = run(name, problem)
    for t, x in enumerate([problem.params, *trace.params[:-1]]):
        expected = [problem.full_loss(x, i) for i in problem.cohorts[t]]
        close(trace.diagnostics[t]["losses_before"], expected, atol=1e-12)


@pytest.mark.parametrize("name", BASELINE_TWINS)
def test_order_of_the_cohort_does_not_matter(name):
    problem, reverse = classification(), classification()
    reverse.cohorts = [cohort[::-1] for cohort in reverse.cohorts]
    more = options(name, problem)
    if name == "rank_core_fed":
        more = {"mixtures": [draws[:, ::-1] for draws in more["mixtures"]]}
    same(run(name, problem), BASELINE_TWINS[name](reverse, **more))


@pytest.mark.parametrize("name", BASELINE_TWINS)
def test_rounds_know_nothing_of_the_future_nor_of_another_run(name):
    short, long = classification(rounds=3), classification(rounds=3)
    short.cohorts, short.batches = short.cohorts[:2], short.batches[:2]
    given = options(name, long)
    whole, again, part = (BASELINE_TWINS[name](problem, **given) for problem in (long, long, short))
    close(last(whole), last(again), atol=0)
    close(last(part), vector(whole.params[1]), atol=0)


@pytest.mark.parametrize("name", sorted(set(BASELINE_TWINS) - {"focus"}))
def test_updates_of_zero_move_nothing(name):
    problem = classification()
    problem.learning_rate = lambda t: 0.0
    trace = run(name, problem)
    start = problem.params
    if name == "lp_proj":
        start = combine([0.25] * 4, options(name, problem)["personal"])
        close(trace.diagnostics[-1]["shared"], 0.0, atol=0)
    close(last(trace), vector(start), atol=1e-15)
    assert all(np.all(np.isfinite(measured["weights"])) for measured in trace.diagnostics)


def test_focus_with_updates_of_zero_stays():
    problem = classification()
    problem.learning_rate = lambda t: 0.0
    clusters = options("focus", problem)["clusters"]
    close(last(focus(problem, clusters=clusters)), vector(clusters), atol=1e-15)


@pytest.mark.parametrize("name", sorted(set(BASELINE_TWINS) - {"lp_proj", "rank_core_fed", "focus"}))
def test_server_rate_scales_the_round(name):
    problem, half = classification(rounds=1), classification(rounds=1)
    half.server_rate = 0.5
    step = last(run(name, problem)) - vector(problem.params)
    close(last(run(name, half)) - vector(problem.params), 0.5 * step, atol=1e-12)


@pytest.mark.parametrize("name", LIKE_FEDAVG)
def test_a_client_alone_is_followed(name):
    problem = classification(cohort_size=1)
    same(run(name, problem), fedavg(problem))


@pytest.mark.parametrize("name", sorted(set(BASELINE_TWINS) - set(LIKE_FEDAVG)))
def test_a_client_alone(name):
    problem = classification(cohort_size=1)
    trace = run(name, problem)
    assert np.all(np.isfinite(last(trace)))
    x = problem.params
    for t, (client,) in enumerate(problem.cohorts):
        delta = subtract(local_sgd(problem, t, client, x)[-1], x)
        if name == "qffl":
            F, G = trace.diagnostics[t]["losses_before"], norm(delta) / problem.learning_rate(t)
            expected = 1 / (1 + 0.5 * G**2 / F * problem.learning_rate(t))
            close(weights(trace, t), expected, atol=1e-8)
        if name == "fedmgda_plus":
            assert norm(subtract(trace.params[t], x)) == pytest.approx(1.0)
        if name == "fedfv":
            assert norm(subtract(trace.params[t], x)) == pytest.approx(norm(delta))
        x = trace.params[t] if name != "focus" else x


@pytest.mark.parametrize("name", LIKE_FEDAVG)
def test_identical_clients_are_one(name):
    problem = twins_of_one_client()
    trace = run(name, problem)
    x = problem.params
    for t in range(2):
        x = local_sgd(problem, t, 0, x)[-1]
    close(last(trace), vector(x), atol=1e-12)


def test_identical_clients_by_geometry():
    problem = twins_of_one_client()
    same(fedfv(problem, alpha=0.1, window=1), fedavg(problem))
    same(fedfv(problem, alpha=0.0, window=2, fv_window="current"), fedavg(problem))
    step = subtract(fedmgda_plus(problem, eps=1.0, eta=0.3).params[0], problem.params)
    delta = subtract(local_sgd(problem, 0, 0, problem.params)[-1], problem.params)
    assert norm(subtract(step, scale(0.3 / norm(delta), delta))) < 1e-12
    a = weights(qffl(problem, q=0.5), 0)
    close(a, a[0], atol=1e-15)
    close(weights(term(problem, t=2.0, normalised=False), 0), 2 / 16, atol=1e-15)
    close(weights(afl(problem, gamma=0.4, participation="all")), 0.25, atol=1e-15)
    close(weights(aaggff(problem, variant="S")), 0.25, atol=1e-12)


@pytest.mark.parametrize("losses", [[0.0] * 3, [0.7] * 3, [0.0, 0.0, 1.0], [1e-12, 1.0, 50.0]])
@pytest.mark.parametrize("name", BASELINE_TWINS)
def test_equal_zero_and_far_losses(name, losses):
    problem = dictated(DELTAS, losses, cohorts=[[0, 1, 2]] * 3)
    trace = run(name, problem)
    assert np.all(np.isfinite(last(trace)))
    for measured in trace.diagnostics:
        assert np.all(np.isfinite(measured["weights"]))
        if name in NORMALISED and name != "rank_core_fed" and len(set(losses)) == 1:
            close(measured["weights"], UNIFORM, atol=1e-12)


@pytest.mark.parametrize("name", BASELINE_TWINS)
def test_opposite_clients_leave_no_nan(name):
    trace = run(name, dictated([(0.1, 0.0), (-0.1, 0.0)], [1.0, 1.0], cohorts=[[0, 1]] * 3))
    assert np.all(np.isfinite(last(trace)))


@pytest.mark.parametrize("name", BASELINE_TWINS)
def test_full_participation(name):
    trace = run(name, classification(cohort_size=4))
    assert np.all(np.isfinite(last(trace)))
    assert len(weights(trace)) == 4
