"""The only door to clients' data: what `ask` and its relatives bring up, under every client map."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedeba_jax import tree
from fedeba_jax.cohort import Judged
from fedeba_jax.types import Private
from tests.support.exchanges import MAPS, PROBLEM, X, cohort, counted, scaled
from tests.support.problems import COUNTS


def test_a_client_gets_its_own_id_state_data_and_the_round():
    of = cohort()
    reply = of.ask(lambda client: (client.id, client.state, client.data.num_examples, client.data.rows, client.round))
    np.testing.assert_array_equal(reply[0], [4, 0, 2])
    np.testing.assert_array_equal(reply[1], [40, 0, 20])
    np.testing.assert_array_equal(reply[2], np.array(COUNTS)[[4, 0, 2]])
    np.testing.assert_array_equal(reply[3], PROBLEM.federation.rows[jnp.array([4, 0, 2])])
    np.testing.assert_array_equal(reply[4], [7, 7, 7])
    np.testing.assert_array_equal(of.num_examples, reply[2])
    assert of.size == 3


@pytest.mark.parametrize("name", MAPS)
def test_private_state_comes_back_but_is_not_sent(name):
    """A personal model beside one number: neither bytes nor an exchange."""
    of = cohort(MAPS[name])
    number, personal = of.ask(lambda client, x: (client.id, Private((scaled(client, x), client.state + 1))), X)
    model, state = personal.state
    np.testing.assert_array_equal(number, [4, 0, 2])
    np.testing.assert_array_equal(state, [41, 1, 21])
    jax.tree.map(np.testing.assert_array_equal, model, cohort().ask(scaled, X))
    assert counted(of) == {"floats_down": 6, "bytes_down": 24, "floats_up": 1, "bytes_up": 4, "exchanges": 0}


def test_a_reply_that_is_private_as_a_whole_sends_nothing():
    of = cohort()
    np.testing.assert_array_equal(of.ask(lambda client: Private(client.id)).state, [4, 0, 2])
    assert set(counted(of).values()) == {0}


@pytest.mark.parametrize(
    "exchange",
    [
        lambda of: of.ask(lambda client: Private(client.id), when=jnp.asarray(True)),
        lambda of: of.ask_sum(lambda client: Private(client.id), jnp.ones(3)),
    ],
    ids=["gate", "sum"],
)
def test_private_state_is_neither_gated_nor_summed(exchange):
    with pytest.raises(ValueError, match="Private"):
        exchange(cohort())


@pytest.mark.parametrize("when", [False, jnp.asarray(False)], ids=["python", "array"])
def test_an_exchange_that_does_not_happen_costs_nothing_and_gives_zeros(when):
    of = cohort()
    reply = of.ask(scaled, X, when=when)
    total = of.ask_sum(scaled, jnp.ones(3), X, when=when)
    jax.tree.map(lambda leaf, x: np.testing.assert_array_equal(leaf, np.zeros((3, *x.shape))), reply, X)
    jax.tree.map(lambda leaf, x: np.testing.assert_array_equal(leaf, np.zeros_like(x)), total, X)
    assert set(counted(of).values()) == {0}


@pytest.mark.parametrize("name", MAPS)
def test_ask_sum_is_the_weighted_sum_of_ask(name):
    client_map = MAPS[name]
    weights = jnp.array([0.2, 0.5, 0.3])
    one, other = cohort(client_map), cohort(client_map)
    expected = tree.weighted_sum(one.ask(scaled, X), weights)
    found = other.ask_sum(scaled, weights, X)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-6), found, expected)
    assert counted(one) == counted(other)


def asked_then_summed(of, least, likely):
    """Clients' ids (4, 0, 2), what was judged of them, and the sum of their models by id if one is at least `least`."""

    def judge(ids):
        return Judged(ids / 6.0, ids.max() >= least, ids.sum())

    return of.ask_then_sum(lambda client, x: client.id, lambda client, x: (client.id, scaled(client, x)), judge, X,
                           likely=likely)  # fmt: skip


@functools.cache
def both_ways(name):
    """(happens, least, likely) -> ids, their sum, and the traffic: by two exchanges, and by one with a guess."""

    @jax.jit
    def run(happens, least, likely):
        one, other = cohort(MAPS[name]), cohort(MAPS[name])
        ids = one.ask(lambda client, x: client.id, X)
        expected = one.ask_sum(scaled, ids / 6.0, X, when=happens)
        found, judged, total = asked_then_summed(other, least, False if likely is None else likely)
        for of, brought in ((one, expected), (other, total)):
            of.ask(lambda client, total: client.id, brought)
        return (ids, expected, one.traffic), (found, judged, total, other.traffic)

    return run


@pytest.mark.parametrize("name", MAPS)
@pytest.mark.parametrize("happens", [True, False])
@pytest.mark.parametrize("likely", [None, True, False], ids=["never", "likely", "unlikely"])
def test_a_guess_of_the_second_exchange_changes_nothing(name, happens, likely):
    (ids, expected, one), (found, judged, total, other) = both_ways(name)(happens, 4 if happens else 5, likely)
    np.testing.assert_array_equal(found, ids)
    np.testing.assert_allclose(judged.weights, np.asarray(ids) / 6.0)
    assert (bool(judged.when), int(judged.findings)) == (happens, 6)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-6), total, expected)
    assert {k: int(v) for k, v in one.items()} == {k: int(v) for k, v in other.items()}


def test_runs_side_by_side_make_one_pass_whatever_their_guesses():
    run = jax.vmap(lambda likely, least: asked_then_summed(cohort(), least, likely))
    arguments = jnp.array([True, False, False]), jnp.array([4, 4, 5])
    for i, (likely, least) in enumerate(zip(*arguments, strict=True)):
        expected = asked_then_summed(cohort(), least, likely)
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a[i], b, rtol=1e-6), run(*arguments), expected)  # noqa: B023
    branches = [equation for equation in jax.make_jaxpr(run)(*arguments).eqns if equation.primitive.name == "cond"]
    assert [equation.invars[0].aval.shape for equation in branches] == [()]  # one way for all, not both for each


@pytest.mark.parametrize("name", MAPS)
def test_the_server_s_own_work_costs_nothing(name):
    of = cohort(MAPS[name])
    counts = of.num_examples
    np.testing.assert_allclose(of.at_server(lambda n, c: n / n.sum() * c, counts, 2.0), 2 * counts / counts.sum())
    assert not any(counted(of).values())


# What is not finite.


def told(of, number):
    """An exchange in which client 0 tells this number, and the others their ids."""
    return of.ask(lambda client, x: (scaled(client, x), jnp.where(client.id == 0, number, client.id)), X)


def test_numbers_that_are_not_finite_are_noticed_unless_they_have_no_part_in_the_round():
    of = cohort()
    told(of, 1.0)
    assert of.numbers_are_finite
    assert not of.offenders().any()
    told(of, jnp.nan)
    assert not of.numbers_are_finite
    np.testing.assert_array_equal(of.offenders(), [False, True, False])
    of.leave_out(jnp.array([False, True, False]))
    assert not of.numbers_are_finite, "a rule for updates"
    of.leave_out(jnp.array([False, True, False]), numbers=True)
    assert of.numbers_are_finite
    assert of.findings["excluded"] == 1


@pytest.mark.parametrize("name", MAPS)
def test_who_sent_an_update_that_is_not_finite_first_is_named(name):
    of = cohort(MAPS[name])
    of.ask(lambda client, x: tree.scale(jnp.where(client.id == 2, jnp.inf, 1.0), x), X)
    of.ask(lambda client, x: tree.scale(jnp.nan, x), X)  # may follow from it
    assert of.numbers_are_finite
    np.testing.assert_array_equal(of.offenders(), [False, False, True])


def test_of_numbers_that_are_summed_up_it_is_not_known_whose_they_are():
    of = cohort()
    of.ask_sum(lambda client, x: jnp.where(client.id == 0, jnp.nan, 1.0), jnp.ones(3), X)
    assert not of.numbers_are_finite
    assert of.offenders().all()


@pytest.mark.parametrize("when", [True, jnp.asarray(True), jnp.asarray(False)], ids=["always", "open", "closed"])
def test_who_is_left_out_of_what_is_combined_is_counted_and_not_sent(when):
    of = cohort()

    def combine(vectors):
        return tree.rows(vectors, 0), jnp.array([True, False, True]), jnp.array(7.0)

    vector, found = of.ask_combined(scaled, combine, X, when=when)
    assert found == (7 if when else 0)
    assert jax.tree.structure(vector) == jax.tree.structure(X)
    assert of.findings["excluded"] == (2 if when else 0)
    assert counted(of)["floats_up"] == (6 if when else 0)
