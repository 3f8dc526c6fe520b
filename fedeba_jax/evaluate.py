"""Scores of all clients on their own held-out data: of a shared model, or of each client's own."""

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from fedeba_jax import tree
from fedeba_jax.client_map import map_sum
from fedeba_jax.examples import Examples, counting, cross_entropies, take
from fedeba_jax.types import Algorithm, Apply, ClientMap, HeldOut, Params, Personalize, State


class Scores(NamedTuple):
    """Per client: percent of its held-out targets predicted correctly, and mean cross-entropy."""

    accuracy: jax.Array  # [M]
    loss: jax.Array  # [M]


def score(algorithm: Algorithm, state: State, test: Any, *, apply: Apply, client_map: ClientMap) -> Any:
    """Scores by model name: of the algorithm's models, and of each client's own prediction as "personal" if it has one.

    `test` is a `HeldOut`; of several by name, the scores are by that name first.
    """
    if isinstance(test, dict):
        return {name: score(algorithm, state, held, apply=apply, client_map=client_map) for name, held in test.items()}
    scores = {
        name: score_model(apply, params, test, client_map=client_map)
        for name, params in algorithm.models(state).items()
    }
    if algorithm.personalize is not None:
        scores["personal"] = score_personal(apply, algorithm.personalize, state, test, client_map=client_map)
    return scores


def score_model(apply: Apply, params: Params, test: HeldOut, *, client_map: ClientMap, block: int = 200) -> Scores:
    """Scores of one model for all clients: flat over the test set, then a segment sum by client."""
    num_clients = test.federation.num_examples.shape[0]
    blocks = max(1, math.ceil(test.example.shape[0] / block))
    block = math.ceil(test.example.shape[0] / blocks)
    missing = blocks * block - test.example.shape[0]
    example = jnp.concatenate([test.example, jnp.zeros((missing,), test.example.dtype)])
    owner = jnp.concatenate([test.owner, jnp.full((missing,), num_clients, test.owner.dtype)])

    def sums(row: Any, params: Params, x: Examples, y: jax.Array) -> Scores:
        example, owner = row
        correct, loss = _judge(jax.nn.log_softmax(apply(params, take(x, example))), y[example])
        return Scores(*(jax.ops.segment_sum(v, owner, num_clients) for v in (correct, loss)))

    rows = (example.reshape(blocks, block), owner.reshape(blocks, block))
    total = map_sum(client_map, sums, jnp.ones((blocks,)), rows, params, test.federation.x, test.federation.y)
    return _normalise(total, _num_targets(test))


def score_personal(
    apply: Apply,
    personalize: Personalize,
    state: State,
    test: HeldOut,
    *,
    client_map: ClientMap,
) -> Scores:
    """Scores of each client's own prediction (`Algorithm.personalize`) on its own held-out data."""
    federation = test.federation
    capacity = federation.rows.shape[1]

    def one(row: Any, server: Any, x: Examples, y: jax.Array) -> Scores:
        own, count, client_state = row
        mixture = personalize(server, tree.cast(client_state, jnp.result_type(float)))
        logits = jax.vmap(apply, in_axes=(0, None))(mixture.params, take(x, own))  # [k, C, ..., classes]
        weights = mixture.weights.astype(logits.dtype).reshape(-1, *[1] * (logits.ndim - 1))
        log_p = jax.nn.logsumexp(jax.nn.log_softmax(logits), axis=0, b=weights)
        mask = jnp.arange(capacity) < count
        return Scores(*(jnp.where(mask, v, 0).sum() for v in _judge(log_p, y[own])))

    rows = (federation.rows, federation.num_examples, state.clients)
    total = client_map(one, in_axes=(0, None, None, None))(rows, state.server, federation.x, federation.y)
    return _normalise(total, _num_targets(test))


def _judge(log_p: jax.Array, y: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Of each example: how many of its targets are predicted correctly, and the sum of their cross-entropies."""
    correct, loss = (log_p.argmax(-1) == y).astype(log_p.dtype), cross_entropies(log_p, y)
    if y.ndim == 1:
        return correct, loss
    weights = counting(y, jnp.ones((y.shape[0],), log_p.dtype))
    others = tuple(range(1, y.ndim))
    return (weights * correct).sum(others), (weights * loss).sum(others)


def _num_targets(test: HeldOut) -> jax.Array:
    """How many held-out targets each client has, [M]."""
    count, y = test.federation.num_examples, test.federation.y
    if y.ndim == 1:
        return count
    own = counting(y, jnp.ones((y.shape[0],), jnp.int32)).sum(tuple(range(1, y.ndim)))
    return jax.ops.segment_sum(own[test.example], test.owner, count.shape[0])


def _normalise(total: Scores, count: jax.Array) -> Scores:
    count = jnp.maximum(count, 1)
    return Scores(100 * total.accuracy / count, total.loss / count)
