"""What methods with one global model have in common: no client state, x_t evaluated for everybody."""

from collections.abc import Callable
from typing import Any, Literal, get_args

import jax
import jax.numpy as jnp

from fedeba_jax import weights
from fedeba_jax.cohort import Cohort
from fedeba_jax.server import Server, ServerState
from fedeba_jax.types import Algorithm, Info, Key, Mixture, Params, Scalar, Sizes, State

Weighting = Literal["examples", "uniform"]
Prior = Literal["none", "examples"]


def one_model(server: Server, update: Callable[[ServerState, Cohort], tuple[ServerState, Info]]) -> Algorithm:
    """An algorithm whose whole state is the server's."""

    def init(key: Key, init_params: Callable[[Key], Params], sizes: Sizes) -> State:
        return State(server.init(init_params(key), sizes), ())

    def stateless(state: ServerState, cohort: Cohort) -> tuple[ServerState, Any, Info]:
        state, info = update(state, cohort)
        return state, (), info

    def personalize(state: ServerState, client_state: Any) -> Mixture:
        return Mixture(jax.tree.map(lambda leaf: leaf[None], state.params), jnp.ones((1,)))

    return Algorithm(init, stateless, lambda state: {"global": state.params}, personalize)


def client_weights(cohort: Cohort, weighting: Weighting, cap: Scalar | None = None) -> jax.Array:
    """FedAvg's weights: by number of examples (uniform for equal shards), capped if so asked, or uniform."""
    return weights.by_examples(cohort.num_examples, cap) if weighting == "examples" else weights.uniform(cohort.size)


def size_prior(cohort: Cohort, prior: Prior) -> jax.Array | None:
    """The prior of the entropy-based weights: none, or the share of examples."""
    return weights.by_examples(cohort.num_examples) if prior == "examples" else None


def diagnose(p: jax.Array, *, before: jax.Array | None = None, after: jax.Array | None = None) -> Info:
    """Diagnostics of a round: how even the weights are, and the spread of the losses that were asked for.

    Args:
      p: weights of the aggregation.
      before: F_i(x_t), of the model that was sent; reported as loss_*.
      after: F_i(x_{t,K}^i), of the locally trained models; reported as trained_loss_*.
    """
    info = {"weight_entropy": weights.entropy(p), "weight_max": p.max()}
    for name, losses in (("loss", before), ("trained_loss", after)):
        if losses is not None:
            info |= {f"{name}_mean": losses.mean(), f"{name}_min": losses.min(), f"{name}_max": losses.max()}
    return info


def check(name: str, value: str, valid: Any) -> None:
    """An error for a value that a Literal type does not have; factories call it before anything is traced."""
    if value not in get_args(valid):
        raise ValueError(f"{name}={value!r} is not one of {', '.join(get_args(valid))}")
