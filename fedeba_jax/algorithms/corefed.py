"""CoreFed (Ray Chaudhury et al. 2022, "Fairness in Federated Learning via Core-Stability").

Notes:
  Our reconstruction from the abstract: no code and no full text could be had. A maximiser of the Nash
  welfare sum_i log u_i is core-stable for convex losses, and its ascent direction weighs clients by 1/u_i.
"""

import jax.numpy as jnp

from fedeba_jax.algorithm import diagnose, one_model
from fedeba_jax.cohort import Cohort
from fedeba_jax.hyperparameters import Positive, Range
from fedeba_jax.local import LocalTraining
from fedeba_jax.method import method
from fedeba_jax.server import Server, ServerState
from fedeba_jax.types import Algorithm, Info


@method(search={"M": Range(1.0, 10.0)})
def corefed(local: LocalTraining, server: Server, *, M: Positive = 5.0, eps: Positive = 0.2) -> Algorithm:
    """x_{t+1} = x_t + sum_i p_i Delta_i with p_i ~ 1 / u_i, u_i = M - F_i(x_t) the utility of client i.

    Args:
      local: local training.
      server: server optimizer.
      M: the loss at which utility ends: above all losses, 5 for ten classes, 2 log C for C > 10; infinity is
        uniform FedAvg.
      eps: the least utility, so that a client beyond M counts as one at M - eps.
    """

    def update(state: ServerState, cohort: Cohort) -> tuple[ServerState, Info]:
        reply = cohort.ask(local.reporting("delta", "initial_loss").train, state.params)
        inverse = 1 / jnp.maximum(1 - reply.initial_loss / M, eps / M)  # M / u_i: finite for any M
        p = inverse / inverse.sum()
        return server.step(state, reply.delta, p, cohort, local), diagnose(p, before=reply.initial_loss)

    return one_model(server, update)
