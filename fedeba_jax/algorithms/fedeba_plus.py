"""FedEBA+ (Wang et al., "Entropy-driven Fair and Effective Federated Learning", Algorithm 1).

Notes:
  The paper's h = (1 - alpha) grad + alpha g~ applies the frozen g~ in each of K steps, which moves
  the model by alpha K eta_L g~ a round and diverges at the paper's own settings. The text speaks of
  "the one local update", so by default g~ carries a factor `fair_scale` = 1/K: a round's fair part is
  one local step. `fair_scale=1` is the literal reading. With FedVARP as the server its v takes the place of
  sum p_i Delta_i, of the aligned updates, with the gate open and closed; the first step is mixed in as it is.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp

from fedeba_jax import tree
from fedeba_jax.algorithms.common import Prior, check, diagnose, remembering, size_prior
from fedeba_jax.cohort import Cohort
from fedeba_jax.gradients import blend
from fedeba_jax.local import LocalTraining, LocalUpdate
from fedeba_jax.privacy import NONE, Privacy
from fedeba_jax.server import Server, ServerState
from fedeba_jax.types import Algorithm, Degrees, Fraction, Info, NonNegative, Scalar, Temperature
from fedeba_jax.weights import by_examples, entropy_based, fairness_angle


def fedeba_plus(
    local: LocalTraining,
    server: Server,
    *,
    tau: Temperature = 1.0,
    alpha: Fraction = 0.9,
    theta: Degrees = 0.0,
    fair_scale: NonNegative | None = None,
    prior: Prior = "none",
    privacy: Privacy = NONE,
) -> Algorithm:
    """Entropy-based aggregation, with local gradients or the server's update aligned by the gate.

    Args:
      local: local training.
      server: server optimizer.
      tau: temperature of both softmaxes.
      alpha: strength of the alignment, in [0, 1]; 0 is FedEBA.
      theta: fair angle in degrees: a larger angle of the losses opens the gate.
      fair_scale: factor c of g~ in a local step; none is 1/K, 1 the literal reading.
      prior: of both softmaxes: "none" or "examples".
      privacy: none or paper.
    """

    check("prior", prior, Prior)

    def fair(cohort: Cohort, losses: jax.Array) -> jax.Array:
        return entropy_based(losses, tau, size_prior(cohort, prior))

    aligned = local.with_gradient(blend(fair_scale)).reporting("delta", "loss")
    return gated(local, aligned, server, fair, lambda cohort, reply: fair(cohort, reply.loss), alpha, theta, privacy)


def gated(
    local: LocalTraining,
    aligned: LocalTraining,
    server: Server,
    fair: Callable[[Cohort, jax.Array], jax.Array],
    aggregate: Callable[[Cohort, LocalUpdate], jax.Array],
    alpha: Scalar,
    theta: Scalar,
    privacy: Privacy,
) -> Algorithm:
    """Algorithm 1 with weights `fair` of the fair gradient and `aggregate` of the updates.

    It remembers whether the gate was open, as a guess of the next round's (`Cohort.ask_then_sum`).
    """
    privacy.only("paper")

    def update(state: ServerState, opened: jax.Array, cohort: Cohort) -> tuple[ServerState, jax.Array, Info]:
        def weigh(losses: jax.Array) -> tuple[jax.Array, jax.Array]:
            return fair(cohort, losses), fairness_angle(losses) > theta  # line 7

        x, likely = state.params, opened if local.loss_on == "full" else False
        losses, gradient = cohort.ask_then_sum(local.loss, local.loss_and_grad, weigh, x, likely=likely)  # lines 6, 8
        unfair = (angle := fairness_angle(losses)) > theta
        align = privacy.alignment(cohort.key, local.batch_size)
        target = cohort.derived(align, gradient)
        reply = cohort.ask(aligned.train, x, target=target, weight=jnp.where(unfair, alpha, 0.0))  # 9-14, 17-22
        shares = by_examples(cohort.num_examples)
        first_step = align(cohort.ask_sum(local.first_step, shares, x, when=~unfair, alongside=True))  # line 21
        p = aggregate(cohort, reply)
        state, delta = server.receive(state, reply.delta, p, cohort, aligned)
        # line 15 with the gate open, line 23 with it closed
        delta = tree.mix(jnp.where(unfair, 0.0, alpha), delta, first_step)
        info = diagnose(p, before=losses, after=reply.loss)
        return server.descend(state, delta), unfair, {**info, "angle": angle, "gate": unfair}

    return remembering(server, lambda params, sizes: jnp.ones((), bool), update)
