"""The twins of AFL and AAggFF: published vectors, cases by hand, invariants, inputs that tempt a NaN."""

import math

import numpy as np
import pytest

from tests.support import vectors
from tests.support.twin_problems import DELTAS, LOSSES, classification, close, dictated, same, vector, weights
from tests.support.vectors import UNIFORM
from tests.twins.averaging import fedavg
from tests.twins.baselines_online import (
    CDFS,
    DeviceLearner,
    SiloLearner,
    aaggff,
    afl,
    afl_ascent,
    afl_weights,
    responses,
)

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


@pytest.mark.parametrize(("repo_exact", "p", "a"), vectors.AAGGFF)
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
