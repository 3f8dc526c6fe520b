"""AAggFF (Hahn et al. 2024, "Pursuing Overall Welfare in Federated Learning through Sequential Decision Making").

Notes:
  `published_code` follows the code where it differs from the paper: its normal CDF has erfc for erf, which falls
  with the loss; a sampled client's response lacks the mean; p starts at C (S: 1) for each client; S drops the
  cross term of its quadratic and starts its matrix at alpha I.
"""

import math
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import chex
import jax
import jax.numpy as jnp
from jax.scipy.special import erfc
from jax.scipy.stats import norm

from fedeba_jax.algorithm import diagnose, remembering
from fedeba_jax.cohort import Cohort
from fedeba_jax.hyperparameters import check
from fedeba_jax.local import LocalTraining
from fedeba_jax.method import method
from fedeba_jax.server import Server, ServerState
from fedeba_jax.solvers import project_simplex, quadratic_programme
from fedeba_jax.types import Algorithm, Info, Params, Scalar, Sizes
from fedeba_jax.weights import uniform

Variant = Literal["D", "S"]
RIDGE = 4.0  # alpha = 4 m Linf of AAggFF-S, with Linf = 1/m

Cdf = Literal["normal", "exponential", "weibull", "frechet", "gumbel", "logistic"]
CDFS: dict[str, Callable[[jax.Array], jax.Array]] = {
    "normal": lambda z: norm.cdf(z - 1),
    "exponential": lambda z: -jnp.expm1(-z),
    "weibull": lambda z: -jnp.expm1(-(z**2)),
    "frechet": lambda z: jnp.exp(-1 / z),
    "gumbel": lambda z: jnp.exp(-jnp.exp(1 - z)),
    "logistic": lambda z: jax.nn.sigmoid(z - 1),
    "published_normal": lambda z: 0.5 * (1 + erfc((z - 1) / 2**0.5)),  # AAggFF's code; no CDF: it falls
}


class Memory(NamedTuple):
    p: jax.Array  # the decision, [M]
    gradients: jax.Array  # G, their sum, [M]
    outer: Any = None  # A = sum g g', [M, M]; of S alone, as the next
    cross: Any = None  # b = sum g <g, p>, [M]


@method(everyone_if={"variant": "S"})
def aaggff(
    local: LocalTraining, server: Server, *, variant: Variant = "D", cdf: Cdf = "normal", published_code: bool = False
) -> Algorithm:
    """x_{t+1} = x_t + sum_i p_i Delta_i, p learnt online against the loss -log(1 + <p, r>), r_i ~ CDF(F_i / mean F).

    Args:
      local: local training.
      server: server optimizer.
      variant: "D", cross-device: follow the regularised leader, for cohorts; "S", cross-silo: online Newton
        steps, for all clients in every round.
      cdf: what turns relative losses into responses.
      published_code: follow the authors' code rather than the paper.
    """
    check("variant", variant, Variant)
    check("cdf", cdf, Cdf)
    shape = "published_normal" if published_code and cdf == "normal" else cdf
    step = {"D": follow_leader, "S": newton_step}[variant]

    def start(params: Params, sizes: Sizes) -> Memory:
        m = sizes.num_clients
        p = (sizes.cohort_size if published_code else 1) * jnp.ones((m,)) / m
        newton = ((RIDGE if published_code else 0) * jnp.eye(m), jnp.zeros((m,))) if variant == "S" else ()
        return Memory(p, jnp.zeros((m,)), *newton)

    def update(state: ServerState, memory: Memory, cohort: Cohort) -> tuple[ServerState, Memory, Info]:
        reply = cohort.ask(local.reporting("delta", "initial_loss").train, state.params)
        memory = step(memory, cohort.id, response(reply.initial_loss, shape), cohort.round, published_code)
        p = memory.p[cohort.id] / memory.p[cohort.id].sum()
        return server.step(state, reply.delta, p, cohort, local), memory, diagnose(p, before=reply.initial_loss)

    return remembering(server, start, update)


def follow_leader(
    memory: Memory, ids: jax.Array, responses: jax.Array, round_: jax.Array, published_code: bool = False
) -> Memory:
    """p = softmax(-G sqrt(log m) / ((2 + C) sqrt(t + 1))), G the linearised gradients of doubly robust responses.

    The linearisation's term that is the same for every client cancels in the softmax and is left out.
    """
    m = memory.p.size
    fraction = ids.size / m  # C
    r = fraction * responses
    mean = r.mean()
    robust = jnp.full((m,), mean).at[ids].set((r - mean) / fraction + (0 if published_code else mean))
    gradients = memory.gradients - robust / (1 + mean * memory.p.sum())
    rate = math.sqrt(math.log(m)) / ((2 + fraction) * jnp.sqrt(round_ + 2.0))
    return Memory(jax.nn.softmax(-rate * gradients), gradients)


def newton_step(
    memory: Memory, ids: jax.Array, responses: jax.Array, round_: jax.Array, published_code: bool = False
) -> Memory:
    """p = argmin <G - beta b, p> + alpha/2 |p|^2 + beta/2 p'Ap over the simplex, alpha = 4, beta = m/4."""
    m = memory.p.size
    r = jnp.zeros((m,)).at[ids].set(responses / m)
    g = -r / (1 + jnp.vdot(memory.p, r))
    gradients, outer = memory.gradients + g, memory.outer + jnp.outer(g, g)
    cross = memory.cross + (0 if published_code else g * jnp.vdot(g, memory.p))
    p = online_newton(gradients - m / 4 * cross, m / 4 * outer, RIDGE, start=uniform(m))
    return Memory(p, gradients, outer, cross)


def response(losses: jax.Array, cdf: str) -> jax.Array:
    """CDF(F_i / mean F), in [0, 1], by the CDF's name: AAggFF's bounded measure of a relative loss; F = 0 is even."""
    chex.assert_rank(losses, 1)
    mean = losses.mean()
    return CDFS[cdf](jnp.where(mean > 0, losses / jnp.where(mean > 0, mean, 1), 1))


def online_newton(
    linear: jax.Array, hessian: jax.Array, ridge: Scalar, start: jax.Array, iterations: int = 300
) -> jax.Array:
    """argmin <linear, p> + ridge/2 |p|^2 + 1/2 p' hessian p over the simplex: the online Newton step.

    Args:
      linear: [n].
      hessian: [n, n], positive semi-definite.
      ridge: at least 0; it makes the solution unique.
      start: a point of the simplex, the nearer to the solution the better.
      iterations: of FISTA.
    """
    quadratic = hessian + jnp.asarray(ridge, hessian.dtype) * jnp.eye(start.size, dtype=hessian.dtype)
    return quadratic_programme(quadratic, linear, project_simplex, start, iterations)
