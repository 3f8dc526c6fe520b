"""FedEBA+ (Wang et al., "Entropy-driven Fair and Effective Federated Learning", Algorithm 1).

Notes:
  The paper's h = (1 - alpha) grad + alpha g~ applies the frozen g~ in each of K steps, which moves
  the model by alpha K eta_L g~ in a round and diverges at the paper's own settings. The text speaks of
  "the one local update", so by default g~ carries a factor `fair_scale` = 1/K: a round's fair part is
  one local step. `fair_scale=1` is the literal reading. With FedVARP as the server its v takes the place of
  sum p_i Delta_i, of the aligned updates, with the gate open and closed; the first step is mixed in as it is.
"""

from collections.abc import Callable
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp

from fedeba_jax import tree
from fedeba_jax.algorithm import Prior, diagnose, remembering, size_prior
from fedeba_jax.cohort import Cohort, Judged
from fedeba_jax.gradients import blend
from fedeba_jax.hyperparameters import Degrees, Fraction, NonNegative, Range, Temperature, check
from fedeba_jax.local import LocalTraining, LocalUpdate
from fedeba_jax.method import method
from fedeba_jax.server import Server, ServerState
from fedeba_jax.types import Algorithm, Info, Params, Scalar
from fedeba_jax.weights import by_examples, entropy_based, fairness_angle, is_open

Measured = Literal["after", "before"]  # when losses are measured: after local training, or before it


@method(privacy=("paper",), search={"tau": Range(0.05, 20.0), "alpha": Range(0.0, 0.95, log=False)})
def fedeba_plus(
    local: LocalTraining,
    server: Server,
    *,
    tau: Temperature = 0.1,
    alpha: Fraction = 0.9,
    theta: Degrees = 0.0,
    fair_scale: NonNegative | None = None,
    prior: Prior = "none",
    weigh_by: Measured = "after",
) -> Algorithm:
    """Entropy-based aggregation, with local gradients or the server's update aligned by the gate.

    Args:
      local: local training.
      server: server optimizer.
      tau: temperature of both softmaxes; 0.1 is the paper's, and the fairest of those tried on FashionMNIST.
      alpha: strength of the alignment, in [0, 1]; 0 is FedEBA.
      theta: fair angle in degrees: a larger angle of the losses opens the gate.
      fair_scale: factor c of g~ in a local step; none is 1/K, 1 the literal reading.
      prior: of both softmaxes: "none" or "examples".
      weigh_by: the losses that weigh updates: of the trained models ("after"), or of x_t ("before"), which saves a pass
        over the data; the paper does not say.
    """
    check("prior", prior, Prior)
    check("weigh_by", weigh_by, Measured)

    def fair(cohort: Cohort, losses: jax.Array) -> jax.Array:
        return entropy_based(losses, tau, size_prior(cohort, prior))

    def entropy(cohort: Cohort, reply: LocalUpdate, before: jax.Array) -> jax.Array:
        return fair(cohort, reply.loss if weigh_by == "after" else before)

    reported = ("delta", "loss") if weigh_by == "after" else ("delta",)
    aligned = local.with_gradient(blend(fair_scale)).reporting(*reported)
    return gated(local, aligned, server, fair, entropy, alpha, theta)


def gated(
    local: LocalTraining,
    aligned: LocalTraining,
    server: Server,
    fair: Callable[[Cohort, jax.Array], jax.Array],
    aggregate: Callable[[Cohort, LocalUpdate, jax.Array], jax.Array],
    alpha: Scalar,
    theta: Scalar,
) -> Algorithm:
    """Algorithm 1 with weights `fair` of the fair gradient, and `aggregate` of the updates, from losses of x_t, too.

    It remembers whether the gate was open, as a guess of the next round's.
    """

    def update(state: ServerState, opened: jax.Array, cohort: Cohort) -> tuple[ServerState, jax.Array, Info]:
        x = state.params
        losses, angle, unfair, gradient = ask_fair_gradient(cohort, local, x, fair, theta, opened)  # lines 6-8
        target = cohort.derived(lambda g: server.publish(g, cohort, local), gradient)
        reply = cohort.ask(aligned.train, x, target=target, weight=jnp.where(unfair, alpha, 0.0))  # 9-14, 17-22
        shares = by_examples(cohort.num_examples)
        first_step = cohort.ask_sum(local.first_step, shares, x, when=~unfair, alongside=True)  # line 21
        p = aggregate(cohort, reply, losses)
        state, delta = server.receive(state, reply.delta, p, cohort, aligned)
        # line 15 with the gate open, line 23 with it closed
        delta = tree.mix(jnp.where(unfair, 0.0, alpha), delta, server.publish(first_step, cohort, local))
        info = diagnose(p, before=losses, after=reply.loss)
        return server.descend(state, delta), unfair, {**info, "angle": angle, "gate": unfair}

    return remembering(server, lambda params, sizes: jnp.ones((), bool), update)


class FairGradient(NamedTuple):
    """What Algorithm 1 knows after line 8."""

    losses: jax.Array  # F_i(x_t), [n]
    angle: jax.Array  # of the losses, degrees
    unfair: jax.Array  # whether the gate is open
    gradient: Params  # g~ = sum_i p~_i grad F_i(x_t) if it is, zeros otherwise


def ask_fair_gradient(
    cohort: Cohort,
    local: LocalTraining,
    x: Params,
    fair: Callable[[Cohort, jax.Array], jax.Array],
    theta: Scalar,
    likely: jax.Array,
) -> FairGradient:
    """Lines 6 to 8: the losses of x_t, the gate, and the fair gradient where the gate is open.

    Clients compute loss and gradient in one pass over their data where the gate is likely to be open.
    """

    def judge(losses: jax.Array) -> Judged:
        angle = fairness_angle(losses)
        return Judged(fair(cohort, losses), is_open(angle, theta), angle)

    one_pass = likely if local.loss_on == "full" else False
    losses, judged, gradient = cohort.ask_then_sum(local.loss, local.loss_and_grad, judge, x, likely=one_pass)
    return FairGradient(losses, judged.findings, judged.when, gradient)
