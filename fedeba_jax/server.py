"""How a round's update becomes the next model."""

from collections.abc import Callable
from typing import Any, NamedTuple

import optax

from fedeba_jax import tree
from fedeba_jax.types import Params, Positive, Sizes


class ServerState(NamedTuple):
    params: Params  # x_t
    optimizer: Any


class Server(NamedTuple):
    """`init(params, sizes)`, then `descend(state, delta)` once a round; delta points downhill."""

    init: Callable[[Params, Sizes], ServerState]
    descend: Callable[[ServerState, Params], ServerState]


def descent(optimizer: optax.GradientTransformation) -> Server:
    """Any optax optimizer, fed with -delta as its gradient: sgd(1.0) is x + delta."""

    def init(params: Params, sizes: Sizes) -> ServerState:
        del sizes
        return ServerState(params, optimizer.init(params))

    def descend(state: ServerState, delta: Params) -> ServerState:
        updates, optimizer_state = optimizer.update(tree.scale(-1, delta), state.optimizer, state.params)
        return ServerState(optax.apply_updates(state.params, updates), optimizer_state)

    return Server(init, descend)


def sgd(learning_rate: Positive) -> Server:
    """x + learning_rate * delta."""
    return descent(optax.sgd(learning_rate))


SERVERS: dict[str, Callable[..., Server]] = {
    "sgd": sgd,
}
"""Servers by name."""
