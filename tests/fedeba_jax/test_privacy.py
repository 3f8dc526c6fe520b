"""Clips, noise, capped weights, and how far one client can move a sum."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fedeba_jax
from fedeba_jax import privacy, weights
from tests.support.marks import slow_but
from tests.support.private import INF, close
from tests.support.problems import COUNTS, tiny
from tests.twins.privacy import capped_weights

# Clips and noise


def test_clip_vectors():
    rows = jnp.array([[3.0, 4.0], [0.3, 0.4], [-6.0, 8.0]])
    total = jax.vmap(lambda row: privacy.clip(row, 1.0))(rows)
    np.testing.assert_allclose(total.sum(0), [0.3, 2.0], atol=1e-6)
    np.testing.assert_allclose(total.mean(0), [0.1, 0.66667], atol=1e-5)


def test_a_clip_takes_the_norm_of_all_leaves_and_never_lengthens():
    tree = {"a": jnp.array([3.0]), "b": jnp.array([[4.0]])}
    np.testing.assert_allclose(privacy.clip(tree, 1.0)["b"], [[0.8]])
    for limit in (5.0, 6.0, INF):
        close(privacy.clip(tree, limit), tree, 0)
    close(privacy.clip({"a": jnp.zeros(3)}, 1.0), {"a": np.zeros(3)}, 0)


@pytest.mark.parametrize("bad", [jnp.inf, -jnp.inf, jnp.nan])
def test_what_is_not_finite_counts_as_nothing(bad):
    close(privacy.clip(jnp.array([1.0, bad]), 1.0), np.zeros(2), 0)
    limits = privacy.Limits(1.0, 2.3, INF)
    assert float(limits.loss(jnp.asarray(bad))) == pytest.approx(0.0 if bad == -jnp.inf else 2.3)


def test_losses_are_clipped_to_fixed_bounds():
    np.testing.assert_allclose(privacy.Limits(1.0, 2.0, INF).loss(jnp.array([-1.0, 0.5, 3.0])), [0.0, 0.5, 2.0])


def test_noise_has_its_standard_deviation_and_differs_by_key_and_leaf():
    zeros = {"a": jnp.zeros((400, 100)), "b": jnp.zeros((40_000,))}
    first = privacy.add_noise(jax.random.key(0), zeros, 3.0, 0.5)
    for leaf in first.values():
        assert float(leaf.std()) == pytest.approx(1.5, rel=0.02)
        assert abs(float(leaf.mean())) < 0.03
    assert abs(np.corrcoef(first["a"].ravel(), first["b"])[0, 1]) < 0.02
    other = privacy.add_noise(jax.random.key(1), zeros, 3.0, 0.5)
    assert abs(np.corrcoef(first["b"], other["b"])[0, 1]) < 0.02
    close(privacy.add_noise(jax.random.key(0), zeros, 3.0, 0.5), first, 0)


def test_no_noise_is_exactly_nothing_even_of_infinite_sensitivity():
    x = jnp.array([0.1, -0.2, 1e-30])
    np.testing.assert_array_equal(privacy.add_noise(jax.random.key(0), x, 0.0, jnp.inf), x)


# Weights and sensitivities


def test_capped_weight_vectors():
    losses = jnp.array([0.4, 0.5, 0.6, 0.7, 100.0])
    expected = {
        1.0: (0.12830293, 0.14179667, 0.15670956, 0.17319084, 0.4),
        0.1: (0.01923516, 0.05228659, 0.14212969, 0.38634856, 0.4),
    }
    for tau, p in expected.items():
        np.testing.assert_allclose(weights.entropy_based(losses, tau, cap=0.4), p, atol=2e-7)


@pytest.mark.parametrize(("loss_clip", "tau", "most"), [(1.0, 1.0, 0.2320), (1.0, 0.1, 0.9996), (2.3, 5.0, 0.1497)])
def test_the_most_that_entropy_based_weights_give(loss_clip, tau, most):
    assert float(weights.entropy_cap(10, tau, loss_clip)) == pytest.approx(most, abs=5e-5)
    losses = jnp.zeros(10).at[3].set(loss_clip)
    assert float(weights.entropy_based(losses, tau)[3]) == pytest.approx(most, abs=5e-5)
    limits = privacy.Limits(1.0, loss_clip, INF)
    assert float(privacy.sensitivity(1.0, limits.most_weight(10, tau))) == pytest.approx(2 * most, abs=1e-4)
    assert float(weights.entropy_cap(1, tau, loss_clip)) == 1.0


def test_the_most_that_limits_allow_is_the_smaller_of_two_bounds():
    """kappa / n, at most 1; by entropy no more than losses in [0, B] make possible."""
    limits = privacy.Limits(1.0, 1.0, 2.0)
    assert float(limits.most_weight(10)) == pytest.approx(0.2)
    assert float(limits.most_weight(1)) == 1.0
    assert float(limits.most_weight(10, 0.1)) == pytest.approx(0.2)  # losses alone would allow 0.9996
    assert float(limits.most_weight(10, 5.0)) == pytest.approx(float(weights.entropy_cap(10, 5.0, 1.0)))
    assert float(limits.most_weight(10, 5.0)) < 0.2


def test_a_temperature_that_follows_from_the_losses_has_no_known_largest_weight():
    with pytest.raises(ValueError, match="no largest weight is known; give a number"):
        privacy.Limits(1.0, 1.0, 2.0).most_weight(10, weights.solve(1.2))


def test_capped_weights_are_those_of_bisection(x64):
    rng = np.random.default_rng(0)
    rule = jax.jit(lambda losses, tau, cap: weights.entropy_based(losses, tau, cap=cap))
    for _ in range(300):
        losses = rng.exponential(2.0, 8) * (rng.random(8) < 0.8)
        tau, cap = float(rng.choice([0.1, 1.0, 10.0])), float(rng.uniform(0.05, 1.0))
        p = np.asarray(rule(losses, tau, cap))
        softmax = np.exp((losses - losses.max()) / tau)
        np.testing.assert_allclose(p, capped_weights(softmax, max(cap, 0)), atol=3e-6)  # the slack of 1e-5 P
        assert p.max() <= cap * (1 + 1e-12)
        assert p.sum() == pytest.approx(min(1.0, 8 * cap), abs=2e-5)
        order = rng.permutation(8)
        np.testing.assert_allclose(rule(losses[order], tau, cap), p[order], atol=1e-12)


def test_a_cap_that_does_not_bind_changes_no_bit():
    losses = jnp.array([0.1, 0.7, 0.3])
    np.testing.assert_array_equal(weights.entropy_based(losses, 0.5, cap=1.0), weights.entropy_based(losses, 0.5))
    np.testing.assert_array_equal(weights.by_examples(losses, 0.9), weights.by_examples(losses))


def test_caps_at_the_edge():
    equal = weights.entropy_based(jnp.zeros(5), 1.0, cap=0.2)
    np.testing.assert_allclose(equal, np.full(5, 0.2), rtol=1e-6)
    np.testing.assert_allclose(weights.entropy_based(jnp.array([9.0, 0.0]), 0.01, cap=0.5), [0.5, 0.5], rtol=1e-5)
    np.testing.assert_allclose(weights.entropy_based(jnp.ones(3), 1.0, cap=0.1), np.full(3, 0.1))
    one = weights.by_examples(jnp.array([7]), 1.0)
    np.testing.assert_array_equal(one, [1.0])
    nobody = weights.by_examples(jnp.array([0, 0, 5]), 0.6)
    np.testing.assert_allclose(nobody, [0.0, 0.0, 0.6])


TRIALS = 2000
RULES = {
    "uniform": lambda n: (lambda losses, sizes: weights.uniform(losses.shape[0]) * losses.shape[0] / n, 1 / n),
    "examples": lambda n: (lambda losses, sizes: weights.by_examples(sizes, 2 / n), 2 / n),
    "entropy, capped": lambda n: (lambda losses, sizes: weights.entropy_based(losses, 0.2, cap=2 / n), 2 / n),
    "entropy, clipped losses": lambda n: (
        lambda losses, sizes: weights.entropy_based(losses, 1.0),
        weights.entropy_cap(n, 1.0, 1.0),
    ),
}


@pytest.mark.parametrize("name", RULES)
@pytest.mark.parametrize("change", ["replace", "remove"])
def test_one_client_moves_the_sum_by_no_more_than_the_sensitivity(x64, name, change):
    """Random cohorts and the worst: extreme losses, and updates that all point one way but the changed client's."""
    n, dimension, limit, loss_clip = 6, 3, 0.7, 1.0
    rule, most = RULES[name](n)
    if name == "entropy, clipped losses" and change == "remove":
        most = weights.entropy_cap(n - 1, 1.0, loss_clip)  # without a fixed cap, the smaller cohort's

    def total(deltas, losses, sizes):
        return rule(losses, sizes) @ jax.vmap(lambda d: privacy.clip(d, limit))(deltas)

    def cohort(key):
        kinds = jax.random.split(key, 5)
        aligned = jnp.ones((n, dimension)) * jnp.sign(jax.random.normal(kinds[0], (1, dimension)))
        deltas = jnp.where(jax.random.bernoulli(kinds[1]), aligned, 2 * jax.random.normal(kinds[2], (n, dimension)))
        extreme = jnp.where(jax.random.bernoulli(kinds[3], 0.3, (n,)), loss_clip, 0.0)
        losses = jnp.where(
            jax.random.bernoulli(kinds[4]), extreme, jax.random.uniform(kinds[4], (n,), maxval=loss_clip)
        )
        return deltas, losses, 1 + jax.random.randint(kinds[3], (n,), 0, 50) ** 2

    def ratio(key):
        one, two = jax.random.split(key)
        deltas, losses, sizes = cohort(one)
        before = total(deltas, losses, sizes)
        if change == "remove":
            after = total(deltas[1:], losses[1:], sizes[1:])
        else:
            others, new_losses, new_sizes = cohort(two)
            opposite = jnp.where(jax.random.bernoulli(two), -deltas[0], others[0])
            after = total(deltas.at[0].set(opposite), losses.at[0].set(new_losses[0]), sizes.at[0].set(new_sizes[0]))
        return jnp.linalg.norm(after - before) / privacy.sensitivity(limit, most)

    ratios = jax.jit(jax.vmap(ratio))(jax.random.split(jax.random.key(0), TRIALS))
    assert float(ratios.max()) <= 1 + 1e-9
    assert float(ratios.max()) > 0.45, "the trials should come near the bound"


@functools.cache
def noiseless_round():
    """(federation, theta, alpha) -> the model after a round of Prac-FedEBA+ with everybody."""
    problem = tiny(cohort_size=6)
    noiseless = privacy.client(0.0, clip=0.05, loss_clip=1.0, weight_cap=1.5)

    @jax.jit
    def model_after(federation, theta, alpha):
        algorithm = problem.algorithm("prac_fedeba_plus", privacy=noiseless, tau=0.3, alpha=alpha, theta=theta)
        state = algorithm.init(jax.random.key(0), problem.model.init, problem.sizes)
        state, _ = fedeba_jax.run_round(
            algorithm, federation, state, jax.random.key(1), jnp.asarray(0), sizes=problem.sizes, client_map=jax.vmap
        )
        return jnp.concatenate([leaf.ravel() for leaf in jax.tree.leaves(state.server.params)])

    return problem, model_after


@pytest.mark.parametrize(("theta", "alpha"), slow_but([(0.0, 0.6)], [(0.0, 0.6), (90.0, 0.6), (0.0, 1.0)]))
def test_prac_moves_by_no_more_than_its_sensitivity(x64, theta, alpha):
    """The method's own code, one client's data replaced: its models differ by at most S; sigma = 0 shows the sum."""
    problem, model_after = noiseless_round()
    cap = privacy.Limits(0.05, 1.0, 1.5).most_weight(6, 0.3)
    factor = 1.0 if theta == 0 else (1 - alpha) + alpha / problem.steps
    rng, data = np.random.default_rng(0), jax.tree.map(np.asarray, problem.federation)
    base, longest = np.asarray(model_after(data, theta, alpha)), 0.0
    for _ in range(60):
        client = int(rng.integers(6))
        rows = data.rows[client, : COUNTS[client]]
        x, y = data.x.copy(), data.y.copy()
        x[rows] = rng.integers(0, 256, (len(rows), 5))
        y[rows] = rng.integers(0, 3, len(rows))
        moved = np.asarray(model_after(data._replace(x=x, y=y), theta, alpha))
        longest = max(longest, float(np.linalg.norm(moved - base)))
    assert 0 < longest <= float(privacy.sensitivity(0.05, cap * factor)) + 1e-12
