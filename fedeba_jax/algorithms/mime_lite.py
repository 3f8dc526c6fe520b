"""MimeLite (Karimireddy et al. 2021, "Breaking the Centralized Barrier for Cross-Device Federated Learning").

Notes:
  The momentum is an exponential mean; published code may have the sum beta m + grad instead. Mime itself corrects the
  local gradients by control variates on top.
"""

from fedeba_jax import tree
from fedeba_jax.algorithm import Weighting, client_weights, diagnose, remembering
from fedeba_jax.cohort import Cohort
from fedeba_jax.gradients import blend
from fedeba_jax.hyperparameters import Fraction, Range, check
from fedeba_jax.local import LocalTraining, LocalUpdate
from fedeba_jax.method import method
from fedeba_jax.server import Server, ServerState
from fedeba_jax.types import Algorithm, Client, Info, Params, Sizes


@method(hears_losses=False, search={"beta": Range(0.0, 0.99, log=False)})
def mime_lite(
    local: LocalTraining, server: Server, *, beta: Fraction = 0.9, weighting: Weighting = "examples"
) -> Algorithm:
    """FedAvg with z <- z - eta_L [(1 - beta) grad F_i(z; batch) + beta m] as local steps, m frozen in a round.

    Then m <- (1 - beta) sum_i p_i grad F_i(x_t) + beta m, with gradients over whole local sets. It sends m down and
    the gradients up besides the models: twice FedAvg's communication.

    Args:
      local: local training.
      server: server optimizer.
      beta: momentum; 0 is FedAvg.
      weighting: as in `fedavg`, of the updates and of the gradients.
    """
    check("weighting", weighting, Weighting)
    steered = local.with_gradient(blend(1.0)).reporting("delta")

    def train(client: Client, x: Params, m: Params) -> LocalUpdate:
        return steered.train(client, x, target=m, weight=beta)

    def start(x: Params, sizes: Sizes) -> Params:
        del sizes
        return tree.zeros_like(x)

    def update(state: ServerState, m: Params, cohort: Cohort) -> tuple[ServerState, Params, Info]:
        x, p = state.params, client_weights(cohort, weighting).p
        reply = cohort.ask(train, x, m)
        gradient = cohort.ask_sum(local.grad, p, x, alongside=True)
        return server.step(state, reply.delta, p, cohort, local), tree.mix(beta, gradient, m), diagnose(p)

    return remembering(server, start, update)
