"""The toy case by hand, maps at their limits, uniqueness, convergence, and the words for all of them."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments.claims import convergence, fairness, statements, temperature, toy
from experiments.claims.clients import Clients
from experiments.claims.convergence import Course
from experiments.claims.fairness import Map, Outcome, Setting
from experiments.claims.statements import FAILS, HOLDS, IN_PART

# The toy case.


def test_the_toy_case_by_hand():
    average, at_one, printed, fairest, qffl, squared = toy.cases()
    assert average[2:5] == pytest.approx((0.5, 5.625, 7.91015625), rel=1e-5)
    assert at_one.weights[0] == pytest.approx(1 / (1 + math.exp(4.5)), rel=1e-4)
    assert at_one.x == pytest.approx(-0.967039, abs=1e-5)
    assert at_one.gap == pytest.approx(13.0072, rel=1e-4)
    assert printed[2:] == pytest.approx((-0.1, 1.215, 0.36905625, 0.99605), rel=1e-3)
    assert fairest[2:4] == pytest.approx((0.0, 0.0), abs=1e-4)
    assert qffl[2:4] == pytest.approx((8 / 21, 4.353741), rel=1e-5)
    assert squared.x == pytest.approx(1 / 7, rel=1e-5)


def test_the_temperatures_of_the_toy_case():
    found = toy.crossings()
    assert found["as_printed"] == pytest.approx(4.5 / math.log(7 / 3))
    assert found["fairest"] == pytest.approx(4.5 / math.log(2))
    for tau, fairer in ((0.99 * found["fairer_above"], False), (1.01 * found["fairer_above"], True), (1e4, True)):
        assert (toy.eba(tau).variance < toy.fedavg().variance) == fairer


# Maps.


def test_shares_are_counted_by_both_variances():
    """Clients at 0 and 1. FedAvg is near the middle, or far off; FedEBA at the first client, or in the middle."""
    pair = Clients(jnp.ones(2), jnp.array([[0.0], [1.0]]), jnp.array([0.0, 0.0]))

    def draw(key, spread, tau):
        average, fair = jnp.where(spread > 1, -1.0, 0.45)[None], jnp.where(tau > 1, 0.5, 0.0)[None]
        return Outcome(average, fair, jnp.array([1.0, 0.0]), pair)

    found = fairness.fairness_map(Setting("", "", draw), jax.random.key(0), 3, (1.0, 2.0), (1.0, 2.0))
    np.testing.assert_array_equal(found.definition, [[0, 1], [1, 1]])
    np.testing.assert_array_equal(found.proof, [[1, 1], [1, 1]])  # one client with all the weight has no variance
    np.testing.assert_allclose(found.ratio[1], [(0.5 / 1.5) ** 2, 0], atol=1e-6)


@pytest.mark.parametrize("name", ["outlier", "convex", "regression", "regression_broadcast"])
def test_a_large_temperature_is_fedavg(name):
    average, fair, p, clients = fairness.SETTINGS[name].draw(jax.random.key(1), 1.0, 1e7)
    np.testing.assert_allclose(fair, average, atol=1e-5)
    np.testing.assert_allclose(p, 1 / fairness.CLIENTS, atol=1e-5)
    assert clients.centre.shape == (fairness.CLIENTS, fairness.DIMENSION)


def test_a_small_temperature_is_the_worst_client():
    _, fair, p, clients = fairness.convex(jax.random.key(1), 1.0, 1e-4)
    worst = int(clients.floor.argmax())
    np.testing.assert_allclose(p[worst], 1, atol=1e-4)
    np.testing.assert_allclose(fair, clients.centre[worst], atol=1e-3)


def test_least_squares_has_the_moments_that_it_is_drawn_with():
    """The weights' losses are sigma^2 chi^2_{n-d} / 2n; estimates are sigma / sqrt(n) from the truth."""
    draw = jax.vmap(lambda key: fairness.regression(key, 1.0, 1e7, broadcast=False))
    average, _, _, clients = draw(jax.random.split(jax.random.key(0), 2000))
    off = np.asarray(average - clients.centre.mean(axis=1))
    expected = fairness.NOISE / math.sqrt(fairness.EXAMPLES * fairness.CLIENTS)
    assert off.std() == pytest.approx(expected, rel=0.05)


def test_two_equal_clients_and_three_values_by_hand():
    two = fairness.two_equal_clients(1.0)
    p = math.exp(0.1) / (1 + math.exp(0.1))
    gap = (p**2 - (1 - p) ** 2) / 2
    assert two["fedavg"] == 0
    assert two["fedeba"] == pytest.approx((gap / 2) ** 2, rel=1e-3)
    assert two["fedeba_by_the_proof"] == pytest.approx(p * (1 - p) * gap**2, rel=1e-3)
    assert fairness.three_values() == pytest.approx({"uniform": 2 / 9, "weighted": 1 / 4})


# Temperature.


def test_every_start_ends_at_the_closed_form(x64):
    found = temperature.uniqueness(0, problems=2, starts=3)
    assert found.between_starts < 1e-6
    assert found.to_closed_form < 1e-6
    assert found.positive_curvature < 0


def test_limits_of_the_temperature(x64):
    found = temperature.limits(0, problems=5)
    assert found.to_uniform < 1e-5
    assert found.to_prior < 1e-5
    assert found.on_the_worst > 0.99
    assert found.is_monotone


# Convergence.


def test_a_course_has_a_gradient_for_each_length_and_temperature_and_slopes():
    found = convergence.course(jax.random.key(0), 2, (16, 64), (10.0,))
    assert found.own.shape == found.average.shape == (1, 2)
    assert (found.fedavg > 0).all()
    known = Course((4, 16, 64), (1.0,), np.array([[1.0, 0.5, 0.25]]), np.ones((1, 3)), np.ones(3))
    np.testing.assert_allclose(known.slopes(known.own), [-0.5])
    np.testing.assert_allclose(known.slopes(known.average), [0.0], atol=1e-12)


def test_without_noise_one_round_s_gradient_is_that_at_the_start(monkeypatch):
    monkeypatch.setattr(convergence, "NOISE", 0.0)
    clients = fairness.any_convex(jax.random.key(2), 1.0)
    own, average = convergence.smallest_gradients(clients, jax.random.key(0), 1, None)
    gradient = clients.gradients(jnp.full(fairness.DIMENSION, 3.0)).mean(axis=0)
    np.testing.assert_allclose([own, average], jnp.sum(gradient**2), rtol=1e-5)


# Words.


@pytest.mark.parametrize(("shares", "verdict"), [([1, 1], HOLDS), ([0.2, 1], IN_PART), ([0.2, 0.99], FAILS)])
def test_words_for_shares(shares, verdict):
    assert statements.of_shares(np.array(shares)) == verdict
    same = np.array([shares])
    found = statements.fairness({"regression": Map(same, same, same)}, {"regression": "r"}, {"fedavg": 1, "fedeba": 1})
    assert [one.verdict for one in found] == [verdict, verdict, HOLDS]
    assert f"{100 * min(shares):.1f} % to {100 * max(shares):.1f} %" in found[0].evidence


def test_words_for_the_toy_case():
    first, order = statements.toy(toy.cases(), toy.crossings())
    assert (first.verdict, order.verdict) == (FAILS, IN_PART)
    assert "x = -0.1 is tau = 5.311" in first.evidence


def test_words_for_slopes():
    steep, flat = np.array([[1.0, 0.5, 0.25]]), np.ones((1, 3))
    course = Course((4, 16, 64), (1.0,), steep, flat, steep[0])
    assert [one.verdict for one in statements.convergence(course)] == [HOLDS, FAILS]
