"""What methods have in common: one global model, with or without a memory; weights; diagnostics."""

from collections.abc import Callable
from typing import Any, Literal, NamedTuple, get_args

import jax
import jax.numpy as jnp

from fedeba_jax import weights
from fedeba_jax.cohort import Cohort
from fedeba_jax.server import Server, ServerState
from fedeba_jax.types import Algorithm, Info, Key, Mixture, Params, Scalar, Sizes, State

Weighting = Literal["examples", "uniform"]
Prior = Literal["none", "examples"]
Models = Callable[[Any], dict[str, Params]]


def one_model(server: Server, update: Callable[[ServerState, Cohort], tuple[ServerState, Info]]) -> Algorithm:
    """An algorithm whose whole state is the server's."""

    def init(key: Key, init_params: Callable[[Key], Params], sizes: Sizes) -> State:
        return State(server.init(init_params(key), sizes), ())

    def stateless(state: ServerState, cohort: Cohort) -> tuple[ServerState, Any, Info]:
        state, info = update(state, cohort)
        return state, (), info

    return Algorithm(init, stateless, global_model)


class Remembering(NamedTuple):
    """The server's state, and what the method itself keeps across rounds."""

    server: ServerState
    memory: Any

    @property
    def params(self) -> Params:
        return self.server.params


def remembering(
    server: Server,
    start: Callable[[Params, Sizes], Any],
    update: Callable[[ServerState, Any, Cohort], tuple[ServerState, Any, Info]],
    models: Callable[[State], dict[str, Params]] | None = None,
) -> Algorithm:
    """As `one_model`, for a method with a memory of its own: start(x_0, sizes), then one a round from `update`."""

    def init(key: Key, init_params: Callable[[Key], Params], sizes: Sizes) -> State:
        params = init_params(key)
        return State(Remembering(server.init(params, sizes), start(params, sizes)), ())

    def unpacked(state: Remembering, cohort: Cohort) -> tuple[Remembering, Any, Info]:
        server_state, memory, info = update(state.server, state.memory, cohort)
        return Remembering(server_state, memory), (), info

    return Algorithm(init, unpacked, models or global_model)


def global_model(state: State) -> dict[str, Params]:
    """`Algorithm.models` of a method that evaluates x_t."""
    return {"global": state.server.params}


def alone(params: Params) -> Mixture:
    """The prediction of a client that has one model."""
    return Mixture(jax.tree.map(lambda leaf: leaf[None], params), jnp.ones((1,)))


def client_weights(cohort: Cohort, weighting: Weighting, cap: Scalar | None = None) -> jax.Array:
    """FedAvg's weights: by number of examples (uniform for equal shards), capped if so asked, or uniform."""
    return weights.by_examples(cohort.num_examples, cap) if weighting == "examples" else weights.uniform(cohort.size)


def size_prior(cohort: Cohort, prior: Prior) -> jax.Array | None:
    """The prior of the entropy-based weights: none, or the share of examples."""
    return weights.by_examples(cohort.num_examples) if prior == "examples" else None


def diagnose(p: jax.Array, *, before: jax.Array | None = None, after: jax.Array | None = None) -> Info:
    """Diagnostics of a round: how even the weights are, and the spread of the losses that were asked for.

    Args:
      p: weights of the aggregation; the entropy is that of their shares, should they not sum to 1.
      before: F_i(x_t), of the model that was sent; reported as loss_*.
      after: F_i(x_{t,K}^i), of the locally trained models; reported as trained_loss_*.
    """
    info = {"weight_entropy": weights.entropy(weights.normalised(p, otherwise=p)), "weight_max": p.max()}
    for name, losses in (("loss", before), ("trained_loss", after)):
        if losses is not None:
            info |= {f"{name}_mean": losses.mean(), f"{name}_min": losses.min(), f"{name}_max": losses.max()}
    return info


def check(name: str, value: Any, valid: Any) -> None:
    """An error for a value that a Literal type does not have; factories call it before anything is traced."""
    if value not in get_args(valid):
        raise ValueError(f"{name}={value!r} is not one of {', '.join(map(str, get_args(valid)))}")
