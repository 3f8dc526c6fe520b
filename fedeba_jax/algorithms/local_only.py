"""Local training alone: every client continues its own model on its own data, and nothing is sent.

Notes:
  No method of federated learning, but the baseline that tells what a client gains by taking part. Only sampled clients
  train, so that each takes as many steps as under FedAvg with the same seed, on the same batches. A client that was
  never sampled predicts with x_0.
"""

from fedeba_jax import tree, weights
from fedeba_jax.algorithm import alone, diagnose
from fedeba_jax.cohort import Cohort
from fedeba_jax.local import LocalTraining
from fedeba_jax.method import method
from fedeba_jax.server import Server, ServerState
from fedeba_jax.types import Algorithm, Client, Info, InitParams, Key, Params, Private, Sizes, State


@method(weighted_sum=False, hears_losses=False)
def local_only(local: LocalTraining, server: Server) -> Algorithm:
    """v_i <- v_i + Delta_i(v_i) whenever client i is sampled, from v_i = x_0 on.

    Every client alone: there is no global model, and no communication.

    Args:
      local: local training, of v_i.
      server: gets nothing to descend along, and keeps x_0.
    """
    plain = local.reporting("delta")

    def init(key: Key, init_params: InitParams, sizes: Sizes) -> State:
        x = init_params(key)
        return State(server.init(x, sizes), tree.repeat(x, sizes.num_clients))

    def train(client: Client) -> Private:
        return Private(tree.add(client.state, plain.train(client, client.state).delta))

    def update(state: ServerState, cohort: Cohort) -> tuple[ServerState, Params, Info]:
        personal = cohort.ask(train)
        state = server.descend(state, tree.zeros_like(state.params))
        return state, personal.state, diagnose(weights.uniform(cohort.size))

    return Algorithm(init, update, lambda state: {}, lambda state, v: alone(v))
