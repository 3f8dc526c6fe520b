"""FedEBA: the entropy-based aggregation of FedEBA+ alone (the paper's component (1))."""

from fedeba_jax.algorithm import Prior, diagnose, entropy_weights, one_model
from fedeba_jax.cohort import Cohort
from fedeba_jax.hyperparameters import Range, Temperature, check
from fedeba_jax.local import LocalTraining
from fedeba_jax.method import method
from fedeba_jax.server import Server, ServerState
from fedeba_jax.types import Algorithm, Info


@method(privacy=("client",), search={"tau": Range(0.05, 20.0)})
def fedeba(local: LocalTraining, server: Server, *, tau: Temperature = 1.0, prior: Prior = "none") -> Algorithm:
    """x_{t+1} = x_t + sum_i p_i Delta_i with p_i ~ q_i exp(F_i(x_{t,K}^i) / tau).

    Args:
      local: local training.
      server: server optimizer.
      tau: temperature: infinity is FedAvg, 0 the worst client alone.
      prior: q_i: "none" (uniform) or "examples" (share of examples).
    """
    check("prior", prior, Prior)

    def update(state: ServerState, cohort: Cohort) -> tuple[ServerState, Info]:
        reply = cohort.ask(local.reporting("delta", "loss").train, state.params)
        p, most = entropy_weights(cohort, reply.loss, tau, prior, local.limits)
        return server.step(state, reply.delta, p, cohort, local, most), diagnose(p, after=reply.loss)

    return one_model(server, update)
