"""FedAvg and FedSGD (McMahan et al. 2017, "Communication-Efficient Learning of Deep Networks ...")."""

import dataclasses

from fedeba_jax.algorithm import Weighting, client_weights, diagnose, one_model
from fedeba_jax.cohort import Cohort
from fedeba_jax.hyperparameters import check
from fedeba_jax.local import LocalTraining
from fedeba_jax.method import method
from fedeba_jax.server import Server, ServerState
from fedeba_jax.types import Algorithm, Info


@method(privacy=("example", "client"), hears_losses=False)
def fedavg(local: LocalTraining, server: Server, *, weighting: Weighting = "examples") -> Algorithm:
    """x_{t+1} = x_t + sum_i p_i Delta_i with p_i = N_i / sum_j N_j.

    Args:
      local: local training.
      server: server optimizer.
      weighting: "examples" (clients of equal size make it uniform) or "uniform", p_i = 1/n.
    """
    check("weighting", weighting, Weighting)

    def update(state: ServerState, cohort: Cohort) -> tuple[ServerState, Info]:
        reply = cohort.ask(local.reporting("delta").train, state.params)
        p, most = client_weights(cohort, weighting, local.limits)
        return server.step(state, reply.delta, p, cohort, local, most), diagnose(p)

    return one_model(server, update)


@method(privacy=("example", "client"), hears_losses=False, one_full_step=True)
def fedsgd(local: LocalTraining, server: Server, *, weighting: Weighting = "examples") -> Algorithm:
    """FedAvg with one step on the whole local set: x_{t+1} = x_t - eta_L sum_i p_i grad F_i(x_t).

    Args:
      local: local training; its steps, epochs and batch size are replaced.
      server: server optimizer.
      weighting: as in `fedavg`.
    """
    one_step = dataclasses.replace(local, steps=1, epochs=None, batch_size=None)
    return fedavg(one_step, server, weighting=weighting)
