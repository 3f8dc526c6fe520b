"""Scores of all clients on their own held-out data: of a shared model, or of each client's own.

A model that is not finite predicts nothing, though the largest of its NaNs has an index: its scores are NaN.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from fedeba_jax import tree
from fedeba_jax.batching import even_blocks
from fedeba_jax.client_map import in_turn, lengthened
from fedeba_jax.examples import Examples, counting, cross_entropies, take
from fedeba_jax.ownership import of_clients
from fedeba_jax.types import Algorithm, Apply, ClientMap, Federation, HeldOut, Params, Personalize, State

BLOCK = 200  # examples that a device judges at once


class Scores(NamedTuple):
    """Per client: percent of its held-out targets predicted correctly, and mean cross-entropy."""

    accuracy: jax.Array  # [M]
    loss: jax.Array  # [M]


class Judgement(NamedTuple):
    """Of each example, [E]: how many of its targets are predicted correctly, their cross-entropies summed, how many."""

    correct: jax.Array
    loss: jax.Array
    targets: jax.Array


def score(algorithm: Algorithm, state: State, test: Any, *, apply: Apply, client_map: ClientMap) -> Any:
    """Scores by model name: of the algorithm's models, and of each client's own prediction as "personal" if it has one.

    `test` is a `HeldOut`; of several by name, the scores are by that name first.
    """
    if isinstance(test, dict):
        return {name: score(algorithm, state, held, apply=apply, client_map=client_map) for name, held in test.items()}
    scores = {
        name: score_model(apply, params, test, client_map=client_map)
        for name, params in algorithm.models(of_clients(state, test.federation.num_examples.shape[0])).items()
    }
    if algorithm.personalize is not None:
        held = test.federation
        scores["personal"] = score_personal(apply, algorithm.personalize, state, held, client_map=client_map)
    return scores


def score_model(apply: Apply, params: Params, test: HeldOut, *, client_map: ClientMap, block: int = BLOCK) -> Scores:
    """Scores of one model for all clients: flat over the test set, then a sum by client."""
    each = judge(apply, params, test.federation, test.example, client_map=client_map, block=block)
    return by_client(each, test.owner, test.federation.num_examples.shape[0])


def judge(
    apply: Apply, params: Params, held: Federation, example: jax.Array, *, client_map: ClientMap, block: int = BLOCK
) -> Judgement:
    """What one model makes of these examples [E], a block at a time on each device."""
    count = example.shape[0]
    blocks, size = even_blocks(count, block)
    padded = jnp.concatenate([example, jnp.zeros((blocks * size - count,), example.dtype)])

    def one(rows: jax.Array, params: Params, x: Examples, y: jax.Array) -> Judgement:
        return _judge(jax.nn.log_softmax(apply(params, take(x, rows))), y[rows])

    each = in_turn(client_map)(one, in_axes=(0, None, None, None))(padded.reshape(blocks, size), params, held.x, held.y)
    each = jax.tree.map(lambda leaf: leaf.reshape(-1)[:count], each)
    return each._replace(loss=_if_finite(params, each.loss))


def by_client(each: Judgement, owner: jax.Array, num_clients: int) -> Scores:
    """Scores of all clients from what was made of each example; owner [E], num_clients marks padding."""
    correct, loss, targets = (jax.ops.segment_sum(leaf, owner, num_clients) for leaf in each)
    return _normalise(correct, loss, targets)


def score_personal(
    apply: Apply,
    personalize: Personalize,
    state: State,
    federation: Federation,
    *,
    client_map: ClientMap,
) -> Scores:
    """Scores of each client's own prediction (`Algorithm.personalize`) on its own held-out data.

    A state that has rows beyond those of the clients keeps them where they are: nobody's data is put beside these.
    """
    clients, capacity = federation.rows.shape

    def one(row: Any, server: Any, x: Examples, y: jax.Array) -> Scores:
        own, count, client_state = row
        mixture = personalize(server, tree.cast(client_state, jnp.result_type(float)))
        logits = jax.vmap(apply, in_axes=(0, None))(mixture.params, take(x, own))  # [k, C, ..., classes]
        weights = mixture.weights.astype(logits.dtype).reshape(-1, *[1] * (logits.ndim - 1))
        log_p = jax.nn.logsumexp(jax.nn.log_softmax(logits), axis=0, b=weights)
        mask = jnp.arange(capacity) < count
        correct, loss, targets = (jnp.where(mask, leaf, 0).sum() for leaf in _judge(log_p, y[own]))
        return _normalise(correct, _if_finite(mixture, loss), targets)

    held = jax.tree.leaves(state.clients)[0].shape[0]
    tables = jax.tree.map(lambda leaf: lengthened(leaf, held), (federation.rows, federation.num_examples))
    rows = (*tables, state.clients)
    scores = client_map(one, in_axes=(0, None, None, None))(rows, state.server, federation.x, federation.y)
    return jax.tree.map(lambda leaf: leaf[:clients], scores)


def _judge(log_p: jax.Array, y: jax.Array) -> Judgement:
    """Of log-probabilities [B, ..., classes] and targets [B, ...]."""
    weights = counting(y, jnp.ones((y.shape[0],), log_p.dtype))
    correct, loss = (log_p.argmax(-1) == y).astype(log_p.dtype), cross_entropies(log_p, y)
    others = tuple(range(1, y.ndim))
    return Judgement((weights * correct).sum(others), (weights * loss).sum(others), weights.sum(others))


def _normalise(correct: jax.Array, loss: jax.Array, targets: jax.Array) -> Scores:
    """Scores from sums; who has no loss has no accuracy either."""
    targets = jnp.maximum(targets, 1)
    return Scores(jnp.where(jnp.isnan(loss), jnp.nan, 100 * correct / targets), loss / targets)


def all_finite(params: Params) -> jax.Array:
    """Whether every number of a model, or of several, is finite, and so is its square: beyond that it has exploded."""

    def within(leaf: jax.Array) -> jax.Array:
        if not jnp.issubdtype(leaf.dtype, jnp.floating):
            return jnp.asarray(True)
        return (jnp.abs(leaf) < float(jnp.finfo(leaf.dtype).max) ** 0.5).all()

    return jnp.stack([within(leaf) for leaf in jax.tree.leaves(params)]).all()


def _if_finite(params: Params, loss: jax.Array) -> jax.Array:
    return jnp.where(all_finite(params), loss, jnp.nan)
