"""What passes between the server and a client, counted by hand on a model of 39 numbers."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import fedeba_jax
from fedeba_jax import client_map as maps
from fedeba_jax import tree
from fedeba_jax.cohort import Cohort
from fedeba_jax.objectives import masked_mean
from fedeba_jax.types import Private
from tests.support.problems import CLASSES, COUNTS, tiny

MODEL = 39
OPEN, CLOSED = 0.0, 180.0
PROBLEM = tiny(cohort_size=3)


def objective(params, batch, key, round_, train):
    """Losses differ by client; cheap to compile."""
    return masked_mean(batch.x.mean(-1), batch.mask) * sum((leaf**2).sum() for leaf in jax.tree.leaves(params))


@functools.cache
def program(name):
    local = fedeba_jax.LocalTraining(
        objective=objective, learning_rate=0.1, steps=2, batch_size=4, apply=PROBLEM.model.apply
    )
    server = fedeba_jax.descent(optax.sgd(1.0))

    @jax.jit
    def run(hparams):
        algorithm = fedeba_jax.ALGORITHMS[name](local, server, **hparams)
        key = jax.random.key(0)
        state = algorithm.init(key, PROBLEM.model.init, PROBLEM.sizes)
        return fedeba_jax.run_round(
            algorithm, PROBLEM.federation, state, key, 0, sizes=PROBLEM.sizes, client_map=maps.mapped
        )[1]

    return run


def traffic(name, **hparams):
    info = program(name)(hparams)
    floats = int(info["floats_down"]), int(info["floats_up"]), int(info["exchanges"])
    assert (4 * floats[0], 4 * floats[1]) == (info["bytes_down"], info["bytes_up"])  # float32 throughout
    return floats


@pytest.mark.parametrize("name", ["fedavg", "fedsgd", "fedprox", "propfair", "fedmgda_plus"])
def test_averaging_sends_a_model_down_and_up(name):
    assert traffic(name) == (MODEL, MODEL, 1)


@pytest.mark.parametrize("name", ["fedeba", "term", "corefed", "afl", "aaggff", "qffl", "fedfv"])
def test_weights_by_losses_cost_a_loss(name):
    assert traffic(name) == (MODEL, MODEL + 1, 1)


def test_what_was_forgotten_costs_a_number_since_the_bits_stay_at_the_client():
    assert traffic("fedwavg") == (MODEL, MODEL + 1, 1)


def test_a_histogram_costs_as_many_numbers_as_there_are_classes():
    assert traffic("feddisco") == (MODEL, MODEL + CLASSES, 1)


def test_momentum_in_local_steps_doubles_both_ways():
    """Down: x and m. Up: the update, and the gradient along with it."""
    assert traffic("mime_lite") == (2 * MODEL, 2 * MODEL, 1)


def test_an_open_gate_costs_a_second_exchange():
    """Down: x, g~ and its weight. Up: loss, gradient; then update, loss."""
    assert traffic("fedeba_plus", theta=OPEN) == (2 * MODEL + 1, 1 + MODEL + MODEL + 1, 2)


def test_a_closed_gate_costs_one_exchange_with_two_models():
    """Down: x and the weight. Up: loss; then update, first step, loss."""
    assert traffic("fedeba_plus", theta=CLOSED) == (MODEL + 1, 1 + 2 * MODEL + 1, 1)


@pytest.mark.parametrize("theta", [OPEN, CLOSED])
def test_the_practical_variant_costs_one_exchange_and_two_losses(theta):
    assert traffic("prac_fedeba_plus", theta=theta) == (MODEL, MODEL + 2, 1)


@pytest.mark.parametrize(("theta", "down", "up", "exchanges"), [(OPEN, 79, 79, 2), (CLOSED, 40, 79, 1)])
def test_alignment_under_fedavg_s_weights_does_not_send_the_final_loss(theta, down, up, exchanges):
    assert traffic("fedavg_align", theta=theta) == (down, up, exchanges)


def test_an_always_open_gate_is_fifty_percent_additional_cost():
    """Extra exchanges over all exchanges (the paper's measure)."""
    *_, exchanges = traffic("fedeba_plus", theta=OPEN)
    assert (exchanges - 1) / exchanges == 0.5


# Single exchanges.

X = {"w": jnp.arange(4.0), "b": jnp.array([1.0, -1.0])}  # 6 numbers


def cohort(client_map=jax.vmap, model_size=6):
    ids = jnp.array([4, 0, 2])
    return Cohort(
        id=ids, key=jax.random.key(0), client_keys=jax.random.split(jax.random.key(1), 3), state=10 * ids,
        round=jnp.asarray(7), federation=PROBLEM.federation, client_map=client_map, model_size=model_size,
    )  # fmt: skip


def counted(of):
    return {name: int(value) for name, value in of.traffic.items()}


def scaled(client, params, **context):
    """Depends on the client, has the shape of a model."""
    return tree.scale(client.data.num_examples, params)


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


def test_nothing_passes_before_somebody_asks():
    assert set(counted(cohort()).values()) == {0}


def test_a_tree_sent_twice_counts_once():
    of = cohort()
    of.ask(scaled, X)
    of.ask(scaled, X)
    assert counted(of) == {"floats_down": 6, "bytes_down": 24, "floats_up": 12, "bytes_up": 48, "exchanges": 2}


def test_equal_numbers_in_other_arrays_are_another_tree():
    of = cohort()
    of.ask(scaled, X)
    of.ask(scaled, tree.add(X, tree.zeros_like(X)))
    assert counted(of)["floats_down"] == 12


def test_context_is_sent_down_too():
    of = cohort()
    of.ask(scaled, X, extra=jnp.zeros(5))
    assert counted(of)["floats_down"] == 11


def test_a_reply_smaller_than_the_model_is_no_exchange():
    of = cohort(model_size=7)
    of.ask(scaled, X)
    assert counted(of)["exchanges"] == 0


def test_bytes_follow_the_type():
    of = cohort()
    of.ask(lambda client, x: (x["w"].astype(jnp.bfloat16), client.id > 0), {"w": X["w"], "n": jnp.zeros(3, jnp.uint8)})
    assert counted(of) == {"floats_down": 7, "bytes_down": 19, "floats_up": 5, "bytes_up": 9, "exchanges": 0}


MAPS = {"vmap": jax.vmap, "mapped": maps.mapped, "sharded": maps.sharded(maps.device_mesh())}


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


def test_a_model_beside_private_state_is_an_exchange():
    of = cohort()
    of.ask(lambda client, x: {"delta": scaled(client, x), "personal": Private(scaled(client, x))}, X)
    assert counted(of) == {"floats_down": 6, "bytes_down": 24, "floats_up": 6, "bytes_up": 24, "exchanges": 1}


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


@pytest.mark.parametrize("is_open", [True, False])
def test_sending_on_what_a_gate_brought_costs_as_the_gate(is_open):
    of = cohort()
    total = of.ask_sum(scaled, jnp.ones(3), X, when=jnp.asarray(is_open))
    of.ask(lambda client, total: client.id, total)
    assert counted(of)["floats_down"] == (12 if is_open else 0)


def test_a_tree_that_a_closed_gate_kept_back_counts_when_it_is_sent():
    of = cohort()
    of.ask(scaled, X, when=jnp.asarray(False))
    of.ask(scaled, X)
    assert counted(of)["floats_down"] == 6


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
    """Clients' ids (4, 0, 2), and the sum of their models by id if the largest is at least `least`."""
    weigh = lambda ids: (ids / 6.0, ids.max() >= least)  # noqa: E731
    return of.ask_then_sum(lambda client, x: client.id, lambda client, x: (client.id, scaled(client, x)), weigh, X,
                           likely=likely)  # fmt: skip


@pytest.mark.parametrize("name", MAPS)
@pytest.mark.parametrize("happens", [True, False])
@pytest.mark.parametrize("likely", [False, jnp.asarray(True), jnp.asarray(False)], ids=["never", "likely", "unlikely"])
def test_a_guess_of_the_second_exchange_changes_nothing(name, happens, likely):
    one, other = cohort(MAPS[name]), cohort(MAPS[name])
    ids = one.ask(lambda client, x: client.id, X)
    expected = one.ask_sum(scaled, ids / 6.0, X, when=jnp.asarray(happens))
    found, total = asked_then_summed(other, 4 if happens else 5, likely)
    np.testing.assert_array_equal(found, ids)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-6), total, expected)
    for of, brought in ((one, expected), (other, total)):
        of.ask(lambda client, total: client.id, brought)
    assert counted(one) == counted(other)


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
