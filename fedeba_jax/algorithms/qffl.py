"""q-FFL by q-FedAvg (Li et al. 2020, "Fair Resource Allocation in Federated Learning").

Notes:
  The authors sample clients by size; here sampling is uniform and no size enters the weights. One later code takes
  F_i after local training; the paper takes it before, and so does this.
"""

import jax
import jax.numpy as jnp

from fedeba_jax import stack
from fedeba_jax.algorithm import diagnose, one_model
from fedeba_jax.cohort import Cohort
from fedeba_jax.hyperparameters import NonNegative, Range
from fedeba_jax.local import LocalTraining
from fedeba_jax.method import method
from fedeba_jax.server import Server, ServerState
from fedeba_jax.types import Algorithm, Info, Scalar


@method(search={"q": Range(0.001, 15.0)})
def qffl(local: LocalTraining, server: Server, *, q: NonNegative = 0.5) -> Algorithm:
    """x_{t+1} = x_t + sum_i a_i Delta_i, a_i = L F_i^q / sum_j h_j: a descent step on sum_i F_i^(q+1) / (q+1).

    h_i = q F_i^(q-1) |L Delta_i|^2 + L F_i^q bounds the curvature of a client's term, L = 1 / eta_L of the round.

    Args:
      local: local training.
      server: server optimizer.
      q: how much more the worse-off count, grid 0.001, 0.01, 0.1, 0.5, 10, 15; 0 is FedAvg with uniform weights.
        The weights sum to less than 1 otherwise: fairness shortens the step.
    """

    def update(state: ServerState, cohort: Cohort) -> tuple[ServerState, Info]:
        reply = cohort.ask(local.reporting("delta", "initial_loss").train, state.params)
        a = step_weights(reply.initial_loss, stack.squares(reply.delta), q, local.rate(cohort.round))
        info = diagnose(a, before=reply.initial_loss)
        return server.step(state, reply.delta, a, cohort, local), {**info, "weight_sum": a.sum()}

    return one_model(server, update)


def step_weights(losses: jax.Array, squared_moves: jax.Array, q: Scalar, rate: Scalar) -> jax.Array:
    """a_i = F_i^q / sum_j (F_j^q + q F_j^(q-1) |Delta_j|^2 / eta_L), with losses relative to the largest: no overflow.

    Losses are raised by 1e-10, as in the authors' code. At a rate of 0 nobody moves, and L cancels.
    """
    losses = losses + 1e-10
    largest = losses.max()
    ratio = losses / largest
    lipschitz = 1 / jnp.where(rate > 0, rate, 1)
    curvature = q * ratio ** (q - 1) / largest * lipschitz * squared_moves
    return ratio**q / jnp.sum(ratio**q + curvature)
