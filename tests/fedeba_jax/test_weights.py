"""Weight rules and the fairness gate: golden values, limits, invariances; float32 unless a test says otherwise."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedeba_jax.weights import by_examples, entropy, entropy_based, fairness_angle, is_open, softmax, uniform

LOSSES = np.array([0.5, 1.0, 2.0])
GOLDEN = {1.0: (0.14024438, 0.23122390, 0.62853172), 10.0: (0.31122540, 0.32718227, 0.36159233)}

some_losses = st.lists(st.floats(0, 10, width=32), min_size=5, max_size=5)  # one size: one compilation
fixed = settings(deadline=None, derandomize=True, max_examples=50)


@pytest.mark.parametrize("tau", GOLDEN)
def test_entropy_based_golden(x64, tau):
    np.testing.assert_allclose(entropy_based(LOSSES, tau), GOLDEN[tau], atol=5e-9)


def test_a_prior_multiplies_the_weights(x64):
    prior = np.array([0.1, 0.3, 0.6])
    unnormalised = prior * np.exp(LOSSES)
    np.testing.assert_allclose(entropy_based(LOSSES, 1.0, prior), unnormalised / unnormalised.sum(), rtol=1e-12)


def test_a_prior_of_zero_excludes_a_client():
    weights = entropy_based(jnp.array([9.0, 1.0, 1.0]), 0.1, jnp.array([0.0, 0.5, 0.5]))
    np.testing.assert_allclose(weights, [0, 0.5, 0.5])


@pytest.mark.parametrize("tau", [1e9, np.inf])
def test_an_infinite_temperature_gives_the_prior(tau):
    prior = jnp.array([0.1, 0.3, 0.6])
    np.testing.assert_allclose(entropy_based(jnp.asarray(LOSSES), tau, prior), prior, rtol=1e-6)
    np.testing.assert_allclose(entropy_based(jnp.asarray(LOSSES), tau), uniform(3), rtol=1e-6)


@pytest.mark.parametrize("scale", [1.0, 100.0, 5e3])
def test_a_temperature_near_zero_takes_the_worst_client(scale):
    losses = scale * jnp.asarray(LOSSES, jnp.float32)  # up to 1e4
    np.testing.assert_array_equal(entropy_based(losses, 1e-3), [0, 0, 1])
    np.testing.assert_array_equal(entropy_based(losses, 1e-3, jnp.array([0.5, 0.4, 0.1])), [0, 0, 1])


def test_ties_share_the_weight():
    np.testing.assert_array_equal(entropy_based(jnp.array([3.0, 1.0, 3.0]), 1e-3), [0.5, 0, 0.5])


@fixed
@given(some_losses, st.permutations(range(5)), st.floats(0.125, 8, width=32))
def test_entropy_based_follows_a_permutation_of_the_clients(losses, order, tau):
    losses, order = np.array(losses, np.float32), np.array(order)
    np.testing.assert_allclose(entropy_based(losses[order], tau), entropy_based(losses, tau)[order], atol=1e-6)


@fixed
@given(some_losses, st.floats(-5, 5, width=32))
def test_entropy_based_ignores_a_common_shift(losses, shift):
    losses = np.array(losses, np.float32)
    np.testing.assert_allclose(entropy_based(losses + shift, 1.0), entropy_based(losses, 1.0), atol=1e-5)


@fixed
@given(some_losses, st.floats(0.125, 8, width=32))
def test_entropy_based_is_a_distribution_that_rises_with_the_loss(losses, tau):
    losses = np.array(losses, np.float32)
    p = np.asarray(entropy_based(losses, tau))
    assert (p >= 0).all()
    np.testing.assert_allclose(p.sum(), 1, atol=1e-6)
    assert (np.diff(p[np.argsort(losses)]) >= 0).all()


def test_by_examples_and_uniform():
    np.testing.assert_allclose(by_examples(jnp.array([10, 30, 60])), [0.1, 0.3, 0.6], rtol=1e-6)
    np.testing.assert_allclose(by_examples(jnp.array([7, 7, 7])), uniform(3), rtol=1e-6)
    np.testing.assert_allclose(uniform(4), [0.25] * 4)


def test_the_angle_golden(x64):
    np.testing.assert_allclose(fairness_angle(jnp.asarray(LOSSES)), 28.12550570, atol=1e-8)
    np.testing.assert_allclose(fairness_angle(jnp.asarray(LOSSES, jnp.float32)), 28.12550570, atol=1e-4)


def test_the_angle_of_equal_losses_is_exactly_zero_in_float32():
    angles = jax.jit(jax.vmap(fairness_angle))
    values = np.random.default_rng(0).lognormal(0, 3, 500).astype(np.float32)
    for n in (1, 2, 3, 7, 10, 33, 100):
        assert not np.any(angles(np.tile(values[:, None], (1, n)))), n


def test_the_angle_of_zero_losses_is_zero():
    assert fairness_angle(jnp.zeros(4)) == 0


def test_the_angle_is_the_arccos_of_the_paper(x64):
    for losses in np.random.default_rng(1).uniform(0, 3, (20, 6)):
        cosine = losses.sum() / (np.linalg.norm(losses) * np.sqrt(6))
        np.testing.assert_allclose(fairness_angle(losses), np.degrees(np.arccos(cosine)), atol=1e-9)


def test_the_angle_resolves_small_gaps_in_float32():
    """0.0057 degrees; a float32 arccos gives 0 or 0.02."""
    losses = jnp.array([0.9999, 1.0001], jnp.float32)
    np.testing.assert_allclose(fairness_angle(losses), np.degrees(np.arctan(1e-4)), rtol=1e-3)


@fixed
@given(some_losses, st.sampled_from([0.25, 3.0, 1000.0]), st.permutations(range(5)))
def test_the_angle_ignores_scale_and_order(losses, scale, order):
    losses = np.array(losses, np.float32)
    losses = losses + np.float32(0.01)  # away from zero, where there is no direction
    angle = fairness_angle(losses)
    np.testing.assert_allclose(fairness_angle(np.float32(scale) * losses[np.array(order)]), angle, atol=1e-3)
    assert 0 <= angle <= 90


@pytest.mark.parametrize(
    ("angle", "theta", "opens", "blindly"),
    [(10.0, 5.0, True, True), (10.0, 10.0, False, True), (0.0, 0.0, False, True), (89.0, 90.0, False, False),
     (10.0, 180.0, False, False), (10.0, 89.9, False, True)],
)  # fmt: skip
def test_the_gate_opens_above_its_angle_and_a_blind_one_by_theta_alone(angle, theta, opens, blindly):
    assert bool(is_open(jnp.asarray(angle), theta)) == opens
    for whatever in (0.0, angle, 90.0):
        assert bool(is_open(jnp.asarray(whatever), theta, blind=True)) == blindly
    assert bool(jax.jit(lambda a, t: is_open(a, t, blind=True))(angle, theta)) == blindly


def test_softmax_with_a_prior(x64):
    prior = np.array([0.1, 0.3, 0.6])
    unnormalised = prior * np.exp(LOSSES)
    np.testing.assert_allclose(softmax(LOSSES, prior), unnormalised / unnormalised.sum(), rtol=1e-12)
    np.testing.assert_allclose(softmax(LOSSES), entropy_based(LOSSES, 1.0), rtol=1e-12)


def test_entropy_by_hand():
    np.testing.assert_allclose(entropy(uniform(8)), np.log(8), rtol=1e-6)
    assert entropy(jnp.array([0.0, 1.0, 0.0])) == 0
    np.testing.assert_allclose(entropy(jnp.array([0.25, 0.75])), 0.25 * np.log(4) + 0.75 * np.log(4 / 3), rtol=1e-6)


def test_a_table_of_losses_is_refused():
    for rule in (lambda v: entropy_based(v, 1.0), fairness_angle, by_examples):
        with pytest.raises(AssertionError):
            rule(jnp.ones((2, 3)))
