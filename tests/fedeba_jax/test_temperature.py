"""tau from the paper's constraint sum p_i F_i = f~."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import brentq

import fedeba_jax
from fedeba_jax.solvers import entropy_temperature
from fedeba_jax.weights import by_examples, entropy_based, solve
from tests.support.marks import slow_but
from tests.support.problems import tiny

LOSSES = np.array([0.5, 1.0, 2.0])


def weights_at(b, losses, prior):
    e = prior * np.exp(b * (losses - losses.max()))
    return e / e.sum()


@pytest.mark.parametrize("seed", range(20))
def test_the_root_is_that_of_an_independent_solver(x64, seed):
    rng = np.random.default_rng(seed)
    losses, prior = rng.uniform(0, 3, 10), rng.dirichlet(np.ones(10))
    mean = prior @ losses
    target = mean + rng.uniform(0.02, 0.98) * (losses.max() - mean)
    root = brentq(lambda b: weights_at(b, losses, prior) @ losses - target, 0, 1e4, xtol=1e-13)
    tau = entropy_temperature(jnp.asarray(losses), target, jnp.asarray(prior))
    np.testing.assert_allclose(tau, 1 / root, rtol=1e-8)


def test_by_hand(x64):
    """Two clients: p = 1 / (1 + exp(-1/tau)) = 3/4 at tau = 1 / ln 3."""
    tau = entropy_temperature(jnp.array([0.0, 1.0]), 0.75, jnp.array([0.5, 0.5]))
    np.testing.assert_allclose(tau, 1 / np.log(3), rtol=1e-12)


@pytest.mark.parametrize("factor", [1.05, 1.3, 1.6])
@pytest.mark.parametrize("prior", [None, (0.2, 0.3, 0.5)])
def test_the_constraint_holds_in_float32(factor, prior):
    prior = None if prior is None else jnp.array(prior)
    p = jax.jit(lambda losses, factor, prior: entropy_based(losses, solve(factor), prior))(
        LOSSES.astype(np.float32), factor, prior
    )
    mean = LOSSES.mean() if prior is None else np.vdot(prior, LOSSES)
    np.testing.assert_allclose(np.vdot(p, LOSSES), min(factor * mean, LOSSES.max()), rtol=1e-5)


def test_a_quantile_as_the_target(x64):
    p = entropy_based(jnp.asarray(LOSSES), solve(0.9, of="quantile"))
    np.testing.assert_allclose(np.vdot(p, LOSSES), np.quantile(LOSSES, 0.9), rtol=1e-12)


@pytest.mark.parametrize(
    ("losses", "factor", "expected"),
    [
        ((1.0, 1.0, 1.0), 1.5, (1 / 3, 1 / 3, 1 / 3)),  # equal losses: nothing to tell clients apart
        ((0.0, 0.0, 0.0), 1.5, (1 / 3, 1 / 3, 1 / 3)),
        ((0.5, 1.0, 2.0), 1.0, (1 / 3, 1 / 3, 1 / 3)),  # the mean itself is FedAvg
        ((0.5, 1.0, 2.0), 0.5, (1 / 3, 1 / 3, 1 / 3)),  # below it there is no positive tau
        ((0.5, 1.0, 2.0), 9.0, (0, 0, 1)),  # beyond the largest loss
        ((0.5, 2.0, 2.0), 9.0, (0, 0.5, 0.5)),  # ties share
        ((3.0,), 2.0, (1,)),
        ((1e-8, 2e-8, 9e-8), 1.5, None),
        ((1e8, 2e8, 9e8), 1.5, None),
    ],
)
def test_limits(losses, factor, expected):
    p = entropy_based(jnp.array(losses), solve(factor))
    if expected is None:
        np.testing.assert_allclose(np.vdot(p, losses), 1.5 * np.mean(losses), rtol=1e-5)
    else:
        np.testing.assert_allclose(p, expected, atol=1e-5)


def test_clients_without_weight_do_not_count(x64):
    with_more = entropy_temperature(jnp.array([0.5, 1.0, 2.0, 99.0]), 1.5, jnp.array([0.2, 0.3, 0.5, 0.0]))
    np.testing.assert_allclose(with_more, entropy_temperature(jnp.asarray(LOSSES), 1.5, jnp.array([0.2, 0.3, 0.5])))


def test_a_higher_target_lowers_tau_and_order_does_not_matter(x64):
    losses = jnp.asarray(LOSSES)
    taus = jax.vmap(lambda t: entropy_temperature(losses, t, jnp.full(3, 1 / 3)))(jnp.linspace(1.2, 1.95, 20))
    assert (np.diff(taus) < 0).all()
    np.testing.assert_allclose(entropy_based(losses[::-1], solve(1.2))[::-1], entropy_based(losses, solve(1.2)))


@pytest.mark.parametrize(
    "name", slow_but(["fedeba_plus"], ["fedeba", "fedeba_plus", "prac_fedeba_plus", "fedavg_align"])
)
def test_every_entropy_based_method_takes_it_in_one_compilation(x64, name):
    problem, traces = tiny(), []

    @jax.jit
    def run(target):
        traces.append(name)
        return problem.train(problem.algorithm(name, tau=solve(target)), jax.random.key(0), rounds=3)[0]

    far, near = run(1.0), run(1.5)
    assert len(traces) == 1
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(near))
    reference = problem.algorithm(name, tau=1e12)  # a target at the mean is an infinite temperature
    expected = jax.jit(lambda: problem.train(reference, jax.random.key(0), rounds=3)[0])()
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-8), far, expected)
    assert any(np.abs(a - b).max() > 1e-4 for a, b in zip(jax.tree.leaves(far), jax.tree.leaves(near), strict=True))


def test_the_weights_stay_those_of_the_closed_form(x64):
    counts = by_examples(jnp.array([10, 30, 60]))
    tau = solve(1.1).temperature(jnp.asarray(LOSSES), counts)
    np.testing.assert_allclose(
        entropy_based(jnp.asarray(LOSSES), solve(1.1), counts), entropy_based(jnp.asarray(LOSSES), tau, counts)
    )
    assert fedeba_jax.weights.solve is solve
