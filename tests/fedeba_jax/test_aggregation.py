"""Robust rules: equal to NumPy from the papers and to ByzFL, on random and on degenerate updates."""

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedeba_jax import aggregation, server, stack
from fedeba_jax.aggregation import AGGREGATORS, FIRSTS, bucketing
from fedeba_jax.local import LocalTraining
from fedeba_jax.types import Sizes
from tests.support import byzfl_vectors
from tests.twins import robust as twins

N, DIM, F = 9, 7, 2
RANDOM = np.random.default_rng(0).normal(size=(N, DIM))
UPDATES = {
    "random": RANDOM,
    "long": 1e3 * RANDOM,
    "zero": np.zeros((N, DIM)),
    "equal": np.tile(RANDOM[0], (N, 1)),
    "two_far": np.concatenate([RANDOM[:-2], 1e6 * np.ones((2, DIM))]),
    "two_alike": np.concatenate([RANDOM[:-2], np.tile(RANDOM[:-2].mean(0) - 2 * RANDOM[:-2].std(0), (2, 1))]),
}
RULES = {  # ours, and in NumPy
    "mean": (aggregation.mean(), lambda x: x.mean(0)),
    "median": (aggregation.median(), lambda x: np.median(x, axis=0)),
    "trimmed_mean": (aggregation.trimmed_mean(F), lambda x: twins.trimmed_mean(x, F)),
    "meamed": (aggregation.meamed(F), lambda x: twins.meamed(x, F)),
    "geometric_median": (
        aggregation.geometric_median(nu=0.1, iterations=4),
        lambda x: twins.geometric_median(x, 0.1, 4),
    ),
    "krum": (aggregation.krum(F), lambda x: twins.krum(x, F)),
    "multi_krum": (aggregation.multi_krum(F), lambda x: twins.multi_krum(x, F)),
    "mda": (aggregation.mda(F), lambda x: twins.mda(x, F)),
    "centered_clipping": (
        aggregation.centered_clipping(1.5, iterations=3),
        lambda x: twins.centered_clipping(x, 1.5, 3),
    ),
}
BEFORE = {
    "nnm": (aggregation.nnm(F), lambda x: twins.nnm(x, F)),
    "clipping": (
        aggregation.clipping(2.0),
        lambda x: x * np.minimum(1, 2.0 / np.linalg.norm(x, axis=1))[:, None],
    ),
    "arc": (aggregation.arc(F), lambda x: twins.arc(x, F)),
}
VECTORS = {key: vector for key, vector in byzfl_vectors.vectors().items() if vector.kind != "attack"}
ORDER = jnp.arange(N)


def as_tree(x):
    half = x.shape[1] // 2
    return {"a": jnp.asarray(x[:, :half, None]), "b": jnp.asarray(x[:, half:])}


def as_rows(tree):
    return np.concatenate([np.asarray(leaf).reshape(leaf.shape[0], -1) for leaf in tree.values()], axis=1)


@functools.cache
def program(name, x64):
    """A rule, or what comes before one, compiled for updates of one shape."""
    del x64  # a part of the cache's key
    if name in BEFORE:
        return jax.jit(lambda stacked: BEFORE[name][0].apply(stacked, ORDER))
    rule = RULES[name][0]

    @jax.jit
    def run(stacked):
        one, memory = rule(stacked, ORDER, rule.init(jax.tree.map(lambda leaf: leaf[0], stacked)))
        assert jax.tree.structure(memory) == jax.tree.structure(one if rule.remembers else ())
        return jax.tree.map(lambda leaf: leaf[None], one)

    return run


def combined(name, x):
    return as_rows(program(name, jax.config.jax_enable_x64)(as_tree(x)))


def by_itself(rule, x):
    one = jax.jit(lambda stacked: rule(stacked, ORDER)[0])(as_tree(x))
    return as_rows(jax.tree.map(lambda leaf: leaf[None], one))


def close(found, expected, message=""):
    """To 1e-6, of each number where it is larger than one."""
    assert found.shape == expected.shape, message
    scale = np.maximum(1.0, np.abs(expected))
    np.testing.assert_allclose(found / scale, expected / scale, atol=1e-6, rtol=0, err_msg=message)


def test_every_rule_is_here():
    assert set(AGGREGATORS) == {*RULES, "weighted_sum"}
    assert set(FIRSTS) == {*BEFORE, "nothing", "bucketing"}
    assert {vector.name for vector in VECTORS.values()} == {*RULES, *BEFORE, "bucketing"}


@pytest.mark.filterwarnings("ignore:divide by zero", "ignore:invalid value")
@pytest.mark.parametrize("name", RULES)
def test_a_rule_equals_numpy(x64, name):
    _, numpy = RULES[name]
    for kind in ("random", "long", "two_far", "two_alike") if name == "centered_clipping" else UPDATES:
        close(combined(name, UPDATES[kind])[0], numpy(UPDATES[kind]))


@pytest.mark.parametrize("name", BEFORE)
def test_what_comes_before_equals_numpy(x64, name):
    for kind, x in UPDATES.items():
        if kind != "zero":
            close(combined(name, x), BEFORE[name][1](x))


def called(kind, call):
    """What a vector of ByzFL is compared with: (stacked, order) -> rows, compiled."""
    own = eval(call, {**AGGREGATORS, **FIRSTS})
    if kind == "first":
        return jax.jit(own.apply)

    @jax.jit
    def run(stacked, order):
        memory = own.init(jax.tree.map(lambda leaf: leaf[0], stacked))
        for _ in range(2 if kind == "again" else 1):
            one, memory = own(stacked, order, memory)
        return jax.tree.map(lambda leaf: leaf[None], one)

    return run


@pytest.mark.parametrize("name", [*RULES, *BEFORE, "bucketing"])
def test_vectors_of_byzfl(x64, name):
    run = functools.cache(called)
    for key, vector in VECTORS.items():
        if vector.name == name:
            found = as_rows(run(vector.kind, vector.call)(as_tree(vector.updates), jnp.asarray(vector.order)))
            close(found, np.atleast_2d(vector.expected), key)


@pytest.mark.skipif(not byzfl_vectors.installed(), reason="byzfl is not installed: make test-peers")
def test_the_vectors_are_those_of_the_installed_byzfl():
    """Of the attacks too."""
    stored, made = byzfl_vectors.read(), byzfl_vectors.make()
    assert stored.keys() == made.keys()
    for key, expected in made.items():
        np.testing.assert_allclose(stored[key], expected, rtol=1e-9, atol=1e-9, err_msg=key)


def test_buckets_are_means_in_the_given_order_and_the_last_one_takes_what_is_left(x64):
    order = np.array([3, 1, 4, 0, 5, 8, 2, 6, 7])
    found = as_rows(jax.jit(bucketing(4).apply)(as_tree(RANDOM), jnp.asarray(order)))
    close(found, np.array([RANDOM[order[:4]].mean(0), RANDOM[order[4:8]].mean(0), RANDOM[order[8]]]))


def test_what_comes_first_comes_first(x64):
    mixed = aggregation.mean(first=aggregation.nnm(F, first=aggregation.clipping(2.0)))
    close(by_itself(mixed, RANDOM)[0], twins.nnm(BEFORE["clipping"][1](RANDOM), F).mean(0))


@pytest.mark.parametrize("bad", [np.inf, -np.inf, np.nan, 1e200])
@pytest.mark.parametrize("name", [name for name in RULES if name != "mean"])
def test_two_updates_that_are_not_finite_are_never_taken_up(x64, name, bad):
    x = RANDOM.copy()
    x[[2, 5]] = bad
    found = combined(name, x)
    assert np.isfinite(found).all()
    assert np.abs(found).max() <= np.abs(RANDOM).max()


def test_more_than_can_be_withstood_are_not_hidden(x64):
    x = RANDOM.copy()
    x[:5] = np.inf
    for name in ("median", "trimmed_mean", "multi_krum", "mda"):
        assert not np.isfinite(combined(name, x)).any()
    x = RANDOM.copy()
    x[-3:] = np.inf  # not half of them, but more than f
    for name in ("trimmed_mean", "meamed", "krum", "multi_krum", "mda"):
        assert not np.isfinite(combined(name, x)).any(), name


class Clients:
    """As much of a cohort as a robust rule sees."""

    id, size, key = ORDER, N, jax.random.key(0)

    def by_columns(self, function, stacked, whole, *shared):
        return function(lambda part: part, stacked, whole, *shared)

    def leave_out(self, who):
        self.left_out = who


@pytest.mark.parametrize("name", [*RULES, *BEFORE, "bucketing"])
def test_half_of_the_updates_or_more_are_not_hidden_by_any_rule(x64, name):
    """A server's next model is NaN then."""
    before = {"bucketing": bucketing(2), **{key: first for key, (first, _) in BEFORE.items()}}
    rule = aggregation.mean(first=before[name]) if name in before else RULES[name][0]
    robust = server.robust(server.sgd(1.0), rule)
    state = robust.init(jax.tree.map(lambda leaf: leaf[0], as_tree(RANDOM)), Sizes(N, N, 1, DIM))

    @jax.jit
    def step(updates):
        cohort = Clients()
        after = robust.step(state, updates, jnp.ones(N), cohort, LocalTraining(None, 0.1))
        return jax.tree.map(lambda leaf: leaf[None], after.params), cohort.left_out

    for bad in (5, N):
        model, left_out = step(as_tree(np.where(np.arange(N)[:, None] < bad, np.nan, RANDOM)))
        assert np.isnan(as_rows(model)).all()
        assert left_out.sum() == bad
    if name not in ("mean", "nnm", "bucketing"):  # a mean takes all of it up
        assert np.isfinite(as_rows(step(as_tree(np.where(np.arange(N)[:, None] < F, np.nan, RANDOM)))[0])).all()


@pytest.mark.parametrize("name", ["trimmed_mean", "meamed", "krum", "multi_krum", "mda"])
def test_half_of_the_updates_cannot_be_withstood(name):
    with pytest.raises(ValueError, match=f"{name}: f=5 of n=9 updates is half of them or more; give a smaller f"):
        AGGREGATORS[name](5)(as_tree(RANDOM), ORDER)


def test_minimum_diameter_averaging_refuses_too_many_subsets():
    with pytest.raises(ValueError, match=r"mda: f=9 of n=30 updates makes \d+ subsets; give at most 10000, or krum"):
        aggregation.mda(9)({"a": jnp.ones((30, 2))}, jnp.arange(30))


def test_the_network_sorts_every_arrangement():
    """By the zero-one principle: a network that sorts all vectors of zeros and ones sorts everything."""
    for n in range(1, 9):
        x = np.array(list(itertools.product([0.0, 1.0], repeat=n))).T
        rows = list(x)
        for i, j in stack.comparators(n):
            rows[i], rows[j] = np.minimum(rows[i], rows[j]), np.maximum(rows[i], rows[j])
        np.testing.assert_array_equal(rows, np.sort(x, axis=0))


def test_many_rows_are_sorted_without_the_network(x64):
    x = np.random.default_rng(1).normal(size=(stack.MOST_SORTED + 1, 3))
    np.testing.assert_array_equal(stack.sorted_rows(jnp.asarray(x)), np.sort(x, axis=0))
