"""What a client computes: steps, losses and gradients, against hand loops in NumPy."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedeba_jax import LocalTraining
from fedeba_jax.gradients import proximal
from fedeba_jax.objectives import masked_mean
from fedeba_jax.types import Client, LocalData
from tests.support.clients import COUNTS, KEY, LOCAL, client, drawn, examples

# Training.


@pytest.mark.parametrize(
    ("changes", "expected"),
    [({}, [7] * 6), ({"epochs": 2}, [4, 2, 6, 4, 6, 2]), ({"epochs": 3, "batch_size": None}, [3] * 6)],
)
def test_numbers_of_steps(changes, expected):
    np.testing.assert_array_equal(dataclasses.replace(LOCAL, **changes).num_steps(jnp.asarray(COUNTS)), expected)


def by_hand(i, batches, rate=0.1, mu=0.0):
    """x_0, ..., x_K of SGD on the distance to the batches' means."""
    path = [np.array([1.0, -1.0])]
    for batch in batches:
        gradient = path[-1] - examples(i)[batch].mean(0) + mu * (path[-1] - path[0])
        path.append(path[-1] - rate * gradient)
    return np.stack(path)


def trained(local, of):
    return jax.jit(local.train)(of, jnp.array([1.0, -1.0]))


def loss_by_hand(i, z):
    return 0.5 * ((np.asarray(z) - examples(i)) ** 2).sum(-1).mean()


ALL = LOCAL.reporting("delta", "loss")


@pytest.mark.parametrize("i", [0, 1, 2, 5])
def test_training_is_the_hand_loop_over_its_batches(x64, i):
    path, update = by_hand(i, drawn(LOCAL, client(i))), trained(ALL, client(i))
    np.testing.assert_allclose(update.delta, path[-1] - path[0], rtol=1e-12)
    np.testing.assert_allclose(update.loss, loss_by_hand(i, path[-1]), rtol=1e-12)
    first = jax.jit(LOCAL.first_step)(client(i), jnp.array([1.0, -1.0]))
    np.testing.assert_allclose(first, path[1] - path[0], rtol=1e-12)


def test_seven_examples_in_batches_of_fifty_train_on_seven(x64):
    local = dataclasses.replace(ALL, batch_size=50)
    path = by_hand(0, [list(range(7))] * 7)
    for capacity in (7, 12, 60):
        update = trained(local, client(0, capacity))
        np.testing.assert_allclose(update.delta, path[-1] - path[0], rtol=1e-12)
        np.testing.assert_allclose(update.loss, loss_by_hand(0, path[-1]), rtol=1e-12)


@pytest.mark.parametrize("i", [1, 3])
def test_a_client_that_is_done_with_its_epochs_idles(x64, i):
    """The longest client takes 6 steps, these 2 and 4."""
    local = dataclasses.replace(ALL, epochs=2)
    path, update = by_hand(i, drawn(local, client(i))), trained(local, client(i))
    assert len(path) == {1: 3, 3: 5}[i]
    np.testing.assert_allclose(update.delta, path[-1] - path[0], rtol=1e-12)
    first = jax.jit(local.first_step)(client(i), jnp.array([1.0, -1.0]))
    np.testing.assert_allclose(first, path[1] - path[0], rtol=1e-12)


def test_no_batch_size_takes_the_whole_set_in_every_step(x64):
    path = by_hand(2, [list(range(12))] * 7)
    update = trained(dataclasses.replace(ALL, batch_size=None), client(2))
    np.testing.assert_allclose(update.delta, path[-1] - path[0], rtol=1e-12)


def test_one_full_step_is_gradient_descent(x64):
    """FedSGD's local work: delta = -eta grad F_i."""
    local = dataclasses.replace(ALL, steps=1, batch_size=None)
    gradient = jax.jit(local.grad)(client(2), jnp.array([1.0, -1.0]))
    update = trained(local, client(2))
    np.testing.assert_allclose(gradient, [1, -1] - examples(2).mean(0), rtol=1e-12)
    np.testing.assert_allclose(update.delta, -0.1 * gradient, rtol=1e-12)


def test_the_rate_follows_the_round(x64):
    local = dataclasses.replace(LOCAL, learning_rate=lambda t: 0.1 * 0.5**t)
    path = by_hand(0, drawn(LOCAL, client(0)), rate=0.025)
    np.testing.assert_allclose(trained(local, client(0, round_=2)).delta, path[-1] - path[0], rtol=1e-12)


def test_gradient_transformations_chain(x64):
    path = by_hand(0, drawn(LOCAL, client(0)), mu=0.7)
    local = LOCAL.with_gradient(proximal(0.5)).with_gradient(proximal(0.2))
    np.testing.assert_allclose(trained(local, client(0)).delta, path[-1] - path[0], rtol=1e-12)


@pytest.mark.parametrize("changes", [{}, {"epochs": 1}, {"batch_size": None}])
def test_steps_may_visit_the_batches_in_any_order_and_more_than_once(x64, changes):
    """Numbers beyond the last batch begin again; with epochs a client has fewer batches, and nobody idles."""
    local = dataclasses.replace(LOCAL, **changes)
    batches = [list(range(12))] * 7 if "batch_size" in changes else drawn(local, client(2))
    visits = [5, 0, 3, 3, 17, 8]
    path = by_hand(2, [batches[v % len(batches)] for v in visits])
    update = jax.jit(local.train)(client(2), jnp.array([1.0, -1.0]), visits=jnp.array(visits))
    np.testing.assert_allclose(update.delta, path[-1] - path[0], rtol=1e-12)


def test_the_anchor_may_be_another_model(x64):
    """F(z) + (mu/2) |z - a|^2 with a the mean of the batches is F at a rate of 1 + mu, where all batches are alike."""
    local = dataclasses.replace(LOCAL, batch_size=None)
    anchored = jax.jit(local.with_gradient(proximal(0.5)).train)(
        client(2), jnp.array([1.0, -1.0]), anchor=jnp.asarray(examples(2).mean(0))
    )
    path = by_hand(2, [list(range(12))] * 7, rate=0.15)
    np.testing.assert_allclose(anchored.delta, path[-1] - path[0], rtol=1e-12)


@pytest.mark.parametrize("fields", [("delta",), ("loss",), ("loss", "delta"), ("delta", "initial_loss")])
def test_a_report_holds_what_was_asked_for(fields):
    update = jax.eval_shape(LOCAL.reporting(*fields).train, client(), jnp.zeros(2))
    assert {name for name, value in update._asdict().items() if value is not None} == set(fields)


# Losses.


@pytest.mark.parametrize("block", [1, 5, 12, 200])
def test_blocks_do_not_change_losses_and_gradients(x64, block):
    local, z = dataclasses.replace(LOCAL, block=block), jnp.array([0.3, 0.4])
    many = jax.jit(jax.vmap(lambda i: (*local.loss_and_grad(client(i), z), local.loss(client(i), z))))
    losses, gradients, again = many(jnp.arange(len(COUNTS)))
    for i in range(len(COUNTS)):
        np.testing.assert_allclose(losses[i], loss_by_hand(i, z), rtol=1e-12)
        np.testing.assert_allclose(gradients[i], z - examples(i).mean(0), rtol=1e-12)
    np.testing.assert_allclose(again, losses, rtol=1e-12)


@pytest.mark.parametrize("i", [0, 1])
def test_the_loss_may_be_that_of_the_last_batch(x64, i):
    local, z = dataclasses.replace(ALL, loss_on="last_batch", epochs=2), np.array([0.3, 0.4])
    last = examples(i)[drawn(local, client(i))[-1]]
    np.testing.assert_allclose(jax.jit(local.loss)(client(i), z), 0.5 * ((z - last) ** 2).sum(-1).mean(), rtol=1e-12)


def test_the_initial_loss_is_that_of_the_model_that_was_sent(x64):
    z = np.array([0.3, 0.4])
    update = jax.jit(LOCAL.reporting("initial_loss", "loss").train)(client(0), z)
    np.testing.assert_allclose(update.initial_loss, loss_by_hand(0, z), rtol=1e-12)
    assert update.loss < update.initial_loss


def test_an_objective_knows_whether_it_trains():
    def objective(params, batch, key, round_, train):
        return params * (2.0 if train else 3.0) + 10 * round_

    local = LocalTraining(objective=objective, learning_rate=1.0, steps=1, batch_size=4, block=50)
    params = jnp.asarray(1.0)
    assert local.loss(client(round_=1), params) == 13
    assert local.loss_and_grad(client(round_=1), params) == (13, 3)  # F_i and its own gradient
    assert local.grad(client(round_=1), params) == 3
    assert local.train(client(round_=1), params).delta == -2


# Golden quadratics: f = a (x - b)^2 / 2 on one example (a, b).


def quadratic(params, batch, key, round_, train):
    return masked_mean(0.5 * batch.x[:, 0] * (params - batch.x[:, 1]) ** 2, batch.mask)


def quadratic_client(a, b):
    shard = LocalData(jnp.array([[a, b]]), jnp.zeros(1, int), jnp.zeros(1, int), jnp.asarray(1))
    return Client(jnp.asarray(0), KEY, shard, (), jnp.asarray(0))


@pytest.mark.parametrize(
    ("a", "b", "mu", "expected"),
    [
        (1, 0, 0.0, 0.729), (2, 3, 0.0, 1.976), (4, -1, 0.0, -0.568),  # FedAvg
        (2, 3, 0.1, 1.96564), (2, 3, 1.0, 1.876),  # FedProx
    ],
)  # fmt: skip
def test_three_steps_on_a_quadratic(x64, a, b, mu, expected):
    local = LocalTraining(objective=quadratic, learning_rate=0.1, steps=3).with_gradient(proximal(mu))
    delta = local.train(quadratic_client(float(a), float(b)), jnp.asarray(1.0)).delta
    np.testing.assert_allclose(1 + delta, expected, atol=1e-12)


def test_the_last_batch_without_batches_is_the_whole_set(x64):
    local = dataclasses.replace(LOCAL, batch_size=None, loss_on="last_batch")
    z = jnp.array([0.3, 0.4])
    np.testing.assert_allclose(local.loss(client(2), z), loss_by_hand(2, z), rtol=1e-12)


@pytest.mark.parametrize("wrong", [{"loss_on": "lastbatch"}, {"reports": ("deltas",)}, {"steps": 0}, {"block": 0}])
def test_wrong_settings_are_refused(wrong):
    (name,) = wrong
    with pytest.raises(ValueError, match=name):
        dataclasses.replace(LOCAL, **wrong)


# What cannot be trained with.


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"steps": 0}, "steps=0 is not valid; give a whole number >= 1"),
        ({"steps": 2.5}, "steps=2.5 is not valid; give a whole number >= 1"),
        ({"steps": None}, "steps=None is not valid; give a whole number >= 1"),
        ({"epochs": 0}, "epochs=0 is not valid; give a whole number >= 1; None takes K steps instead"),
        (
            {"batch_size": 0},
            "batch_size=0 is not valid; give a whole number >= 1; None takes the whole local set in every step",
        ),
        ({"block": -1}, "block=-1 is not valid; give a whole number >= 1"),
        ({"learning_rate": -0.1}, "learning_rate=-0.1 is not valid; give a finite number >= 0, or a schedule"),
        ({"learning_rate": np.nan}, "learning_rate=nan is not valid; give a finite number >= 0, or a schedule"),
        ({"learning_rate": 1e400}, "learning_rate=inf is not valid; give a finite number >= 0, or a schedule"),
        ({"learning_rate": "0.1"}, "learning_rate='0.1' is not valid; give a finite number >= 0, or a schedule"),
    ],
)
def test_training_that_makes_no_sense_is_refused(changes, message):
    with pytest.raises(ValueError) as error:
        dataclasses.replace(LOCAL, **changes)
    assert str(error.value) == message


def test_rates_of_any_kind_are_taken():
    for rate in (0, 0.1, np.float32(0.1), jnp.asarray(0.1), lambda round_: -1.0):
        dataclasses.replace(LOCAL, learning_rate=rate)
    jax.eval_shape(lambda rate: dataclasses.replace(LOCAL, learning_rate=rate).rate(0), -1.0)
