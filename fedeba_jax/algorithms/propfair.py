"""PropFair (Zhang et al. 2023, "Proportional Fairness in Federated Learning")."""

from fedeba_jax.algorithms.common import Weighting
from fedeba_jax.algorithms.fedavg import fedavg
from fedeba_jax.gradients import chain_rule
from fedeba_jax.local import LocalTraining
from fedeba_jax.objectives import proportional
from fedeba_jax.server import Server
from fedeba_jax.types import Algorithm, Positive


def propfair(
    local: LocalTraining,
    server: Server,
    *,
    M: Positive = 2.0,
    eps: Positive = 0.2,
    huber: bool = False,
    weighting: Weighting = "examples",
) -> Algorithm:
    """FedAvg whose clients minimise -log(M - l) of the mini-batch loss l: sum_i p_i log(M - F_i) rises.

    Args:
      local: local training.
      server: server optimizer.
      M: the loss at which utility ends, grid 0.2, 2, 5.
      eps: the log ends where less than this is left, M - l < eps.
      huber: slope 1/eps beyond it (the paper's continuation) rather than 1/M (the authors' code).
      weighting: as in `fedavg`.

    Notes:
      M = eps = 0.2, the FedEBA+ paper's headline row, never reaches the log: it is FedAvg at five times the local
      rate. In general the slope 1 / (M - l) scales the rate: large M needs a rate M times larger.
    """
    bent = chain_rule(lambda loss: proportional(loss, M, eps, huber=huber))
    return fedavg(local.with_gradient(bent), server, weighting=weighting)
