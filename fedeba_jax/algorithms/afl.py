"""AFL (Mohri et al. 2019, "Agnostic Federated Learning").

Notes:
  The published method trains every client in every round ("all", with the old mixture, evaluated at the mean
  iterate). For cohorts there is no reference but AAggFF's code, whose ascent stays on the cohort's own simplex
  ("block"); "full_simplex" projects the mixture of all clients instead.
  What readers of other code will meet: blocks start at lambda_i = 1/n here, on the cohort's simplex, and at n/M in
  AAggFF's code; fair_flearn's projection onto the simplex is wrong on many inputs; FLGo's mean iterate counts x_0.
"""

from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp

from fedeba_jax import tree
from fedeba_jax.algorithm import diagnose, remembering
from fedeba_jax.cohort import Cohort
from fedeba_jax.hyperparameters import NonNegative, Range, check
from fedeba_jax.local import LocalTraining
from fedeba_jax.method import method
from fedeba_jax.server import Server, ServerState
from fedeba_jax.solvers import project_simplex
from fedeba_jax.types import Algorithm, Info, Params, Scalar, Sizes
from fedeba_jax.weights import normalised, uniform

Participation = Literal["block", "all", "full_simplex"]
Order = Literal["old", "new"]


class Memory(NamedTuple):
    mixture: jax.Array  # lambda, [M]
    average: Params  # the mean of x_1 .. x_t; None if it is not kept


@method(everyone_if={"participation": "all"}, search={"gamma": Range(0.01, 1.0)})
def afl(
    local: LocalTraining,
    server: Server,
    *,
    gamma: NonNegative = 0.1,
    participation: Participation = "block",
    order: Order | None = None,
    average_iterate: bool | None = None,
) -> Algorithm:
    """x_{t+1} = x_t + sum_i lambda_i Delta_i, while lambda climbs: Proj(lambda + gamma F(x_t)) onto the simplex.

    Args:
      local: local training.
      server: server optimizer.
      gamma: step of the ascent, grid 0.1, 0.5, 0.7; 0 is uniform FedAvg.
      participation: whose lambda changes: "block", the cohort's on a simplex of its own; "all", everybody's, and
        everybody trains; "full_simplex", all through the projection, lambda_S / sum_S lambda as weights.
      order: aggregate with the "old" or the "new" lambda; none is old for "all", new otherwise.
      average_iterate: whether the mean of x_1 .. x_t is the global model, and x_t is evaluated beside it as
        "iterate"; none is true for "all", false otherwise.
    """
    check("participation", participation, Participation)
    if order is not None:
        check("order", order, Order)
    old = participation == "all" if order is None else order == "old"
    averaged = participation == "all" if average_iterate is None else average_iterate

    def start(params: Params, sizes: Sizes) -> Memory:
        simplex = sizes.cohort_size if participation == "block" else sizes.num_clients
        return Memory(jnp.ones((sizes.num_clients,)) / simplex, params if averaged else None)

    def update(state: ServerState, memory: Memory, cohort: Cohort) -> tuple[ServerState, Memory, Info]:
        reply = cohort.ask(local.reporting("delta", "initial_loss").train, state.params)
        mixture = ascend(memory.mixture, cohort.id, reply.initial_loss, gamma, participation)
        chosen = (memory.mixture if old else mixture)[cohort.id]
        p = normalised(chosen, uniform(cohort.size))
        state = server.step(state, reply.delta, p, cohort, local)
        average = tree.mix(1 / (cohort.round + 1), memory.average, state.params) if averaged else None
        return state, Memory(mixture, average), diagnose(p, before=reply.initial_loss)

    if not averaged:
        return remembering(server, start, update)
    return remembering(server, start, update, lambda s: {"global": s.server.memory.average, "iterate": s.server.params})


def ascend(
    mixture: jax.Array, ids: jax.Array, losses: jax.Array, gamma: Scalar, participation: Participation
) -> jax.Array:
    """lambda_S + gamma F_S, projected: the block of the cohort S, or the whole."""
    climbed = mixture.at[ids].add(gamma * losses)
    return mixture.at[ids].set(project_simplex(climbed[ids])) if participation == "block" else project_simplex(climbed)
