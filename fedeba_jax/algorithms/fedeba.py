"""FedEBA: the entropy-based aggregation of FedEBA+ alone (the paper's component (1))."""

from fedeba_jax.algorithms.common import Prior, check, diagnose, one_model, size_prior
from fedeba_jax.cohort import Cohort
from fedeba_jax.local import LocalTraining
from fedeba_jax.privacy import NONE, Privacy
from fedeba_jax.server import Server, ServerState
from fedeba_jax.types import Algorithm, Info, Temperature
from fedeba_jax.weights import entropy_based


def fedeba(
    local: LocalTraining,
    server: Server,
    *,
    tau: Temperature = 1.0,
    prior: Prior = "none",
    privacy: Privacy = NONE,
) -> Algorithm:
    """x_{t+1} = x_t + sum_i p_i Delta_i with p_i ~ q_i exp(F_i(x_{t,K}^i) / tau).

    Args:
      local: local training.
      server: server optimizer.
      tau: temperature: infinity is FedAvg, 0 the worst client alone.
      prior: q_i: "none" (uniform) or "examples" (share of examples).
      privacy: none or client.
    """

    check("prior", prior, Prior)
    privacy.only("client")
    local = privacy.local(local)

    def update(state: ServerState, cohort: Cohort) -> tuple[ServerState, Info]:
        reply = cohort.ask(local.reporting("delta", "loss").train, state.params)
        cap = privacy.cap(cohort.size, tau)
        p = entropy_based(reply.loss, tau, size_prior(cohort, prior), cap)
        state, delta = server.receive(state, reply.delta, p, cohort, local)
        return server.descend(state, privacy.noised(cohort.key, delta, cap)), diagnose(p, after=reply.loss)

    return one_model(server, update)
