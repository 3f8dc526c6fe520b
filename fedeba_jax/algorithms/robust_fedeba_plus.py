"""R-FedEBA+: FedEBA+ with guards against clients that lie about losses and updates.

The paper's maximum-entropy programme with a trust prior q and one more constraint: p maximises its entropy relative to
q under sum p_i F_i = f~ and p_i <= kappa / n, which gives p_i = min(kappa / n, nu q_i exp(F_i / tau)).

Notes:
  Not of the paper. With loss_clip = norm_clip = infinity, weight_cap = n and trust "off" it is FedEBA+ at
  the same tau.
"""

import functools
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp

from fedeba_jax import stack, tree
from fedeba_jax.aggregation import Rule, Total
from fedeba_jax.algorithm import Prior, diagnose, remembering, size_prior
from fedeba_jax.cohort import Cohort, Judged
from fedeba_jax.gradients import blend
from fedeba_jax.hyperparameters import Degrees, Fraction, NonNegative, Range, Temperature, check
from fedeba_jax.local import LocalTraining
from fedeba_jax.method import method
from fedeba_jax.privacy import Cap, Clip
from fedeba_jax.server import Server, ServerState, forgetful
from fedeba_jax.trust import Outliers, Trust, agreeing, cap, directions, earned, guard_losses, remember, unsuspected
from fedeba_jax.trust import prior as trust_prior
from fedeba_jax.types import Algorithm, Info, Params, Sizes
from fedeba_jax.weights import by_examples, entropy_based, fairness_angle, is_open

Level = Literal["full", "loss_only"]


class Memory(NamedTuple):
    """What the method keeps across rounds."""

    opened: jax.Array  # whether the gate was open, as a guess of the next round's
    usual: jax.Array  # [2], mean over rounds of the median length of gradients, and of updates
    history: Any = ()  # with trust "history": T [M], and whose T there is [M]


def supposed(norm_clip: Clip, trust: Trust, level: Level) -> Rule | None:
    """The guards of updates alone."""
    return agreeing(norm_clip, trust) if level == "full" else None


@method(
    guarded_sum=supposed,
    search={"tau": Range(0.05, 20.0), "alpha": Range(0.0, 0.95, log=False), "weight_cap": Range(1.5, 10.0)},
)
def robust_fedeba_plus(
    local: LocalTraining,
    server: Server,
    *,
    tau: Temperature = 0.1,
    alpha: Fraction = 0.9,
    theta: Degrees = 0.0,
    fair_scale: NonNegative | None = None,
    prior: Prior = "none",
    loss_clip: Clip = 5.0,
    outliers: Outliers = "middle",
    norm_clip: Clip = 2.0,
    weight_cap: Cap = 2.0,
    trust: Trust = "history",
    level: Level = "full",
) -> Algorithm:
    """p_i = min(P, nu q_i exp(F^_i / tau)) of updates no longer than rho r, in all three sums of FedEBA+.

    F^ are the losses, or their median in place of those that are more than c robust deviations from it. r is the median
    length of the vectors, but no more than twice its mean over rounds; of first steps, than twice that of updates. q_i
    is whether a client's updates, in the mean over its rounds, agree with the geometric median (`trust`; of a client
    that is new, its vectors of this sum). Both medians are of those whose updates did so before, and of new clients.
    Whatever its past, an update whose cosine is not half the median of the cosines does not count, and a gradient that
    points against the geometric median is no longer than r / kappa, so that it counts no more than in a plain mean.
    Losses or vectors that are not finite are left out, and their clients counted (`excluded`); if nobody is left, the
    run stops.

    Args:
      local: local training.
      server: server optimizer.
      tau: temperature of both softmaxes.
      alpha: strength of the alignment, in [0, 1].
      theta: fair angle in degrees, of the guarded losses.
      fair_scale: factor c of g~ in a local step; none is 1/K.
      prior: of both softmaxes, beside trust: "none" or "examples".
      loss_clip: c, in robust standard deviations from the median.
      outliers: what a loss further away counts as: "middle", the median; "clip", c deviations.
      norm_clip: rho, in median lengths.
      weight_cap: kappa; no client weighs more than kappa / n, unless fewer than n / kappa are trusted.
      trust: q_i: "relu", the cosine if positive; "sign", 1 if it is; "history", 1 if its mean over rounds is; "off", 1.
      level: "loss_only" guards losses and caps weights alone.
    """
    check("prior", prior, Prior)
    check("outliers", outliers, Outliers)
    check("trust", trust, Trust)
    check("level", level, Level)
    trust, norm_clip = (trust, norm_clip) if level == "full" else ("off", jnp.inf)
    opposed = 1 / weight_cap if trust == "history" else jnp.inf
    aligned = local.with_gradient(blend(fair_scale)).reporting("delta", "loss")

    def weights(sizes: Any, losses: jax.Array, trusted: jax.Array, counts: jax.Array) -> jax.Array:
        q = trust_prior(trusted if sizes is None else trusted * sizes, counts)
        return entropy_based(guard_losses(losses, loss_clip, counts, outliers), tau, q, cap(q, weight_cap))

    def guarded_sum(cohort: Cohort, past: Any, usual: Any, vectors: Params, losses: Any = None) -> tuple[Any, ...]:
        """The sum, who is left out of it, and the mean of the median length; by trust and sizes without losses."""
        sizes = by_examples(cohort.num_examples) if losses is None else size_prior(cohort, prior)
        losses = jnp.zeros(cohort.id.shape) if losses is None else losses

        def combined(total: Total, vectors: Params, _: Any, sizes: Any, losses: Any, past: Any, usual: Any) -> Any:
            guards = {"opposed": opposed, "among": unsuspected(past), "usual": usual}
            own = directions(total(tree.gram(vectors)), norm_clip, **guards)
            counts = own.finite & jnp.isfinite(losses)
            p = stack.if_any(counts, weights(sizes, losses, earned(trust, own.cosines, past), counts))
            return stack.mixture(vectors, p * own.factors), (~counts, own.usual)

        vector, found = cohort.by_columns(combined, vectors, (), sizes, losses, past, usual)
        return vector, *found

    def of_updates(products: jax.Array, losses: jax.Array, sizes: Any, past: Any, usual: jax.Array) -> tuple[Any, ...]:
        """How updates are guarded, who counts, their past from now on, who is trusted, and the weights."""
        own = directions(products, norm_clip, among=unsuspected(past), usual=usual)
        counts = own.finite & jnp.isfinite(losses)
        past = remember(own.cosines, counts, *past) if past else past
        trusted = earned(trust, own.cosines, past, now=True)  # honest updates hardly ever disagree, gradients do
        return own, counts, past, trusted > 0, weights(sizes, losses, trusted, counts)

    def start(params: Params, sizes: Sizes) -> Memory:
        nobody = jnp.zeros((sizes.num_clients,))
        return Memory(jnp.ones((), bool), jnp.zeros(2), (nobody > 0, nobody) if trust == "history" else ())

    def update(state: ServerState, memory: Memory, cohort: Cohort) -> tuple[ServerState, Memory, Info]:
        x, past, usual = state.params, tree.rows(memory.history, cohort.id), memory.usual

        def judge(losses: jax.Array) -> Judged:
            guarded = guard_losses(losses, loss_clip, jnp.isfinite(losses), outliers)
            angle = fairness_angle(guarded)
            return Judged(None, is_open(angle, theta), (guarded, angle))

        once = memory.opened if local.loss_on == "full" else False
        of_gradients, of_steps = (functools.partial(guarded_sum, cohort, past, usual[i]) for i in (0, 1))
        asked = cohort.ask_then_sum(local.loss, local.loss_and_grad, judge, x, likely=once, combine=of_gradients)
        _, (_, unfair, (before, angle)), (gradient, one) = asked
        target = cohort.derived(lambda g: server.publish(g, cohort, local), gradient)
        reply = cohort.ask(aligned.train, x, target=target, weight=jnp.where(unfair, alpha, 0.0))
        first_step, _ = cohort.ask_combined(local.first_step, of_steps, x, when=~unfair, alongside=True)
        known = (reply.loss, size_prior(cohort, prior), past, usual[1])
        own, counts, past, trusted, p = cohort.at_server(of_updates, cohort.gram(reply.delta), *known)
        cohort.leave_out(~counts, numbers=True)
        state, delta = server.receive(state, stack.scale_rows(reply.delta, own.factors), p, cohort, aligned)
        share = stack.if_any(counts, jnp.where(unfair, 0.0, alpha))
        delta = tree.mix(share, delta, server.publish(first_step, cohort, local))
        info = diagnose(p, before=before, after=guard_losses(reply.loss, loss_clip, counts, outliers))
        info |= {"angle": angle, "gate": unfair, "trusted": (counts & trusted).sum()}
        usual = jnp.where((found := jnp.stack([one, own.usual])) > 0, found, usual)  # 0 of what was not asked for
        return server.descend(state, delta), Memory(unfair, usual, tree.set_rows(memory.history, cohort.id, past)), info

    return remembering(forgetful(server, "which no guard looks at again"), start, update)
