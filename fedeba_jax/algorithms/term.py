"""TERM (Li et al. 2021, "Tilted Empirical Risk Minimization")."""

import math
from typing import Any

import chex
import jax
import jax.numpy as jnp

from fedeba_jax.algorithm import Prior, diagnose, remembering, size_prior
from fedeba_jax.cohort import Cohort
from fedeba_jax.hyperparameters import Range, check
from fedeba_jax.local import LocalTraining
from fedeba_jax.method import method
from fedeba_jax.server import Server, ServerState
from fedeba_jax.types import Algorithm, Info, Scalar
from fedeba_jax.weights import scaled, softmax


@method(search={"t": Range(0.1, 5.0)})
def term(
    local: LocalTraining, server: Server, *, t: Scalar = 0.1, normalised: bool = True, prior: Prior = "none"
) -> Algorithm:
    """x_{t+1} = x_t + sum_i a_i Delta_i with a_i ~ q_i exp(t F_i(x_t)): ascent of (1/t) log sum_i q_i exp(t F_i).

    Args:
      local: local training.
      server: server optimizer.
      t: tilt, grid 0.1, 0.5, 0.8, 1, 5; 0 is FedAvg with the prior's weights. It may be negative.
      normalised: whether the weights sum to 1; false is the published code, see Notes.
      prior: q_i: "none" (uniform) or "examples" (share of examples; of the normalised form alone).

    Notes:
      The published code divides e_i = exp(t (F_i - max F)) by a running mean Z <- Z/2 + mean(e)/2 (from 0)
      and then averages the n re-scaled models: a_i = e_i / (n^2 Z), a step n times smaller than FedAvg's
      once Z is steady. The maximum differs by round, so Z mixes scales. For t < 0 it leaves e_i >= 1, the largest of
      them for the best-off client. log Z is kept here: no e_i overflows.
    """
    check("prior", prior, Prior)
    if prior != "none" and not normalised:
        raise ValueError(f"prior={prior!r} belongs to the normalised form; set normalised=True or prior='none'")

    def update(state: ServerState, log_Z: Any, cohort: Cohort) -> tuple[ServerState, Any, Info]:
        reply = cohort.ask(local.reporting("delta", "initial_loss").train, state.params)
        losses = reply.initial_loss
        if normalised:
            a = tilted(losses, t, size_prior(cohort, prior))
        else:
            a, log_Z = smoothed(losses, t, log_Z)
        return server.step(state, reply.delta, a, cohort, local), log_Z, diagnose(a, before=losses)

    return remembering(server, lambda params, sizes: () if normalised else jnp.full((), -jnp.inf), update)


def tilted(losses: jax.Array, t: Scalar, prior: jax.Array | None = None) -> jax.Array:
    """p_i = q_i exp(t F_i) / sum_j q_j exp(t F_j): the gradient's weights in TERM's (1/t) log sum_i q_i exp(t F_i).

    Args:
      losses: F_i, [n].
      t: tilt: 0 gives the prior, large ones the worst client, negative ones the best.
      prior: q_i, [n], non-negative; uniform by default.
    """
    chex.assert_rank(losses, 1)
    return softmax(scaled(losses, lambda loss: t * loss, prior), prior)


def smoothed(losses: jax.Array, t: Scalar, log_Z: jax.Array) -> tuple[jax.Array, jax.Array]:
    """a_i = e_i / (n^2 Z) and the new log Z: e_i = exp(t (F_i - max F)), Z <- Z/2 + mean(e)/2, as published in code.

    Args:
      losses: F_i, [n].
      t: tilt.
      log_Z: of the round before; -inf in the first.
    """
    log_e, n = t * (losses - losses.max()), losses.size
    log_Z = jnp.logaddexp(log_Z, jax.nn.logsumexp(log_e) - math.log(n)) - math.log(2)
    return jnp.exp(log_e - log_Z) / n**2, log_Z
