"""FOCUS (Chu et al. 2023, "FOCUS: Fairness via Agent-Awareness for Federated Learning on Heterogeneous Data").

Notes:
  Written from the equations; no code of the authors was at hand. FOCUS assumes full participation; here only the
  assignments of sampled clients move. FedEBA+ names a "beta = 0.5" that FOCUS does not have; `pi_damping` is our guess.
"""

import jax
import jax.numpy as jnp

from fedeba_jax import tree, weights
from fedeba_jax.algorithm import diagnose
from fedeba_jax.cohort import Cohort
from fedeba_jax.hyperparameters import Count, Fraction, Range
from fedeba_jax.local import LocalTraining
from fedeba_jax.method import method
from fedeba_jax.server import Server, ServerState
from fedeba_jax.types import Algorithm, Client, Info, InitParams, Key, Mixture, Params, Scalar, Sizes, State

FLOOR = 1e-8  # of an assignment: one at zero could never recover
EMPTY = 1e-12  # a cluster whose assignments sum to less stays as it is


@method(weighted_sum=False, search={"pi_damping": Range(0.0, 0.9, log=False)})
def focus(local: LocalTraining, server: Server, *, clusters: Count = 2, pi_damping: Fraction = 0.0) -> Algorithm:
    """EM of soft clusters: pi_im ~ pi_im exp(-F_i(w_m)), then w_m <- w_m + sum_i pi_im Delta_im / sum_i pi_im.

    Client i predicts with the mixture sum_m pi_im P(y | x; w_m); there is no global model.

    Args:
      local: local training, from every w_m.
      server: server optimizer, one per cluster.
      clusters: number of cluster models, each with its own initial weights. FedEBA+ takes 2.
      pi_damping: share of the old pi that is kept; 0 is EM.
    """

    def init(key: Key, init_params: InitParams, sizes: Sizes) -> State:
        further = jax.vmap(lambda m: jax.random.fold_in(key, m))(jnp.arange(1, clusters))
        keys = jnp.concatenate([key[None], further])
        state = jax.vmap(lambda key: server.init(init_params(key), sizes))(keys)
        return State(state, jnp.full((sizes.num_clients, clusters), 1 / clusters))

    def train(client: Client, models: Params) -> tuple[jax.Array, Params]:
        def one(w: Params) -> tuple[jax.Array, Params]:
            return local.loss(client, w), local.reporting("delta").train(client, w).delta

        return jax.lax.map(one, models)

    def update(state: ServerState, cohort: Cohort) -> tuple[ServerState, jax.Array, Info]:
        losses, deltas = cohort.ask(train, state.params)  # [n, m] and [n, m, ...]
        pi = assignments(cohort.state, losses, pi_damping)
        a = shares(pi)
        state = jax.vmap(server.descend)(state, jax.vmap(tree.weighted_sum, in_axes=1)(deltas, a))
        info = diagnose(a, before=(pi * losses).sum(1))
        return state, pi, {**info, "weight_entropy": info["weight_entropy"] / clusters, "pi_entropy": spread(pi)}

    def models(state: State) -> dict[str, Params]:
        return {f"cluster_{m}": tree.rows(state.server.params, m) for m in range(clusters)}

    return Algorithm(init, update, models, lambda state, pi: Mixture(state.params, pi / pi.sum()))


def assignments(pi: jax.Array, losses: jax.Array, damping: Scalar = 0.0) -> jax.Array:
    """The E-step, [n, m]: pi_im ~ pi_im exp(-F_i(w_m)), damped towards the old pi and kept above zero."""
    new = jax.nn.softmax(jnp.log(pi) - losses)
    new = jnp.maximum((1 - damping) * new + damping * pi, FLOOR)
    return new / new.sum(1, keepdims=True)


def shares(pi: jax.Array) -> jax.Array:
    """The M-step's weights, [n, m]: pi_im / sum_j pi_jm; zeros keep a cluster that nobody is in."""
    total = pi.sum(0, keepdims=True)
    return jnp.where(total < EMPTY, 0, pi / jnp.maximum(total, EMPTY))


def spread(pi: jax.Array) -> jax.Array:
    """Mean entropy of the assignments: log m where clusters are not told apart, 0 where they are."""
    return weights.entropy(pi) / pi.shape[0]
