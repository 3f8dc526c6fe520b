"""Laws for every twin of a baseline: what clients alone, equal or opposite give, and inputs that tempt a NaN."""

import numpy as np
import pytest

from tests.support.twin_problems import DELTAS, classification, close, dictated, last, same, vector, weights
from tests.support.vectors import UNIFORM
from tests.twins.algebra import combine, norm, scale, subtract
from tests.twins.averaging import fedavg
from tests.twins.baselines import BASELINE_TWINS
from tests.twins.baselines_gradients import fedfv, fedmgda_plus
from tests.twins.baselines_online import aaggff, afl
from tests.twins.baselines_personal import flatten, focus
from tests.twins.baselines_weights import qffl, term
from tests.twins.local import local_sgd

LIKE_FEDAVG = ["afl", "term", "aaggff", "ditto", "corefed", "rank_core_fed", "fedwavg", "feddisco"]  # for equal clients
NORMALISED = [*LIKE_FEDAVG, "propfair", "lp_proj"]  # weights that sum to 1


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
