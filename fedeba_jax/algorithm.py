"""Parts that methods share: one global model, with or without a memory; weights; diagnostics."""

from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp

from fedeba_jax import weights
from fedeba_jax.cohort import Cohort
from fedeba_jax.privacy import Limits
from fedeba_jax.server import Server, ServerState
from fedeba_jax.types import Algorithm, Info, InitParams, Key, Mixture, Models, Params, Scalar, Sizes, State

Weighting = Literal["examples", "uniform"]
Prior = Literal["none", "examples"]


def one_model(server: Server, update: Callable[[ServerState, Cohort], tuple[ServerState, Info]]) -> Algorithm:
    """An algorithm whose whole state is the server's."""

    def init(key: Key, init_params: InitParams, sizes: Sizes) -> State:
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
    models: Models | None = None,
) -> Algorithm:
    """As `one_model`, for a method with a memory of its own: start(x_0, sizes), then what `update` returns."""

    def init(key: Key, init_params: InitParams, sizes: Sizes) -> State:
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


class Weights(NamedTuple):
    """Weights of a cohort's clients, and what is known of them before any client reports."""

    p: jax.Array  # [n]
    most: Scalar | None  # the largest weight that one client can get, whatever it reports; None: not known


def client_weights(cohort: Cohort, weighting: Weighting, limits: Limits | None = None) -> Weights:
    """FedAvg's weights: by number of examples, capped where there are limits; or uniform."""
    if weighting == "uniform":
        return Weights(weights.uniform(cohort.size), 1 / cohort.size)
    most = None if limits is None else limits.most_weight(cohort.size)
    return Weights(weights.by_examples(cohort.num_examples, most), most)


def entropy_weights(
    cohort: Cohort, losses: jax.Array, tau: Scalar, prior: Prior = "none", limits: Limits | None = None
) -> Weights:
    """FedEBA's weights, p_i ~ q_i exp(F_i / tau) (`weights.entropy_based`), capped where there are limits."""
    most = None if limits is None else limits.most_weight(cohort.size, tau)
    return Weights(weights.entropy_based(losses, tau, size_prior(cohort, prior), most), most)


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
