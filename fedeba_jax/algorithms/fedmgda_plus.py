"""FedMGDA+ (Hu et al. 2022, "Federated Learning Meets Multi-objective Optimization").

Notes:
  eps = 0 is not FedAvg: it averages updates of length one, so a step is at most eta long whatever the local rate.
  Published codes differ in eta (1, or the local rate) and in the prior: the authors' is uniform (`prior="none"`), the
  default here is FedAvg's share of examples. An update of zero makes the authors' code NaN; here it has no direction.
"""

import jax
import jax.numpy as jnp

from fedeba_jax.algorithm import Prior, client_weights, diagnose, one_model
from fedeba_jax.cohort import Cohort
from fedeba_jax.hyperparameters import Fraction, Positive, Range, check
from fedeba_jax.local import LocalTraining
from fedeba_jax.method import method
from fedeba_jax.server import Server, ServerState
from fedeba_jax.solvers import project_capped_simplex, quadratic_programme
from fedeba_jax.types import Algorithm, Info, Scalar

TINY = 1e-12  # an update shorter than this has no direction


@method(hears_losses=False, search={"eps": Range(0.01, 1.0), "eta": Range(0.1, 2.0)})
def fedmgda_plus(
    local: LocalTraining, server: Server, *, eps: Fraction = 0.03, eta: Positive = 1.0, prior: Prior = "examples"
) -> Algorithm:
    """x_{t+1} = x_t + eta sum_i lambda_i u_i, u_i = Delta_i / |Delta_i|, lambda = argmin |sum_i lambda_i u_i|^2.

    lambda is in the simplex and within eps of the prior. Unconstrained (eps = 1), the shortest mixture is a direction
    that improves every client, or zero: then the model is Pareto-stationary and stays.

    Args:
      local: local training.
      server: server optimizer.
      eps: how far lambda_i may leave the prior, grid 0, 0.03, 0.08, 0.1, 1.
      eta: length of a step along the mixture.
      prior: "examples" (share of examples) or "none" (uniform).
    """
    check("prior", prior, Prior)

    def update(state: ServerState, cohort: Cohort) -> tuple[ServerState, Info]:
        reply = cohort.ask(local.reporting("delta").train, state.params)
        start = client_weights(cohort, "uniform" if prior == "none" else "examples").p
        mixture, inverse_norms = cohort.at_server(shortest_mixture, cohort.gram(reply.delta), start, eps)
        a = eta * mixture * inverse_norms
        return server.step(state, reply.delta, a, cohort, local), diagnose(a)

    return one_model(server, update)


def shortest_mixture(gram: jax.Array, prior: jax.Array, eps: Scalar) -> tuple[jax.Array, jax.Array]:
    """lambda, and 1 / |Delta_i|, from the updates' products; an update of zero has u_i = 0."""
    norms = jnp.sqrt(jnp.diagonal(gram))
    inverse_norms = jnp.where(norms < TINY, 0, 1 / jnp.maximum(norms, TINY))
    cosines = gram * inverse_norms[None] * inverse_norms[:, None]
    lower, upper = jnp.maximum(prior - eps, 0), jnp.minimum(prior + eps, 1)
    return min_norm_weights(cosines, prior, lower, upper), inverse_norms


def min_norm_weights(
    gram: jax.Array, start: jax.Array, lower: jax.Array, upper: jax.Array, iterations: int = 1000
) -> jax.Array:
    """argmin x' gram x over {lower <= x <= upper, sum x = 1}: the shortest mixture of vectors with these products.

    Args:
      gram: <u_i, u_j>, [n, n].
      start: a feasible point; it stays where the mixtures do not differ by more than rounding.
      lower: [n].
      upper: [n].
      iterations: of FISTA.
    """

    def project(y: jax.Array) -> jax.Array:
        return project_capped_simplex(y, lower, upper)

    return quadratic_programme(gram, jnp.zeros_like(start), project, start, iterations)
