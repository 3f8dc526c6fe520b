"""The twins of q-FFL, TERM, PropFair, FedwAvg and FedDISCO: vectors, by hand, invariants, inputs that tempt a NaN."""

from itertools import pairwise

import numpy as np
import pytest

from tests.support import vectors
from tests.support.twin_problems import (
    DELTAS,
    LOSSES,
    classification,
    close,
    dictated,
    last,
    models,
    quadratic,
    same,
    toy,
    vector,
    weights,
)
from tests.support.vectors import UNIFORM
from tests.twins.algebra import norm
from tests.twins.averaging import fedavg
from tests.twins.baselines_weights import (
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
from tests.twins.problem import Problem
from tests.twins.weights import entropy_weights

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


def test_term_as_published_in_code_takes_the_largest_loss_for_a_negative_tilt_too():
    """F = 2, 1: e = (1, 2) for t = -log 2, Z = 3/4, omega = (2/3, 4/3); then F = 1, 1: e = 1, Z = 7/8."""
    a, omega, Z = term_code_weights([2.0, 1.0], -np.log(2), 0.0)
    close(omega, (2 / 3, 4 / 3))
    assert pytest.approx(3 / 4) == Z
    a, omega, Z = term_code_weights([1.0, 1.0], -np.log(2), Z)
    close(a, (2 / 7, 2 / 7))


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


@pytest.mark.parametrize(("M", "loss", "code", "huber"), vectors.PROPFAIR)
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
