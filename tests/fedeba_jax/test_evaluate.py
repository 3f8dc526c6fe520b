"""Scores by client against a NumPy loop."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedeba_jax import client_map as maps
from fedeba_jax.algorithm import alone
from fedeba_jax.evaluate import score, score_model, score_personal
from fedeba_jax.types import Mixture, State
from tests.support.problems import COUNTS, tiny

PROBLEM = tiny()
PARAMS = [PROBLEM.model.init(jax.random.key(seed)) for seed in (1, 2)]


def softmax(logits):
    powers = np.exp(logits - logits.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


def probabilities(params, x):
    (w1, b1), (w2, b2) = jax.tree.map(np.asarray, params)
    return softmax(np.maximum(x / 255.0 @ w1 + b1, 0) @ w2 + b2)


def by_hand(probability):
    """(accuracy, loss) [M] of predictions `probability(client, x)`."""
    federation, scores, start = PROBLEM.test.federation, [], 0
    for i, count in enumerate(COUNTS):
        x, y = (np.asarray(a)[start : start + count] for a in (federation.x, federation.y))
        p = probability(i, x)
        scores.append((100 * np.mean(p.argmax(-1) == y), -np.log(p[np.arange(count), y]).mean()))
        start += count
    return np.transpose(scores)


def close(scores, expected):
    np.testing.assert_allclose(scores.accuracy, expected[0], rtol=1e-5)
    np.testing.assert_allclose(scores.loss, expected[1], rtol=1e-5)


@pytest.mark.parametrize("block", [1, 7, 37, 1000])
def test_scores_of_a_model_are_those_of_a_loop_whatever_the_blocks(block):
    """37 examples: blocks of 1 and 7 divide them or not, 37 and 1000 are one block."""
    scores = score_model(PROBLEM.model.apply, PARAMS[0], PROBLEM.test, client_map=maps.mapped, block=block)
    close(scores, by_hand(lambda _, x: probabilities(PARAMS[0], x)))


def test_personal_scores_of_one_shared_model_are_its_scores():
    state = State(PARAMS[0], jnp.zeros(len(COUNTS)))
    personal = score_personal(
        PROBLEM.model.apply, lambda params, _: alone(params), state, PROBLEM.test.federation, client_map=maps.mapped
    )
    close(personal, score_model(PROBLEM.model.apply, PARAMS[0], PROBLEM.test, client_map=maps.mapped, block=7))


def test_examples_of_nobody_do_not_count():
    padded = PROBLEM.test._replace(
        example=jnp.concatenate([PROBLEM.test.example, jnp.array([0, 3, 9])]),
        owner=jnp.concatenate([PROBLEM.test.owner, jnp.full(3, len(COUNTS))]),
    )
    scores = score_model(PROBLEM.model.apply, PARAMS[0], padded, client_map=maps.mapped, block=7)
    close(scores, by_hand(lambda _, x: probabilities(PARAMS[0], x)))


@pytest.mark.parametrize("client_map", [jax.vmap, maps.mapped], ids=["vmap", "mapped"])
def test_a_mixture_predicts_the_mean_of_its_models_probabilities(client_map):
    """Client i weighs the second model by i / 5."""
    shares = jnp.arange(6) / 5

    def personalize(server, share):
        stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *server)
        return Mixture(stacked, jnp.stack([1 - share, share]))

    state = State(PARAMS, shares)
    scores = score_personal(PROBLEM.model.apply, personalize, state, PROBLEM.test.federation, client_map=client_map)

    def probability(i, x):
        return (1 - i / 5) * probabilities(PARAMS[0], x) + i / 5 * probabilities(PARAMS[1], x)

    close(scores, by_hand(probability))


@pytest.mark.parametrize("bad", [np.nan, -np.inf])
def test_a_model_that_is_not_finite_has_no_scores(bad):
    """A hidden bias of minus infinity is a dead unit: all logits are finite, and the scores are NaN nevertheless."""
    (w1, b1), last = PARAMS[0]
    params = [(w1, b1.at[1].set(bad)), last]
    scores = score_model(PROBLEM.model.apply, params, PROBLEM.test, client_map=maps.mapped, block=7)
    assert np.isnan(scores).all()


def test_of_personal_models_the_finite_ones_have_scores():
    state = State(PARAMS[0], jnp.array([0.0, np.nan, 0.0, 0.0, np.inf, 0.0]))

    def personalize(params, own):
        return alone(jax.tree.map(lambda leaf: leaf + own, params))

    scores = score_personal(PROBLEM.model.apply, personalize, state, PROBLEM.test.federation, client_map=maps.mapped)
    np.testing.assert_array_equal(np.isnan(scores), [[False, True, False, False, True, False]] * 2)


def test_a_client_whose_loss_is_nan_has_no_accuracy():
    """A label that the model does not know has no probability."""
    first = int(PROBLEM.test.example[0])
    federation = PROBLEM.test.federation
    test = PROBLEM.test._replace(federation=federation._replace(y=federation.y.at[first].set(3)))
    scores = score_model(PROBLEM.model.apply, PARAMS[0], test, client_map=maps.mapped, block=7)
    np.testing.assert_array_equal(np.isnan(scores), [[True] + [False] * 5] * 2)


def test_scores_of_several_sets_are_by_the_name_of_the_set_first():
    algorithm, key = PROBLEM.algorithm("ditto"), jax.random.key(1)
    state = algorithm.init(key, PROBLEM.model.init, PROBLEM.sizes)
    arguments = {"apply": PROBLEM.model.apply, "client_map": maps.mapped}
    alone_ = score(algorithm, state, PROBLEM.test, **arguments)
    assert set(alone_) == {"global", "personal"}
    both = score(algorithm, state, {"test": PROBLEM.test, "validation": PROBLEM.test}, **arguments)
    assert set(both) == {"test", "validation"}
    for scores in both.values():
        jax.tree.map(np.testing.assert_array_equal, scores, alone_)
