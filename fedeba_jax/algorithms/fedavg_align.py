"""FedAvg + (2): the alignment of FedEBA+ alone (the paper's component (2))."""

from typing import Any

import jax

from fedeba_jax.algorithm import Weighting, client_weights
from fedeba_jax.algorithms.fedeba_plus import gated
from fedeba_jax.cohort import Cohort
from fedeba_jax.gradients import blend
from fedeba_jax.hyperparameters import Degrees, Fraction, NonNegative, Range, Temperature, check
from fedeba_jax.local import LocalTraining
from fedeba_jax.method import method
from fedeba_jax.server import Server
from fedeba_jax.types import Algorithm
from fedeba_jax.weights import entropy_based


@method(privacy=("paper",), search={"tau": Range(0.05, 20.0), "alpha": Range(0.0, 0.95, log=False)})
def fedavg_align(
    local: LocalTraining,
    server: Server,
    *,
    tau: Temperature = 1.0,
    alpha: Fraction = 0.9,
    theta: Degrees = 0.0,
    fair_scale: NonNegative | None = None,
    weighting: Weighting = "uniform",
) -> Algorithm:
    """The ablation "FedAvg + (2)": FedEBA+'s alignment under FedAvg's aggregation weights.

    Args:
      local: local training.
      server: server optimizer.
      tau: temperature of the fair gradient's weights.
      alpha: as in `fedeba_plus`.
      theta: as in `fedeba_plus`.
      fair_scale: as in `fedeba_plus`.
      weighting: as in `fedavg`.
    """
    check("weighting", weighting, Weighting)

    def fair(cohort: Cohort, losses: jax.Array) -> jax.Array:
        return entropy_based(losses, tau)

    def by_size(cohort: Cohort, *_: Any) -> jax.Array:
        return client_weights(cohort, weighting).p

    aligned = local.with_gradient(blend(fair_scale)).reporting("delta")
    return gated(local, aligned, server, fair, by_size, alpha, theta)
