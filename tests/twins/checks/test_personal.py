"""The twins of Ditto, FOCUS and lp-proj: published vectors, cases by hand, invariants, inputs that tempt a NaN."""

import numpy as np
import pytest

from tests.support import vectors
from tests.support.twin_problems import bowls, classification, close, last, models, same, vector
from tests.twins.algebra import combine, norm, subtract
from tests.twins.averaging import fedavg
from tests.twins.baselines_personal import (
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
from tests.twins.local import local_sgd
from tests.twins.network import random_params

# Ditto.


@pytest.mark.parametrize(("lam", "steps", "expected"), vectors.DITTO)
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
