"""Every attack goes with every robust rule under methods of three kinds."""

import inspect
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fedeba_jax
from fedeba_jax import attacks
from fedeba_jax.aggregation import AGGREGATORS, FIRSTS
from fedeba_jax.attacks import ATTACKS
from fedeba_jax.client_map import device_mesh, sharded
from fedeba_jax.hyperparameters import hyperparameters
from fedeba_jax.lies import LIES
from tests.support.marks import slow_but
from tests.support.problems import CLASSES, tiny

METHODS = ("fedavg", "qffl", "ditto")  # weights without losses, with them, and personal models
LYING = [name for name in ATTACKS if name != "none"]
ROBUST = [name for name in AGGREGATORS if name != "weighted_sum"]
COVERING = [  # every attack, every rule, what comes before it, and every lie
    (attack, ROBUST[place % len(ROBUST)], list(FIRSTS)[place % len(FIRSTS)], list(LIES)[place % len(LIES)])
    for place, attack in enumerate(LYING)
]


def with_f(table, name, **more):
    known = hyperparameters(table[name])
    return table[name](**{key: 1 for key in ("f", "s", "c") if key in known and known[key].required}, **more)


def one_round(method, attack, rule, first="nothing", lie="honest", client_map=jax.vmap):
    problem, key = tiny(5), jax.random.key(0)
    server = fedeba_jax.robust(
        fedeba_jax.server.sgd(1.0), rule := with_f(AGGREGATORS, rule, first=with_f(FIRSTS, first))
    )
    algorithm = problem.algorithm(method, server=server)
    supplied = {"num_classes": CLASSES, "aggregator": rule}
    known = inspect.signature(ATTACKS[attack]).parameters

    def run(share):
        lying = ATTACKS[attack](
            **{name: value for name, value in supplied.items() if name in known}, share=share, loss=LIES[lie]()
        )
        return fedeba_jax.run_round(
            algorithm, problem.federation, problem.start(algorithm, key), key, jnp.asarray(0),
            sizes=problem.sizes, client_map=client_map, attack=lying,
        )  # fmt: skip

    return run


def has_a_program(method, attack, rule):
    state, info = jax.eval_shape(one_round(method, attack, rule), 0.2)
    assert jax.tree.leaves(state.server)
    assert {"excluded", "finite"} <= set(info)


IN_SUITE = [(METHODS[place % 3], attack, rule) for place, (attack, rule, *_) in enumerate(COVERING)]


@pytest.mark.parametrize(("method", "attack", "rule"), slow_but(IN_SUITE, itertools.product(METHODS, LYING, ROBUST)))
def test_every_attack_and_every_rule_have_a_program(method, attack, rule):
    has_a_program(method, attack, rule)


@pytest.mark.parametrize(("attack", "rule", "first", "lie"), slow_but(COVERING[:4], COVERING))
def test_a_covering_set_runs_and_stays_finite(attack, rule, first, lie):
    run = jax.jit(one_round(METHODS[LYING.index(attack) % 3], attack, rule, first, lie))
    state, info = run(0.2)
    assert bool(info["finite"])
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(state.server))


def test_devices_change_nothing_where_a_search_looks_at_some_coordinates(x64, monkeypatch):
    monkeypatch.setattr(attacks, "SEARCHED", 10)
    test_devices_that_share_the_clients_change_nothing(x64, *SEARCHES[1])


SEARCHES = [("opt_ipm", "median", "nothing", "honest"), ("opt_alie", "trimmed_mean", "nnm", "honest")]  # by coordinate


@pytest.mark.parametrize(("attack", "rule", "first", "lie"), slow_but(COVERING[-3:], [*COVERING, *SEARCHES]))
def test_devices_that_share_the_clients_change_nothing(x64, attack, rule, first, lie):
    """Neither 5 clients nor the numbers of every layer divide among them."""
    given = (METHODS[LYING.index(attack) % 3], attack, rule, first, lie)
    state, info = jax.jit(one_round(*given))(0.4)
    divided, told = jax.jit(one_round(*given, client_map=sharded(device_mesh())))(0.4)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-8, atol=1e-10), divided.server, state.server)
    assert told["excluded"] == info["excluded"]
