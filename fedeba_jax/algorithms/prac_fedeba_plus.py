"""Prac-FedEBA+ (Wang et al., Algorithm 2): FedEBA+ at FedAvg's communication.

Notes:
  The fair gradient is estimated from the updates themselves, so the aligned update with the gate
  open is exactly (1 - alpha) sum p_i Delta_i + alpha sum p~_i Delta_i for equal numbers of steps.
  The x_{t,K-1} of the algorithm's closed-gate line is read as x_{t,K}.
"""

import jax.numpy as jnp

from fedeba_jax.algorithms.common import Prior, check, diagnose, one_model, size_prior
from fedeba_jax.cohort import Cohort
from fedeba_jax.local import LocalTraining
from fedeba_jax.privacy import NONE, Privacy
from fedeba_jax.server import Server, ServerState
from fedeba_jax.types import Algorithm, Degrees, Fraction, Info, Temperature
from fedeba_jax.weights import by_examples, entropy_based, fairness_angle


def prac_fedeba_plus(
    local: LocalTraining,
    server: Server,
    *,
    tau: Temperature = 1.0,
    alpha: Fraction = 0.9,
    theta: Degrees = 0.0,
    prior: Prior = "none",
    privacy: Privacy = NONE,
) -> Algorithm:
    """Entropy-based aggregation, aligned at the server from one upload a client.

    Args:
      local: local training.
      server: server optimizer.
      tau: temperature of both softmaxes.
      alpha: strength of the alignment, in [0, 1]; 0 is FedEBA.
      theta: fair angle in degrees: a larger angle of the losses opens the gate.
      prior: of both softmaxes: "none" or "examples".
      privacy: none or client, which needs equal numbers of steps.
    """
    check("prior", prior, Prior)
    privacy.only("client")
    if privacy.mode != "none" and local.epochs is not None:
        raise ValueError("privacy=client: local epochs give clients unequal numbers of steps, which weigh; give steps")
    local = privacy.local(local)

    def update(state: ServerState, cohort: Cohort) -> tuple[ServerState, Info]:
        reply = cohort.ask(local.reporting("delta", "initial_loss", "loss").train, state.params)  # lines 6-12
        q, cap = size_prior(cohort, prior), privacy.cap(cohort.size, tau)
        p, p_fair = entropy_based(reply.loss, tau, q, cap), entropy_based(reply.initial_loss, tau, q, cap)
        steps = local.num_steps(cohort.num_examples).astype(p.dtype)
        angle = fairness_angle(reply.initial_loss)
        unfair = privacy.gate(angle, theta)  # line 13
        fair = jnp.vdot(p, steps) * p_fair / steps  # line 14: g~ of every step, for each client's number of steps
        one_step = by_examples(cohort.num_examples, cap) / steps  # line 19
        mixed = (1 - alpha) * p + alpha * jnp.where(unfair, fair, one_step)
        state, delta = server.receive(state, reply.delta, mixed, cohort, local)  # lines 15-16, 20
        total = (1 - alpha) + alpha * jnp.where(unfair, 1.0, 1 / local.steps)
        delta = privacy.noised(cohort.key, delta, cap, total)
        info = diagnose(p, before=reply.initial_loss, after=reply.loss)
        return server.descend(state, delta), {**info, "angle": angle, "gate": unfair}

    return one_model(server, update)
