"""FedProx (Li et al. 2020, "Federated Optimization in Heterogeneous Networks")."""

from fedeba_jax.algorithm import Weighting
from fedeba_jax.algorithms.fedavg import fedavg
from fedeba_jax.gradients import proximal
from fedeba_jax.hyperparameters import NonNegative, Range
from fedeba_jax.local import LocalTraining
from fedeba_jax.method import method
from fedeba_jax.server import Server
from fedeba_jax.types import Algorithm


@method(privacy=("example", "client"), hears_losses=False, search={"mu": Range(0.001, 10.0)})
def fedprox(
    local: LocalTraining, server: Server, *, mu: NonNegative = 0.1, weighting: Weighting = "examples"
) -> Algorithm:
    """FedAvg whose clients minimise F_i(z) + (mu/2) |z - x_t|^2.

    Args:
      local: local training.
      server: server optimizer.
      mu: proximal strength; 0 is FedAvg.
      weighting: as in `fedavg`.
    """
    return fedavg(local.with_gradient(proximal(mu)), server, weighting=weighting)
