"""Sequences as examples: one target for each position, -1 where none counts."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedeba_jax import LocalTraining, Model, evaluate, federate, held_out
from fedeba_jax import client_map as maps
from fedeba_jax.algorithms.feddisco import label_counts
from fedeba_jax.algorithms.fedwavg import correct
from fedeba_jax.batching import mean_over_data, num_targets
from fedeba_jax.objectives import cross_entropy
from fedeba_jax.types import Batch, Client, LocalData, Mixture, State

WORDS = 5
X = np.random.default_rng(0).integers(0, WORDS, (9, 3)).astype(np.int32)
Y = np.random.default_rng(1).integers(-1, WORDS, (9, 3)).astype(np.int32)
Y[4] = -1  # a sequence without a target
OWNED = [np.arange(0, 7), np.arange(7, 9)]
TABLE = jnp.asarray(np.random.default_rng(2).normal(size=(WORDS, WORDS)))
BIGRAM = Model(lambda key: TABLE, lambda table, x: table[x])
LOSS = cross_entropy(BIGRAM)


def log_p(x):
    logits = np.asarray(TABLE)[x]
    return logits - np.log(np.exp(logits).sum(-1, keepdims=True))


def targets(rows):
    """(log-probabilities of all words, target) at each position that counts."""
    return [(log_p(X[r, k]), Y[r, k]) for r in rows for k in range(3) if Y[r, k] >= 0]


def mean_loss(rows):
    return np.mean([-p[y] for p, y in targets(rows)])


def accuracy(rows):
    return 100 * np.mean([p.argmax() == y for p, y in targets(rows)])


def client(i):
    train = federate(X, Y, OWNED)
    data = LocalData(train.x, train.y, train.rows[i], train.num_examples[i])
    return Client(jnp.asarray(i), jax.random.key(0), data, (), jnp.asarray(0))


def test_the_loss_is_the_mean_over_targets_that_count():
    batch = Batch(jnp.asarray(X[:4]), jnp.asarray(Y[:4]), jnp.asarray([1.0, 1, 0, 1]))
    np.testing.assert_allclose(LOSS(TABLE, batch, None, None, True), mean_loss([0, 1, 3]), rtol=1e-6)


def test_without_a_target_loss_and_gradient_are_zero():
    batch = Batch(jnp.asarray(X[4:5]), jnp.asarray(Y[4:5]), jnp.ones(1))
    value, gradient = jax.value_and_grad(LOSS)(TABLE, batch, None, None, True)
    assert value == 0
    assert not np.any(gradient)


@pytest.mark.parametrize("block", [2, 100])
@pytest.mark.parametrize("i", [0, 1])
def test_a_clients_loss_does_not_depend_on_blocks(i, block):
    value = mean_over_data(client(i), lambda batch: LOSS(TABLE, batch, None, None, False), block)
    np.testing.assert_allclose(value, mean_loss(OWNED[i]), rtol=1e-6)
    assert num_targets(client(i).data) == len(targets(OWNED[i]))


def test_scores_are_over_targets():
    test = held_out(federate(X, Y, OWNED))
    scores = evaluate.score_model(BIGRAM.apply, TABLE, test, client_map=maps.mapped, block=4)
    np.testing.assert_allclose(scores.accuracy, [accuracy(rows) for rows in OWNED], rtol=1e-6)
    np.testing.assert_allclose(scores.loss, [mean_loss(rows) for rows in OWNED], rtol=1e-6)


def test_personal_scores_are_over_targets():
    test = held_out(federate(X, Y, OWNED))
    own = lambda server, client: Mixture(TABLE[None], jnp.ones(1))  # noqa: E731
    scores = evaluate.score_personal(
        BIGRAM.apply, own, State((), jnp.zeros((2, 1))), test.federation, client_map=maps.mapped
    )
    np.testing.assert_allclose(scores.accuracy, [accuracy(rows) for rows in OWNED], rtol=1e-6)


def test_a_sequence_is_known_if_all_its_targets_are():
    local = LocalTraining(LOSS, 0.1, apply=BIGRAM.apply, block=4)
    known = [all(p.argmax() == y for p, y in targets([row])) for row in OWNED[0]]
    assert correct(local, client(0), TABLE).tolist() == known


def test_labels_are_counted_by_target():
    local = LocalTraining(LOSS, 0.1, apply=BIGRAM.apply)
    expected = np.bincount([y for _, y in targets(OWNED[0])], minlength=WORDS)
    assert label_counts(local, client(0), TABLE).tolist() == expected.tolist()
