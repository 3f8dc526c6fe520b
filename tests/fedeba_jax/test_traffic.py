"""What passes between the server and a client, counted by hand on a model of 39 numbers."""

import functools

import jax
import jax.numpy as jnp
import optax
import pytest

import fedeba_jax
from fedeba_jax import client_map as maps
from fedeba_jax import tree
from fedeba_jax.objectives import masked_mean
from fedeba_jax.traffic import NAMES, Traffic
from fedeba_jax.types import Private
from tests.support.exchanges import PROBLEM, X, cohort, counted, scaled
from tests.support.problems import CLASSES

MODEL = 39
OPEN, CLOSED = 0.0, 180.0


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
        _, info = fedeba_jax.run_round(
            algorithm, PROBLEM.federation, state, key, 0, sizes=PROBLEM.sizes, client_map=maps.mapped
        )
        return {name: info[name] for name in NAMES}  # what is not looked at need not be compiled

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


def test_a_model_beside_private_state_is_an_exchange():
    of = cohort()
    of.ask(lambda client, x: {"delta": scaled(client, x), "personal": Private(scaled(client, x))}, X)
    assert counted(of) == {"floats_down": 6, "bytes_down": 24, "floats_up": 6, "bytes_up": 24, "exchanges": 1}


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


def test_what_is_made_of_a_reply_costs_as_the_reply():
    """`derived`: a clipped or noised copy of what a gate brought."""
    for is_open in (True, False):
        of = cohort()
        total = of.ask_sum(scaled, jnp.ones(3), X, when=jnp.asarray(is_open))
        made = of.derived(lambda total: tree.scale(2.0, total), total)
        of.ask(lambda client, made: client.id, made)
        assert counted(of)["floats_down"] == (12 if is_open else 0)


def test_a_sum_that_travels_alongside_costs_bytes_but_no_exchange():
    of = cohort()
    of.ask(scaled, X)
    of.ask_sum(scaled, jnp.ones(3), X, alongside=True)
    assert counted(of) == {"floats_down": 6, "bytes_down": 24, "floats_up": 12, "bytes_up": 48, "exchanges": 1}


def test_a_count_of_its_own():
    """Two replies of three numbers, stacked, of a model of three: an exchange; half of it is one client's."""
    traffic = Traffic(model_size=3)
    traffic.count(jnp.zeros(5), jnp.zeros((2, 3)), True, replies=2)
    traffic.count(jnp.zeros(1), jnp.zeros((2, 2)), False, replies=2)
    assert {name: int(value) for name, value in traffic.totals.items()} == {
        "floats_down": 5, "bytes_down": 20, "floats_up": 3, "bytes_up": 12, "exchanges": 1
    }  # fmt: skip
    assert set(traffic.totals) == set(NAMES)
