"""The twins themselves: published vectors, cases worked out by hand, and limits where two algorithms meet."""

import numpy as np
import pytest

from tests.support.twin_problems import (
    classification,
    full_batch_problem,
    linear,
    linear_gradient,
    linear_loss,
    quadratic,
    toy,
)
from tests.twins import TWINS, network
from tests.twins.algebra import add, dot, flat, norm, scale, subtract
from tests.twins.averaging import fedavg, fedprox, fedsgd
from tests.twins.baselines import BASELINE_TWINS
from tests.twins.entropy import fedavg_align, fedeba, fedeba_plus, prac_fedeba_plus
from tests.twins.local import local_sgd
from tests.twins.weights import angle_degrees, entropy_weights

OPEN, CLOSED = -1.0, 180.0  # thresholds in degrees that no angle stays below, or passes
REQUIRED = {
    "fedavg": {},
    "fedsgd": {},
    "fedprox": {"mu": 0.1},
    "mime_lite": {"beta": 0.9},
    "fedeba": {"tau": 1.0},
    "fedeba_plus": {"tau": 1.0, "alpha": 0.5, "theta": 5.0},
    "prac_fedeba_plus": {"tau": 1.0, "alpha": 0.5, "theta": 5.0},
    "fedavg_align": {"tau": 1.0, "alpha": 0.5, "theta": 5.0},
    "robust_fedeba_plus": {
        "tau": 1.0,
        "alpha": 0.5,
        "theta": 5.0,
        "loss_clip": np.inf,
    },  # its angle is of guarded losses
}
ALONE = {"local_only"}  # nothing is weighed or averaged there; the laws and Ditto's twin say the same
STATELESS = [name for name in REQUIRED if name != "mime_lite"]  # its momentum is a state


def result(trace):
    """The last model as one vector."""
    return np.concatenate([a.ravel() for a in flat(trace.params[-1])])


def assert_same(left, right, atol=1e-12):
    np.testing.assert_allclose(result(left), result(right), rtol=0, atol=atol)


# The parts.


@pytest.mark.parametrize("sizes", [[4, 3], [4, 5, 3], [4, 6, 5, 3]])
def test_gradient_is_the_slope_of_the_loss(sizes):
    rng = np.random.default_rng(1)
    params = network.random_params(rng, sizes)
    x, y = rng.normal(size=(7, 4)), rng.integers(0, 3, 7)
    grad = network.gradient(params, x, y)
    step = 1e-6
    for layer, arrays in enumerate(params):
        for which, array in enumerate(arrays):
            for entry in np.ndindex(array.shape):
                basis = [tuple(np.zeros_like(a) for a in pair) for pair in params]
                basis[layer][which][entry] = step
                rise = network.loss(add(params, basis), x, y) - network.loss(subtract(params, basis), x, y)
                assert rise / (2 * step) == pytest.approx(grad[layer][which][entry], abs=1e-8)


def test_loss_of_a_zero_model_is_log_classes():
    params = [(np.zeros((4, 3)), np.zeros(3))]
    assert network.loss(params, np.ones((2, 4)), np.array([0, 2])) == pytest.approx(np.log(3))


def test_loss_survives_large_logits():
    params = [(np.array([[1e4, 0.0]]), np.zeros(2))]
    assert network.loss(params, np.ones((1, 1)), np.array([1])) == pytest.approx(1e4)


def test_algebra():
    u, v = [(np.array([1.0, 2.0]), np.array([3.0]))], [(np.array([0.0, 1.0]), np.array([-1.0]))]
    assert dot(u, v) == -1.0
    assert norm(scale(2.0, u)) == pytest.approx(2 * np.sqrt(14))


def test_angle_golden():
    assert angle_degrees([0.5, 1.0, 2.0]) == pytest.approx(28.12550570, abs=1e-8)


@pytest.mark.parametrize("losses", [[0.1] * 3, [0.1] * 7, [0.0, 0.0], [2.3]])
def test_angle_of_equal_losses_is_exactly_zero(losses):
    assert angle_degrees(losses) == 0.0


def test_angle_ignores_scale_and_order_and_resolves_small_gaps():
    assert angle_degrees([1.0, 4.0, 2.0]) == pytest.approx(angle_degrees([0.5, 1.0, 2.0]))
    assert angle_degrees([1.0, 1.0 + 2e-9]) == pytest.approx(np.degrees(1e-9), rel=1e-6)


def test_entropy_weights_golden_and_limits():
    q = np.array([0.75, 0.25])
    uniform = np.array([0.5, 0.5])
    np.testing.assert_allclose(entropy_weights([2.0, 12.5], 10.5 / np.log(3), uniform), [0.25, 0.75])
    np.testing.assert_allclose(entropy_weights([2.0, 12.5], 10.5 / np.log(3), q), [0.5, 0.5])
    np.testing.assert_allclose(entropy_weights([2.0, 12.5], np.inf, q), q)
    np.testing.assert_allclose(entropy_weights([900.0, 12.5], 1e-3, q), [1.0, 0.0])


# Vectors of FedAvg, FedSGD and FedProx.


@pytest.mark.parametrize(("weighting", "expected"), [("uniform", (1.0, 1.93333333)), ("examples", (0.96, 1.78))])
def test_fedavg_vector(weighting, expected):
    deltas = np.array([(-0.1, 0.2), (0.3, 0.0), (-0.2, -0.4)])
    trace = fedavg(linear(-deltas, (10, 30, 60), rate=1.0), weighting=weighting)
    np.testing.assert_allclose(result(trace), expected, atol=1e-8)


def test_fedavg_several_steps():
    problem = quadratic([(1.0, 0.0), (2.0, 3.0), (4.0, -1.0)], (1, 1, 1), start=1.0, rate=0.1, steps=3)
    models = [local_sgd(problem, 0, i, problem.params)[-1][0][0][0] for i in range(3)]
    np.testing.assert_allclose(models, [0.729, 1.976, -0.568])
    assert result(fedavg(problem, weighting="uniform")) == pytest.approx(0.71233333, abs=1e-8)


@pytest.mark.parametrize(
    ("sizes", "weighting", "expected"),
    [((1, 3, 6), "uniform", (0.86666667, 1.95)), ((1, 3, 6), "examples", (0.9, 1.98))],
)
def test_fedsgd_vector(sizes, weighting, expected):
    gradients = np.array([(1.0, 2.0), (3.0, -1.0), (0.0, 0.5)])
    trace = fedsgd(linear(gradients, sizes, rate=0.1), weighting=weighting)
    np.testing.assert_allclose(result(trace), expected, atol=1e-8)


@pytest.mark.parametrize(("mu", "expected"), [(0.0, 1.976), (0.1, 1.96564), (1.0, 1.876)])
def test_fedprox_vector(mu, expected):
    trace = fedprox(quadratic([(2.0, 3.0)], (1,), start=1.0, rate=0.1, steps=3), mu=mu)
    assert result(trace) == pytest.approx(expected, abs=1e-9)


# The toy case, with the numbers that follow from the formula (the paper's x = -0.1 needs tau = 5.311).


def toy_gap(trace):
    model, problem = trace.params[-1], toy()
    return abs(problem.full_loss(model, 0) - problem.full_loss(model, 1))


def test_toy_fedavg():
    trace = fedavg(toy())
    np.testing.assert_allclose(trace.diagnostics[0]["losses_after"], [0.0, 4.5])
    assert result(trace) == pytest.approx(0.5)
    assert toy_gap(trace) == pytest.approx(5.625)
    assert (toy_gap(trace) / 2) ** 2 == pytest.approx(7.910, abs=5e-4)


@pytest.mark.parametrize(
    ("tau", "first_weight", "model", "gap"), [(1.0, 0.010987, -0.9670, 13.007), (5.311, 0.3, -0.1, 1.215)]
)
def test_toy_fedeba(tau, first_weight, model, gap):
    trace = fedeba(toy(), tau=tau)
    assert trace.diagnostics[0]["weights"][0] == pytest.approx(first_weight, abs=1e-5)
    assert result(trace) == pytest.approx(model, abs=5e-5)
    assert toy_gap(trace) == pytest.approx(gap, abs=1e-3)


# FedEBA+ by hand on the toy case: two steps, alpha = 1/2, tau so large that p = p~ = (1/2, 1/2).
# At x = 0 the gradients are -8 and 4, so g~ = -2, and the losses are 8 and 8.


def by_hand(algorithm, theta, **options):
    return result(algorithm(toy(steps=2), tau=1e15, alpha=0.5, theta=theta, **options))


@pytest.mark.parametrize("algorithm", [fedeba_plus, fedavg_align])
@pytest.mark.parametrize(("fair_scale", "expected"), [(None, 0.4921875), (0.5, 0.4921875), (1.0, 0.703125)])
def test_gate_open_by_hand(algorithm, fair_scale, expected):
    # c = 1/2: models 1.6875 and -0.703125; c = 1: 1.875 and -0.46875.
    assert by_hand(algorithm, OPEN, fair_scale=fair_scale) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("algorithm", [fedeba_plus, fedavg_align])
def test_gate_closed_by_hand(algorithm):
    # Models 2 and -1.75, first steps 2 and -1: (0.125 + 0.5) / 2.
    assert by_hand(algorithm, CLOSED) == pytest.approx(0.3125, abs=1e-12)


def test_prac_by_hand():
    # Gate open: p = p~, so FedAvg's 0.125; closed: (0.125 + 0.125 / 2) / 2.
    assert by_hand(prac_fedeba_plus, OPEN) == pytest.approx(0.125, abs=1e-12)
    assert by_hand(prac_fedeba_plus, CLOSED) == pytest.approx(0.09375, abs=1e-12)


@pytest.mark.parametrize(("algorithm", "closed"), [(fedeba_plus, 0.3125), (prac_fedeba_plus, 0.09375)])
def test_equal_losses_do_not_open_the_gate_at_zero(algorithm, closed):
    trace = algorithm(toy(steps=2), tau=1e15, alpha=0.5, theta=0.0)
    assert trace.diagnostics[0]["angle"] == 0.0
    assert trace.diagnostics[0]["gate"] is False
    assert result(trace) == pytest.approx(closed, abs=1e-12)


@pytest.mark.parametrize(
    ("sizes", "prior", "expected"),
    [((1, 1), None, 0.3125), ((3, 1), None, 0.3125), ((3, 1), "examples", 0.875)],
)
def test_fair_gradient_by_hand(sizes, prior, expected):
    # At x = 1 the losses are 2 and 12.5, the gradients -4 and 5. This tau gives p~ = (1/4, 3/4): g~ = 2.75;
    # with the prior (3/4, 1/4) it gives (1/2, 1/2): g~ = 0.5. With alpha = 1 every client goes to 1 - g~ / 4.
    tau = 10.5 / np.log(3)
    trace = fedeba_plus(toy(start=1.0, sizes=sizes), tau=tau, alpha=1.0, theta=0.0, prior=prior)
    assert trace.diagnostics[0]["gate"] is True
    assert result(trace) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize(("weighting", "direction"), [("uniform", 1.625), ("examples", 0.5)])
def test_fedavg_align_by_hand(weighting, direction):
    # As above without a prior, alpha = 1/2: directions -0.625 and 3.875, averaged by FedAvg's weights.
    problem = toy(start=1.0, sizes=(3, 1))
    trace = fedavg_align(problem, tau=10.5 / np.log(3), alpha=0.5, theta=0.0, weighting=weighting)
    assert result(trace) == pytest.approx(1 - direction / 4, abs=1e-12)


def test_prac_weights_by_hand():
    # As above, one step: models 2 and -0.25 with losses 0 and 7.03125, updates 1 and -1.25.
    # alpha = 1 leaves p~ = (1/4, 3/4), of the losses before: 0.25 - 0.9375.
    trace = prac_fedeba_plus(toy(start=1.0), tau=10.5 / np.log(3), alpha=1.0, theta=0.0)
    assert result(trace) == pytest.approx(1 - 0.6875, abs=1e-12)


def test_one_step_mean_of_a_closed_gate_is_by_examples():
    # First steps 2 and -1 with sizes 3 and 1; alpha = 1 leaves only their mean.
    trace = fedeba_plus(toy(steps=2, sizes=(3, 1)), tau=1.0, alpha=1.0, theta=CLOSED)
    assert result(trace) == pytest.approx(1.25)
    trace = prac_fedeba_plus(toy(steps=2, sizes=(3, 1)), tau=1.0, alpha=1.0, theta=CLOSED)
    assert result(trace) == pytest.approx((3 * 2 - 1.75) / 4 / 2)


# Limits and identities on the network, over several rounds.


@pytest.mark.parametrize("theta", [0.0, 10.0, CLOSED])
@pytest.mark.parametrize("prior", [None, "examples"])
@pytest.mark.parametrize("algorithm", [fedeba_plus, prac_fedeba_plus])
def test_without_alignment_it_is_fedeba(algorithm, theta, prior):
    problem = classification()
    trace = algorithm(problem, tau=0.5, alpha=0.0, theta=theta, prior=prior)
    assert_same(trace, fedeba(problem, tau=0.5, prior=prior))


@pytest.mark.parametrize("weighting", ["uniform", "examples"])
def test_fedavg_align_without_alignment_is_fedavg(weighting):
    problem = classification()
    trace = fedavg_align(problem, tau=0.5, alpha=0.0, theta=0.0, weighting=weighting)
    assert_same(trace, fedavg(problem, weighting=weighting))


@pytest.mark.parametrize(("prior", "weighting"), [(None, "uniform"), ("examples", "examples")])
def test_high_temperature_is_fedavg(prior, weighting):
    problem = classification()
    assert_same(fedeba(problem, tau=1e15, prior=prior), fedavg(problem, weighting=weighting))


def test_low_temperature_follows_the_worst_client():
    problem = classification(rounds=1)
    trace = fedeba(problem, tau=1e-6)
    worst = problem.cohorts[0][int(np.argmax(trace.diagnostics[0]["losses_after"]))]
    trained = local_sgd(problem, 0, worst, problem.params)[-1]
    assert norm(subtract(trace.params[0], trained)) < 1e-12


@pytest.mark.parametrize("weighting", ["uniform", "examples"])
def test_one_full_step_of_fedavg_is_fedsgd(weighting):
    problem = classification(steps=(1, 1, 1, 1), full_batch=True)
    assert_same(fedavg(problem, weighting=weighting), fedsgd(problem, weighting=weighting))


def test_fedprox_limits():
    problem = classification()
    assert_same(fedprox(problem, mu=0.0), fedavg(problem), atol=0)
    one_step = classification(steps=(1, 1, 1, 1))
    assert_same(fedprox(one_step, mu=3.0), fedavg(one_step))


def test_one_full_aligned_step_with_equal_weights_is_fedsgd():
    problem = classification(steps=(1, 1, 1, 1), full_batch=True)
    assert_same(fedeba_plus(problem, tau=1e15, alpha=0.7, theta=OPEN), fedsgd(problem, weighting="uniform"))


@pytest.mark.parametrize("steps", [(2, 2, 2, 2), (1, 2, 3, 4)])
@pytest.mark.parametrize("prior", [None, "examples"])
def test_prac_reweights_the_updates(steps, prior):
    """Delta = (1 - alpha) sum p_i Delta_i + alpha (sum p_j K_j) sum p~_i Delta_i / K_i."""
    problem = classification(rounds=1, steps=steps)
    trace = prac_fedeba_plus(problem, tau=0.5, alpha=0.3, theta=0.0, prior=prior)
    cohort, measured = problem.cohorts[0], trace.diagnostics[0]
    assert measured["gate"]
    p, p_fair, K = measured["weights"], measured["fair_weights"], np.array([steps[i] for i in cohort])
    expected = problem.params
    for i, weight in zip(cohort, 0.7 * p + 0.3 * (p @ K) * p_fair / K, strict=True):
        update = subtract(local_sgd(problem, 0, i, problem.params)[-1], problem.params)
        expected = add(expected, scale(weight, update))
    assert norm(subtract(trace.params[0], expected)) < 1e-12


def test_default_fair_scale_is_one_over_the_client_s_own_steps():
    problem = classification(rounds=1, steps=(1, 2, 3, 4))
    trace = fedeba_plus(problem, tau=0.5, alpha=1.0, theta=0.0)  # every client moves by -eta_L g~
    fair = np.zeros_like(result(trace))
    for i, weight in zip(problem.cohorts[0], trace.diagnostics[0]["fair_weights"], strict=True):
        grad = problem.full_gradient(problem.params, i)
        fair += weight * np.concatenate([a.ravel() for a in flat(grad)])
    start = np.concatenate([a.ravel() for a in flat(problem.params)])
    np.testing.assert_allclose(result(trace), start - 0.1 * fair, atol=1e-12)


# Laws for every twin.


def test_every_twin_is_covered():
    """Here, or with the baselines."""
    assert set(TWINS) - set(BASELINE_TWINS) - ALONE == set(REQUIRED)


@pytest.mark.parametrize("name", REQUIRED)
def test_trace(name):
    problem = classification()
    trace = TWINS[name](problem, **REQUIRED[name])
    assert len(trace.params) == len(trace.diagnostics) == 3
    assert np.all(np.isfinite(result(trace)))
    for cohort, measured in zip(problem.cohorts, trace.diagnostics, strict=True):
        assert measured["losses_before"].shape == measured["losses_after"].shape == (len(cohort),)
        assert measured["weights"].sum() == pytest.approx(1.0)
        assert measured["angle"] == angle_degrees(measured["losses_before"])


@pytest.mark.parametrize("name", REQUIRED)
def test_order_of_the_cohort_does_not_matter(name):
    problem, reverse = classification(), classification()
    reverse.cohorts = [cohort[::-1] for cohort in reverse.cohorts]
    assert_same(TWINS[name](problem, **REQUIRED[name]), TWINS[name](reverse, **REQUIRED[name]))


@pytest.mark.parametrize("name", REQUIRED)
def test_server_rate_scales_the_round(name):
    problem, half = classification(rounds=1), classification(rounds=1)
    half.server_rate = 0.5
    whole_step = subtract(TWINS[name](problem, **REQUIRED[name]).params[0], problem.params)
    half_step = subtract(TWINS[name](half, **REQUIRED[name]).params[0], problem.params)
    assert norm(subtract(whole_step, scale(2.0, half_step))) < 1e-12


@pytest.mark.parametrize("name", REQUIRED)
def test_zero_rate_is_a_fixed_point(name):
    problem = classification()
    problem.learning_rate = lambda t: 0.0
    trace = TWINS[name](problem, **REQUIRED[name])
    assert norm(subtract(trace.params[-1], problem.params)) == 0.0


@pytest.mark.parametrize("theta", [OPEN, CLOSED])
@pytest.mark.parametrize("name", STATELESS)
def test_rate_is_that_of_the_round(name, theta):
    """Equal clients with a constant gradient move by -(eta_0 + eta_1) times it, whatever their weights."""
    rows = np.array([(1.0, 2.0)] * 2)
    problem = full_batch_problem(rows, (1, 3), [1.0, 2.0], None, 1, linear_loss, linear_gradient, rounds=2)
    problem.learning_rate = lambda t: [0.1, 0.02][t]
    options = {**REQUIRED[name], "theta": theta} if "theta" in REQUIRED[name] else REQUIRED[name]
    np.testing.assert_allclose(result(TWINS[name](problem, **options)), [1 - 0.12, 2 - 0.24])


@pytest.mark.parametrize("name", STATELESS)
def test_rounds_compose(name):
    """Without a state the last round alone, from the model before it, ends in the same model."""
    problem, last = classification(rounds=2), classification(rounds=2)
    both = TWINS[name](problem, **REQUIRED[name])
    last.params, last.cohorts, last.batches = both.params[0], last.cohorts[1:], last.batches[1:]
    last.learning_rate = lambda t: problem.learning_rate(t + 1)
    assert_same(both, TWINS[name](last, **REQUIRED[name]), atol=0)


@pytest.mark.parametrize("name", ["fedeba_plus", "prac_fedeba_plus", "fedavg_align"])
def test_the_gate_is_taken_anew_each_round(name):
    problem = classification(rounds=4)
    angles = [d["angle"] for d in TWINS[name](problem, **{**REQUIRED[name], "theta": 0.0}).diagnostics]
    trace = TWINS[name](problem, **{**REQUIRED[name], "theta": angles[0] - 1e-9})
    gates = [d["gate"] for d in trace.diagnostics]
    assert gates == [d["angle"] > angles[0] - 1e-9 for d in trace.diagnostics]
    assert set(gates) == {True, False}
