"""Prac-FedEBA+ (Wang et al., Algorithm 2): FedEBA+ at FedAvg's communication.

Notes:
  The fair gradient is estimated from the updates themselves, so the aligned update with the gate
  open is exactly (1 - alpha) sum p_i Delta_i + alpha sum p~_i Delta_i for equal numbers of steps.
  The x_{t,K-1} of the algorithm's closed-gate line is read as x_{t,K}.
"""

import jax.numpy as jnp

from fedeba_jax.algorithm import Prior, diagnose, entropy_weights, one_model
from fedeba_jax.cohort import Cohort
from fedeba_jax.hyperparameters import Degrees, Fraction, Range, Temperature, check
from fedeba_jax.local import LocalTraining
from fedeba_jax.method import method
from fedeba_jax.server import Server, ServerState
from fedeba_jax.types import Algorithm, Info
from fedeba_jax.weights import by_examples, fairness_angle, is_open


@method(privacy=("client",), search={"tau": Range(0.05, 20.0), "alpha": Range(0.0, 0.95, log=False)})
def prac_fedeba_plus(
    local: LocalTraining,
    server: Server,
    *,
    tau: Temperature = 1.0,
    alpha: Fraction = 0.9,
    theta: Degrees = 0.0,
    prior: Prior = "none",
) -> Algorithm:
    """Entropy-based aggregation, aligned at the server from one upload per client.

    Args:
      local: local training.
      server: server optimizer.
      tau: temperature of both softmaxes.
      alpha: strength of the alignment, in [0, 1]; 0 is FedEBA.
      theta: fair angle in degrees: a larger angle of the losses opens the gate.
      prior: of both softmaxes: "none" or "examples".
    """
    check("prior", prior, Prior)
    if local.limits is not None and local.epochs is not None:
        raise ValueError("privacy=client: local epochs give clients unequal numbers of steps, which weigh; give steps")

    def update(state: ServerState, cohort: Cohort) -> tuple[ServerState, Info]:
        reply = cohort.ask(local.reporting("delta", "initial_loss", "loss").train, state.params)  # lines 6-12
        p, most = entropy_weights(cohort, reply.loss, tau, prior, local.limits)
        p_fair, _ = entropy_weights(cohort, reply.initial_loss, tau, prior, local.limits)
        steps = local.num_steps(cohort.num_examples).astype(p.dtype)
        angle = fairness_angle(reply.initial_loss)
        unfair = is_open(angle, theta, blind=local.limits is not None)  # line 13
        fair = jnp.vdot(p, steps) * p_fair / steps  # line 14: g~ of every step, for each client's number of steps
        one_step = by_examples(cohort.num_examples, most) / steps  # line 19
        mixed = (1 - alpha) * p + alpha * jnp.where(unfair, fair, one_step)
        total = (1 - alpha) + alpha * jnp.where(unfair, 1.0, 1 / local.steps)  # of the weights, for equal steps
        most = None if most is None else most * total
        info = {**diagnose(p, before=reply.initial_loss, after=reply.loss), "angle": angle, "gate": unfair}
        return server.step(state, reply.delta, mixed, cohort, local, most), info  # lines 15-16, 20

    return one_model(server, update)
