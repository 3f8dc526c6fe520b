"""What is not finite under attack: it ends a run and names its sender, or a robust rule leaves it out and counts it."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fedeba_jax
from fedeba_jax import aggregation, attacks, lies, stack
from fedeba_jax.method import declared
from tests.support.attacked import rounds_under
from tests.support.marks import slow_but
from tests.support.problems import tiny


def telling(number):
    """Attackers who do as they should, but say that their loss is this number."""
    said = lies.Lie("said", lambda losses, attackers: jnp.where(attackers, number, losses))
    return attacks.scaling(0.34, 1.0, loss=said)


def lying(info, share=0.34):
    """Who attacks, of the cohorts of these rounds."""
    return np.asarray(attacks.fixed(jax.random.key(0), share, 6))[np.asarray(info["cohort"])]


def median_server():
    return fedeba_jax.robust(fedeba_jax.server.sgd(1.0), aggregation.median())


def test_a_run_stops_being_finite_where_nothing_excludes_and_goes_on_where_a_rule_does():
    _, info = rounds_under(attacks.inf, "fedavg", rounds=2)(0.4)
    assert not info["finite"].any()
    _, guarded = rounds_under(attacks.inf, "fedavg", rounds=2, server=median_server())(0.4)
    assert guarded["finite"].all()
    np.testing.assert_array_equal(guarded["excluded"], lying(guarded, 0.4).sum(1))


HEARING = [name for name, factory in fedeba_jax.ALGORITHMS.items() if declared(factory).hears_losses]


@pytest.mark.parametrize(
    "method",
    slow_but(["afl", "corefed", "fedfv", "fedeba"], [name for name in HEARING if name != "robust_fedeba_plus"]),
)
def test_a_loss_that_is_not_finite_ends_the_run_and_names_who_told_it(method):
    run = rounds_under(telling, method)
    for number in (np.nan, np.inf, -np.inf):
        _, info = run(number)
        assert not info["finite"].any()
        np.testing.assert_array_equal(info["offenders"], lying(info))
    _, info = run(1.0)
    assert info["finite"].all()
    assert not info["offenders"].any()


def test_a_rule_for_updates_does_not_excuse_a_loss():
    _, info = rounds_under(telling, "afl", server=median_server())(np.nan)
    assert not info["finite"].any()
    assert not info["excluded"].any()
    np.testing.assert_array_equal(info["offenders"], lying(info))


def test_who_sent_an_update_that_is_not_finite_is_named():
    _, info = rounds_under(attacks.inf, "fedavg")(0.34)
    assert not info["finite"].any()
    np.testing.assert_array_equal(info["offenders"], lying(info))


def test_a_run_that_was_told_what_is_not_finite_stops_though_its_models_are():
    problem, key = tiny(5), jax.random.key(0)
    algorithm = problem.algorithm("corefed")
    state, info, scores = jax.jit(
        lambda number: problem.run(algorithm, key, rounds=4, eval_every=2, attack=telling(number))
    )(-np.inf)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(state))
    assert not info["finite"].any()
    assert not info["bytes_up"][2:].any(), "the second chunk did not run"
    assert all(np.isnan(leaf).all() for leaf in jax.tree.leaves(scores))


@pytest.mark.parametrize(("method", "share", "more"), [("mime_lite", 0.17, {}), ("lp_proj", 0.34, {"dim": 4})])
def test_what_the_server_remembers_ends_the_run_in_the_round_that_spoiled_it(method, share, more):
    """MimeLite's momentum under a rule that guards its step alone; lp-proj's w, which is nobody's model."""
    server = median_server() if method == "mime_lite" else None
    _, info = rounds_under(attacks.inf, method, rounds=3, server=server, cohort_size=3, **more)(share)
    bad = lying(info, share).any(1)
    assert bad.any()
    first = np.argmax(bad)
    assert not info["finite"][first:].any()
    assert info["finite"][:first].all()


@pytest.mark.parametrize("trust", ["history", "relu"])
def test_robust_fedeba_plus_leaves_out_what_is_not_finite(trust):
    """Gate open and closed; infinite updates, with losses above all others and with losses that are no numbers."""
    problem, key = tiny(5), jax.random.key(0)

    @jax.jit
    def run(theta, margin):
        algorithm = problem.algorithm("robust_fedeba_plus", theta=theta, trust=trust)
        return fedeba_jax.run_rounds(
            algorithm, problem.federation, problem.start(algorithm, key), key, 0, rounds=3, sizes=problem.sizes,
            client_map=jax.vmap, attack=attacks.inf(0.34, loss=lies.max_plus(margin)),
        )  # fmt: skip

    for theta, margin in ((0.0, 1.0), (180.0, 1.0), (0.0, np.nan), (180.0, np.nan)):
        state, info = run(theta, margin)
        assert info["finite"].all()
        assert (info["gate"] == (theta == 0)).all()
        np.testing.assert_array_equal(info["excluded"], lying(info).sum(1))
        assert not info["attacker_weight"].any()
        assert (info["trusted"] <= (~lying(info)).sum(1)).all()
        assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(state))


@pytest.mark.parametrize("theta", [0.0, 180.0])
def test_robust_fedeba_plus_counts_who_is_left_out_of_a_gradient_alone(theta):
    """At a rate of 0.001, gradients are longer than updates of thirty steps, and these longer than first steps."""

    def forge(seen):
        length = jnp.sqrt(stack.squares(seen.updates))
        spoiled = length > 0.15 if theta == 0 else length < 0.005
        infinite = jax.tree.map(lambda leaf: jnp.full_like(leaf, jnp.inf), seen.updates)
        return stack.where_rows(seen.attackers & spoiled, infinite, seen.updates)

    attack = attacks.Attack("some", 0.34, forge=forge)
    _, info = rounds_under(lambda _: attack, "robust_fedeba_plus", theta=theta, rate=0.001, steps=30)(0.0)
    assert info["finite"].all()
    np.testing.assert_array_equal(info["excluded"], lying(info).sum(1))


def test_robust_fedeba_plus_goes_on_until_nobody_is_left():
    """Where half of a cohort sends infinities, the others make the round."""
    run = rounds_under(attacks.inf, "robust_fedeba_plus", rounds=3, cohort_size=4)
    _, info = run(0.5)
    assert (lying(info, 0.5).sum(1) >= 2).any(), "half of a cohort"
    assert info["finite"].all()
    np.testing.assert_array_equal(info["excluded"], lying(info, 0.5).sum(1))
    _, info = run(1.0)
    assert not info["finite"].any()
    assert (info["excluded"][0] == 4).all()
    assert info["offenders"].all()
