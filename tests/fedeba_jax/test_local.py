"""What a client computes: batches, padding, blocks and steps, against hand loops in NumPy."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedeba_jax import LocalTraining
from fedeba_jax.data.federation import index_table
from fedeba_jax.gradients import chain_rule, proximal
from fedeba_jax.objectives import masked_mean
from fedeba_jax.types import Client, LocalData

COUNTS = np.array([7, 3, 12, 5, 9, 1])
STARTS = np.concatenate([[0], np.cumsum(COUNTS)[:-1]])
VALUES = np.random.default_rng(0).normal(size=(COUNTS.sum(), 2))
KEY = jax.random.key(5)


def distance(params, batch, key, round_, train):
    """Mean of |z - x|^2 / 2: its gradient is z minus the mean example."""
    return masked_mean(0.5 * ((params - batch.x) ** 2).sum(-1), batch.mask.astype(params.dtype))


LOCAL = LocalTraining(objective=distance, learning_rate=0.1, steps=7, batch_size=4, block=5)


def client(i=0, capacity=12, round_=0):
    """Client i of the federation with COUNTS examples; a smaller capacity holds the same examples."""
    owned = [np.arange(start, start + count)[:capacity] for start, count in zip(STARTS, COUNTS, strict=True)]
    table, count = (jnp.asarray(a)[i] for a in index_table(owned, capacity))
    shard = LocalData(jnp.asarray(VALUES), jnp.zeros(len(VALUES), int), table, count)
    return Client(jnp.asarray(i), KEY, shard, (), jnp.asarray(round_))


def examples(i):
    return VALUES[STARTS[i] : STARTS[i] + COUNTS[i]]


def drawn(local, of):
    """The batches of a client as lists of positions, one a step that it takes."""
    position, mask, steps = jax.tree.map(np.asarray, jax.jit(local.batches)(of))
    return [position[k][mask[k].astype(bool)].tolist() for k in range(steps)]


def joined(batches):
    return [position for batch in batches for position in batch]


@functools.cache
def drawn_by_all(**changes):
    return [drawn(dataclasses.replace(LOCAL, **changes), client(i)) for i in range(len(COUNTS))]


# Batches.


def test_an_epoch_visits_every_example_once_and_the_next_is_a_new_permutation():
    batches = drawn_by_all()[2]  # 12 examples, batches of 4: 2 epochs and 1 step
    first, second = joined(batches[:3]), joined(batches[3:6])
    assert sorted(first) == sorted(second) == list(range(12))
    assert first != second
    assert len(set(batches[6])) == 4


def test_the_last_batch_of_an_epoch_is_kept_though_smaller():
    batches = drawn_by_all()[0]  # 7 examples
    assert [len(batch) for batch in batches] == [4, 3] * 3 + [4]
    for epoch in range(3):
        assert sorted(batches[2 * epoch] + batches[2 * epoch + 1]) == list(range(7))


@pytest.mark.parametrize("i", [1, 5])
def test_a_client_smaller_than_the_batch_uses_all_it_has_in_each_step(i):
    assert drawn_by_all()[i] == [list(range(COUNTS[i]))] * 7


@pytest.mark.parametrize("i", [0, 1, 3])
def test_batches_do_not_depend_on_the_capacity(i):
    assert drawn(LOCAL, client(i, capacity=int(COUNTS[i]))) == drawn_by_all()[i]


def test_batches_depend_on_the_key():
    other = client(2)._replace(key=jax.random.key(6))
    assert drawn(LOCAL, other) != drawn_by_all()[2]


def test_epochs_take_as_many_steps_as_a_client_s_data_need():
    batches = drawn_by_all(epochs=2)
    assert [len(steps) for steps in batches] == [4, 2, 6, 4, 6, 2]
    for steps, count in zip(batches, COUNTS, strict=True):
        half = len(steps) // 2
        assert sorted(joined(steps[:half])) == sorted(joined(steps[half:])) == list(range(count))


@pytest.mark.parametrize(
    ("changes", "expected"),
    [({}, [7] * 6), ({"epochs": 2}, [4, 2, 6, 4, 6, 2]), ({"epochs": 3, "batch_size": None}, [3] * 6)],
)
def test_numbers_of_steps(changes, expected):
    np.testing.assert_array_equal(dataclasses.replace(LOCAL, **changes).num_steps(jnp.asarray(COUNTS)), expected)


# Training.


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
    return 0.5 * ((z - examples(i)) ** 2).sum(-1).mean()


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


@pytest.mark.parametrize("batch_size", [4, None])
def test_the_chain_rule_takes_the_loss_of_the_whole_batch(x64, batch_size):
    """Steps along 2 F grad F, F the batch's loss: exact where blocks of 5 make up the batch, too."""
    local = dataclasses.replace(LOCAL, batch_size=batch_size)
    z = path = np.array([0.3, 0.4])
    for positions in drawn(local, client(0)) if batch_size else [range(7)] * 7:
        batch = examples(0)[positions]
        path = path - 0.1 * 2 * (0.5 * ((path - batch) ** 2).sum(-1).mean()) * (path - batch.mean(0))
    delta = jax.jit(local.with_gradient(chain_rule(jnp.square)).train)(client(0), z).delta
    np.testing.assert_allclose(delta, path - z, rtol=1e-12)


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


# Predictions.


def nearest(params, x):
    """Logits of three classes; example x is of the class of its nearest row of params."""
    return -((x[:, None] - params) ** 2).sum(-1)


LABELS = np.random.default_rng(1).integers(0, 3, len(VALUES))
CENTRES = np.array([(-1.0, 0.0), (1.0, 0.0), (0.0, 1.0)])


def labelled(i):
    of = client(i)
    return of._replace(data=of.data._replace(y=jnp.asarray(LABELS)))


@pytest.mark.parametrize("block", [1, 5, 12, 200])
def test_correct_examples_block_by_block(block):
    local = dataclasses.replace(LOCAL, apply=nearest, block=block)
    correct = jax.jit(jax.vmap(lambda i: local.correct(labelled(i), CENTRES)))(jnp.arange(len(COUNTS)))
    assert correct.shape == (6, 12)
    assert correct.dtype == bool
    for i, count in enumerate(COUNTS):
        own = slice(STARTS[i], STARTS[i] + count)
        expected = np.argmax(nearest(CENTRES, VALUES[own]), -1) == LABELS[own]
        np.testing.assert_array_equal(correct[i], np.append(expected, np.zeros(12 - count, bool)))


def test_label_counts_leave_padding_out():
    local = dataclasses.replace(LOCAL, apply=nearest)
    for i, count in enumerate(COUNTS):
        expected = np.bincount(LABELS[STARTS[i] : STARTS[i] + count], minlength=3)
        np.testing.assert_array_equal(local.label_counts(labelled(i), CENTRES), expected)


@pytest.mark.parametrize("method", ["correct", "label_counts"])
def test_predictions_need_the_model(method):
    with pytest.raises(ValueError, match=r"apply=model\.apply"):
        getattr(LOCAL, method)(labelled(0), CENTRES)


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
