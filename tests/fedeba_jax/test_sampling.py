"""Who takes part in a round: chance alone, chance within strata or with weights, or a list."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fedeba_jax
from fedeba_jax import ownership
from fedeba_jax.rounds import cohorts, participations, round_keys
from fedeba_jax.sampling import MANY, floyd, listed, stratified, uniform, weighted
from fedeba_jax.types import Sizes
from tests.support.problems import tiny

KEYS = jax.random.split(jax.random.key(0), 4000)


# Uniform.


def test_a_cohort_has_nobody_twice_and_everybody_at_times():
    cohorts = jax.vmap(lambda key: uniform(key, 0, Sizes(7, 3, 1, 1)))(jax.random.split(jax.random.key(0), 700))
    assert all(len(set(cohort)) == 3 for cohort in cohorts.tolist())
    taken = np.bincount(cohorts.ravel(), minlength=7)
    assert (abs(taken - 300) < 60).all()  # five standard deviations, and the key is fixed


def test_among_many_clients_too():
    sizes = Sizes(3 * MANY, 5, 1, 1)
    cohorts = np.asarray(jax.vmap(lambda key: uniform(key, 0, sizes))(jax.random.split(jax.random.key(0), 400)))
    assert cohorts.shape == (400, 5)
    assert all(len(set(cohort)) == 5 for cohort in cohorts.tolist())
    assert 0 <= cohorts.min() < 50
    assert 3 * MANY - 50 < cohorts.max() < 3 * MANY
    thirds = np.bincount(cohorts.ravel() // MANY)
    np.testing.assert_allclose(thirds, 2000 / 3, atol=4 * (2000 * 2 / 9) ** 0.5)  # four standard deviations
    np.testing.assert_allclose(cohorts.mean(0), 1.5 * MANY, rtol=0.12)  # no place in a cohort goes by number


def test_a_few_of_many_are_each_set_equally_often():
    drawn = np.sort(jax.jit(jax.vmap(lambda key: floyd(key, 2, 5)))(KEYS), axis=1)
    sets, times = np.unique(drawn, axis=0, return_counts=True)
    assert len(sets) == 10  # of two among five, nobody twice
    np.testing.assert_allclose(times, 400, atol=4 * (4000 * 0.09) ** 0.5)  # four standard deviations


def test_large_cohorts_among_many_clients_have_nobody_twice():
    cohort = np.asarray(uniform(jax.random.key(0), 0, Sizes(MANY + 1, 100, 1, 1)))
    assert len(set(cohort.tolist())) == 100
    assert 0 <= cohort.min() < cohort.max() <= MANY


def test_full_participation_is_everybody_in_order():
    np.testing.assert_array_equal(uniform(jax.random.key(0), 0, Sizes(5, 5, 1, 1)), np.arange(5))


# Stratified.


def in_strata(strata, clients, cohort_size):
    """Cohorts of many keys, [keys, n]."""
    sizes = Sizes(clients, cohort_size, 1, 1)
    return np.asarray(jax.jit(jax.vmap(lambda key: stratified(strata)(key, 0, sizes)))(KEYS))


def test_each_stratum_sends_equally_many_and_everybody_takes_part_equally_often():
    drawn = in_strata(3, 12, 6)
    np.testing.assert_array_equal(drawn // 4, np.tile([0, 0, 1, 1, 2, 2], (len(KEYS), 1)))
    assert all(len(set(cohort)) == 6 for cohort in drawn.tolist())
    taken = np.bincount(drawn.ravel(), minlength=12)
    np.testing.assert_allclose(taken, len(KEYS) / 2, atol=4 * (len(KEYS) / 4) ** 0.5)  # four standard deviations


def test_strata_are_drawn_independently():
    first, second = (in_strata(2, 4, 2) % 2).T
    together = np.mean(first == second)
    assert together == pytest.approx(0.5, abs=4 * (0.25 / len(KEYS)) ** 0.5)


def test_one_stratum_draws_as_uniform_does_and_all_of_them_are_everybody_in_order():
    np.testing.assert_array_equal(in_strata(2, 6, 6), np.tile(np.arange(6), (len(KEYS), 1)))
    sets, times = np.unique(np.sort(in_strata(1, 5, 2), axis=1), axis=0, return_counts=True)
    assert len(sets) == 10
    np.testing.assert_allclose(times, 400, atol=4 * (4000 * 0.09) ** 0.5)


@pytest.mark.parametrize("devices", [2, 4, 8])
def test_everybody_trains_at_home_where_devices_divide_the_strata(devices):
    """The same cohorts for any number of devices; no row has to travel."""
    drawn = cohorts(jax.random.key(0), 0, 50, Sizes(1000, 64, 1, 1), stratified(8))

    def turns(ids):
        return ownership.seated(ownership.ordered(ids, 1000, devices), 1000, devices).turns[-1]

    assert not np.asarray(jax.jit(lambda drawn: jax.lax.map(turns, drawn))(drawn)).any()


@pytest.mark.parametrize(("clients", "cohort_size"), [(10, 4), (12, 5)])
def test_strata_that_do_not_divide_are_told(clients, cohort_size):
    named = f"strata=4 does not divide num_clients={clients} and cohort_size={cohort_size}; change one of the three"
    with pytest.raises(ValueError, match=named):
        stratified(4)(KEYS[0], 0, Sizes(clients, cohort_size, 1, 1))


def test_there_is_at_least_one_stratum():
    with pytest.raises(ValueError, match=r"strata=0"):
        stratified(0)


# Weighted.


def drawn(weights, cohort_size):
    """Cohorts of many keys, [keys, n]."""
    sample, sizes = weighted(jnp.asarray(weights)), Sizes(len(weights), cohort_size, 1, 1)
    return np.asarray(jax.jit(jax.vmap(lambda key: sample(key, 0, sizes)))(KEYS))


def test_one_client_is_drawn_in_proportion_to_its_weight():
    weights = np.array([1.0, 2.0, 3.0, 4.0])
    shares = np.bincount(drawn(weights, 1).ravel(), minlength=4) / len(KEYS)
    np.testing.assert_allclose(shares, weights / 10, atol=0.03)  # four standard deviations
    np.testing.assert_array_equal(drawn(weights, 1), drawn(5 * weights, 1))  # only proportions count


def test_the_next_client_is_drawn_in_proportion_among_those_who_are_left():
    """P(1, then 0) = 2/6 * 1/4, and so on for all six pairs of weights 1, 2, 3."""
    weights = np.array([1.0, 2.0, 3.0])
    cohorts = drawn(weights, 2)
    for i in range(3):
        for j in set(range(3)) - {i}:
            expected = weights[i] / 6 * weights[j] / (6 - weights[i])
            found = np.mean((cohorts[:, 0] == i) & (cohorts[:, 1] == j))
            assert found == pytest.approx(expected, abs=0.03), (i, j)


@pytest.mark.parametrize("cohort_size", [1, 3, 6])
def test_nobody_is_drawn_twice_whatever_the_weights(cohort_size):
    cohorts = drawn([1e-6, 1.0, 1.0, 50.0, 3.0, 1e6], cohort_size)
    assert all(len(set(cohort)) == cohort_size for cohort in cohorts.tolist())
    if cohort_size == 6:
        np.testing.assert_array_equal(np.sort(cohorts), np.tile(np.arange(6), (len(KEYS), 1)))


def test_a_client_of_weight_zero_is_not_drawn_while_others_are_left():
    assert 1 not in drawn([1.0, 0.0, 2.0], 2)


def test_equal_weights_are_uniform():
    taken = np.bincount(drawn(np.ones(7), 3).ravel(), minlength=7)
    np.testing.assert_allclose(taken, len(KEYS) * 3 / 7, rtol=0.1)


def test_weights_may_be_traced_and_share_a_compilation():
    traces = []

    @jax.jit
    def cohort(weights):
        traces.append(1)
        return weighted(weights)(jax.random.key(0), 0, Sizes(4, 2, 1, 1))

    firsts = {tuple(cohort(jnp.roll(jnp.array([1e9, 1e6, 1.0, 1.0]), k)).tolist()) for k in range(4)}
    assert (len(traces), len(firsts)) == (1, 4)


# Listed.


def test_a_list_gives_its_row_of_the_round_whatever_the_key():
    table = np.array([[3, 1], [0, 2], [2, 3]])
    sample = listed(table)
    for t, expected in enumerate(table):
        for key in KEYS[:2]:
            np.testing.assert_array_equal(sample(key, t, Sizes(4, 2, 1, 1)), expected)
            np.testing.assert_array_equal(jax.jit(sample, static_argnums=2)(key, t, Sizes(4, 2, 1, 1)), expected)


# In rounds.

PROBLEM = tiny(cohort_size=3)
TABLE = np.array([[5, 0, 2], [1, 2, 3], [4, 5, 0], [2, 1, 0]])


@functools.cache
def program(name, make_sampler):
    """What the sampler is made of -> (state, info, scores)."""
    algorithm, key = PROBLEM.algorithm(name), jax.random.key(1)
    return jax.jit(lambda made_of: PROBLEM.run(algorithm, key, rounds=4, sample=make_sampler(made_of)))


def always_uniform(_):
    return uniform


def run(make_sampler, made_of=None, name="fedavg"):
    return program(name, make_sampler)(made_of)


def test_a_run_has_the_cohorts_of_the_list():
    _, info, _ = run(listed, TABLE)
    np.testing.assert_array_equal(info["cohort"], TABLE)


def test_a_round_of_listed_clients_is_that_of_the_same_clients_drawn():
    """Clients' keys come from their ids, not from the draw."""
    drawn_state, info, drawn_scores = run(always_uniform)
    state, again, scores = run(listed, info["cohort"])
    jax.tree.map(np.testing.assert_array_equal, (state, again, scores), (drawn_state, info, drawn_scores))


def test_only_listed_clients_change_their_state():
    state, *_ = run(listed, np.array([[1, 3, 4]] * 4), "ditto")
    start = PROBLEM.model.init(jax.random.key(1))
    moved = np.abs(np.asarray(state.clients[0][0]) - np.asarray(start[0][0])).max((1, 2)) > 1e-5  # beyond rounding
    assert np.flatnonzero(moved).tolist() == [1, 3, 4]


def test_a_run_draws_by_weight():
    _, info, _ = run(weighted, jnp.array([1e12, 1.0, 1e12, 1.0, 1e12, 1.0]))
    np.testing.assert_array_equal(np.sort(info["cohort"]), [[0, 2, 4]] * 4)


def test_one_round_takes_a_sampler_too():
    algorithm, key = PROBLEM.algorithm("fedavg"), jax.random.key(1)
    state = fedeba_jax.start(algorithm, PROBLEM.model.init, key, sizes=PROBLEM.sizes)
    for sample, expected in ((listed(TABLE), TABLE[1]), (uniform, uniform(round_keys(key, 1)[0], 1, PROBLEM.sizes))):
        _, info = fedeba_jax.run_round(
            algorithm, PROBLEM.federation, state, key, jnp.asarray(1),
            sizes=PROBLEM.sizes, client_map=jax.vmap, sample=sample,
        )  # fmt: skip
        np.testing.assert_array_equal(info["cohort"], expected)


@pytest.mark.parametrize(
    ("make_sampler", "made_of"), [(always_uniform, None), (listed, TABLE), (weighted, np.arange(1.0, 7.0))]
)
def test_participations_are_counted_of_any_sampler(make_sampler, made_of):
    _, info, _ = run(make_sampler, made_of)
    expected = np.bincount(np.asarray(info["cohort"]).ravel(), minlength=6)
    found = participations(jax.random.key(1), 4, PROBLEM.sizes, make_sampler(made_of))
    np.testing.assert_array_equal(found, expected)


# What cannot be drawn.


@pytest.mark.parametrize("wrong", [-1.0, np.nan, np.inf])
def test_weights_that_are_no_weights_are_refused(wrong):
    with pytest.raises(ValueError, match=rf"weights hold {wrong}; give one finite number >= 0 for each client"):
        weighted(jnp.array([1.0, wrong, 2.0]))


def test_weights_that_do_not_fit_the_federation_are_refused():
    key, sizes = jax.random.key(0), Sizes(3, 2, 1, 1)
    with pytest.raises(ValueError, match=r"weights are \[4\]; give one for each of 3 clients"):
        weighted(jnp.ones(4))(key, 0, sizes)
    with pytest.raises(ValueError, match=r"1 weights are positive, fewer than cohort_size=2; lower it"):
        weighted(jnp.array([0.0, 1.0, 0.0]))(key, 0, sizes)
    jax.eval_shape(lambda weights: weighted(weights)(key, 0, sizes), -jnp.ones(3))  # traced: not known


@pytest.mark.parametrize(
    ("ids", "message"),
    [
        ([0, 1], r"ids are int32\[2\]; give client numbers \[rounds, clients\]"),
        ([[0.0, 1.0]], r"ids are float32\[1, 2\]; give client numbers"),
        ([[0, 1, 2]], "ids list 3 clients per round, but cohort_size=2"),
        ([[0, 1], [2, 3]], "ids list client 3; give numbers from 0 to 2"),
        ([[0, -1]], "ids list client -1; give numbers from 0 to 2"),
    ],
)
def test_lists_that_do_not_fit_the_federation_are_refused(ids, message):
    with pytest.raises(ValueError, match=message):
        listed(jnp.array(ids))(jax.random.key(0), 0, Sizes(3, 2, 1, 1))
