"""FedAvg + (2): the alignment of FedEBA+ alone (the paper's component (2))."""

import jax

from fedeba_jax.algorithms.common import Weighting, check, client_weights
from fedeba_jax.algorithms.fedeba_plus import gated
from fedeba_jax.cohort import Cohort
from fedeba_jax.gradients import blend
from fedeba_jax.local import LocalTraining, LocalUpdate
from fedeba_jax.privacy import NONE, Privacy
from fedeba_jax.server import Server
from fedeba_jax.types import Algorithm, Degrees, Fraction, NonNegative, Temperature
from fedeba_jax.weights import entropy_based


def fedavg_align(
    local: LocalTraining,
    server: Server,
    *,
    tau: Temperature = 1.0,
    alpha: Fraction = 0.9,
    theta: Degrees = 0.0,
    fair_scale: NonNegative | None = None,
    weighting: Weighting = "uniform",
    privacy: Privacy = NONE,
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
      privacy: as in `fedeba_plus`.
    """

    check("weighting", weighting, Weighting)

    def fair(cohort: Cohort, losses: jax.Array) -> jax.Array:
        return entropy_based(losses, tau)

    def by_size(cohort: Cohort, reply: LocalUpdate) -> jax.Array:
        return client_weights(cohort, weighting)

    aligned = local.with_gradient(blend(fair_scale)).reporting("delta")
    return gated(local, aligned, server, fair, by_size, alpha, theta, privacy)
