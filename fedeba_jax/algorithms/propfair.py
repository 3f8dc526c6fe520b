"""PropFair (Zhang et al. 2023, "Proportional Fairness in Federated Learning")."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from optax import GradientTransformationExtraArgs as Transform

from fedeba_jax import tree
from fedeba_jax.algorithm import Weighting
from fedeba_jax.algorithms.fedavg import fedavg
from fedeba_jax.gradients import stateless
from fedeba_jax.hyperparameters import Positive, Range
from fedeba_jax.local import LocalTraining
from fedeba_jax.method import method
from fedeba_jax.server import Server
from fedeba_jax.types import Algorithm, Params, Scalar


@method(hears_losses=False, search={"M": Range(0.2, 5.0)})
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


def proportional(loss: jax.Array, M: Scalar, eps: Scalar, *, huber: bool = False) -> jax.Array:
    """T(l) = -log(1 - l/M) while M - l >= eps: PropFair's cost of a loss l (slope 1 / (M - l)).

    Beyond it l/M (slope 1/M), as in the authors' code; with `huber` l/eps (slope 1/eps), the paper's
    continuation up to a constant. T jumps at the switch; only its slope matters.
    """
    room = M - loss
    inside = room >= eps
    log = -jnp.log(jnp.where(inside, room, M) / M)  # the inner where keeps log's slope finite beyond the switch
    return jnp.where(inside, log, loss / (eps if huber else M))


def chain_rule(outer: Callable[[jax.Array], jax.Array]) -> Transform:
    """outer'(F) grad F: the step minimises outer(F), F the loss of the whole batch, however it is cut into blocks."""

    def function(gradient: Params, params: Params, *, value: jax.Array, **_: Any) -> Params:
        return tree.scale(jax.grad(outer)(value), gradient)

    return stateless(function)
