"""FedwAvg (Hong et al. 2022, "Weighted Averaging Federated Learning Based on Example Forgetting Events ...").

Notes:
  From the abstract and a third party's code. A client keeps which examples its last local model got right,
  C bits in place of that model; only the number of forgotten ones is sent. In its first round a client has
  forgotten nothing.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from fedeba_jax import tree
from fedeba_jax.algorithm import Prior, diagnose, global_model, size_prior
from fedeba_jax.batching import blocks_of
from fedeba_jax.cohort import Cohort
from fedeba_jax.hyperparameters import Count, Fraction, Range, check
from fedeba_jax.local import LocalTraining, LocalUpdate
from fedeba_jax.method import method
from fedeba_jax.server import Server, ServerState
from fedeba_jax.types import Algorithm, Client, Info, InitParams, Key, Params, Private, Sizes, State
from fedeba_jax.weights import normalised, uniform


class Memory(NamedTuple):
    """What a client keeps."""

    known: jax.Array  # [M, C] bool: what its last local model classified correctly
    forgotten: jax.Array  # [M] int32: how many of those x_t got wrong when they were counted last


@method(hears_losses=False, logits=True, search={"alpha": Range(0.0, 1.0, log=False)})
def fedwavg(
    local: LocalTraining, server: Server, *, alpha: Fraction = 0.3, forget_every: Count = 1, prior: Prior = "none"
) -> Algorithm:
    """x_{t+1} = x_t + sum_i p_i Delta_i with p_i = (1 - alpha) q_i + alpha f_i / sum_j f_j.

    f_i counts the examples that client i's last local model got right and x_t gets wrong; p = q if there are none.

    Args:
      local: local training; it must know the model's logits.
      server: server optimizer.
      alpha: how much forgetting counts, in [0, 1]; 0 is FedAvg with the prior's weights.
      forget_every: rounds between counts of what was forgotten.
      prior: q_i: "none" (uniform) or "examples" (share of examples).
    """
    check("prior", prior, Prior)
    if forget_every < 1:
        raise ValueError(f"forget_every={forget_every} is not valid; give 1 or more")

    def init(key: Key, init_params: InitParams, sizes: Sizes) -> State:
        nothing = jnp.zeros((sizes.num_clients, sizes.capacity), bool)
        memory = Memory(nothing, jnp.zeros((sizes.num_clients,), jnp.int32))
        return State(server.init(init_params(key), sizes), memory)

    def train(client: Client, x: Params) -> tuple[LocalUpdate, jax.Array, Private]:
        known, before = client.state

        def count() -> jax.Array:
            return (known & ~correct(local, client, x)).sum(dtype=jnp.int32)

        forgotten = jax.lax.cond(client.round % forget_every == 0, count, lambda: before)
        reply = local.reporting("delta").train(client, x)
        known = correct(local, client, tree.add(x, reply.delta))
        return reply, forgotten, Private(Memory(known, forgotten))

    def update(state: ServerState, cohort: Cohort) -> tuple[ServerState, Any, Info]:
        reply, forgotten, memory = cohort.ask(train, state.params)
        p = forgetting_weights(forgotten, alpha, size_prior(cohort, prior))
        info = {**diagnose(p), "forgotten": forgotten.mean()}
        return server.step(state, reply.delta, p, cohort, local), memory.state, info

    return Algorithm(init, update, global_model)


def forgetting_weights(forgotten: jax.Array, alpha: Fraction, prior: jax.Array | None) -> jax.Array:
    """(1 - alpha) q_i + alpha f_i / sum_j f_j; q if nothing is forgotten."""
    q = uniform(forgotten.size) if prior is None else prior
    return (1 - alpha) * q + alpha * normalised(forgotten.astype(q.dtype), q)


def correct(local: LocalTraining, client: Client, params: Params) -> jax.Array:
    """Which of the client's examples the model predicts correctly, [C] bool; False beyond its number of examples.

    A sequence is correct if all its targets are.
    """
    blocks = blocks_of(client, local.block)

    def judge(b: jax.Array) -> jax.Array:
        block = blocks.batch(b)
        right = (local.logits(params, block.x).argmax(-1) == block.y) | (block.y < 0)
        return right.reshape(block.mask.size, -1).all(1) & (block.mask > 0)

    return jax.lax.map(judge, jnp.arange(blocks.number)).reshape(-1)[: client.data.capacity]
