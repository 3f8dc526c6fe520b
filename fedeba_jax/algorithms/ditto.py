"""Ditto (Li et al. 2021, "Ditto: Fair and Robust Federated Learning Through Personalization").

Notes:
  As in the authors' code the personal model takes as many steps as the global one, on the same batches; the paper
  allows other numbers. A client that was never sampled predicts with x_0. In the comparison that FedEBA+ prints,
  Ditto's figures are those of the global model, which is FedAvg's.
"""

from fedeba_jax import tree
from fedeba_jax.algorithm import Weighting, alone, client_weights, diagnose, global_model
from fedeba_jax.cohort import Cohort
from fedeba_jax.gradients import proximal
from fedeba_jax.hyperparameters import NonNegative, Range, check
from fedeba_jax.local import LocalTraining, LocalUpdate
from fedeba_jax.method import method
from fedeba_jax.server import Server, ServerState
from fedeba_jax.types import Algorithm, Client, Info, InitParams, Key, Params, Private, Sizes, State


@method(hears_losses=False, search={"lam": Range(0.01, 2.0)})
def ditto(
    local: LocalTraining, server: Server, *, lam: NonNegative = 0.5, weighting: Weighting = "examples"
) -> Algorithm:
    """FedAvg's x_t, and beside it personal models: v_i descends F_i(v_i) + (lam/2) |v_i - x_t|^2.

    Args:
      local: local training, of x_t and of v_i.
      server: server optimizer.
      lam: how close personal models stay to x_t; 0 is local training alone. FedEBA+'s grid: 0, 0.5.
      weighting: as in `fedavg`.
    """
    check("weighting", weighting, Weighting)
    plain = local.reporting("delta")
    tied = plain.with_gradient(proximal(lam))

    def init(key: Key, init_params: InitParams, sizes: Sizes) -> State:
        x = init_params(key)
        return State(server.init(x, sizes), tree.repeat(x, sizes.num_clients))

    def train(client: Client, x: Params) -> tuple[LocalUpdate, Private]:
        v = client.state
        return plain.train(client, x), Private(tree.add(v, tied.train(client, v, anchor=x).delta))

    def update(state: ServerState, cohort: Cohort) -> tuple[ServerState, Params, Info]:
        reply, personal = cohort.ask(train, state.params)
        p = client_weights(cohort, weighting).p
        return server.step(state, reply.delta, p, cohort, local), personal.state, diagnose(p)

    return Algorithm(init, update, global_model, lambda state, v: alone(v))
