"""What happens to a local gradient before the step: optax transformations with extra arguments.

`LocalTraining.train` calls them with `params` (the current local model), `value` (the batch's loss
there), `anchor` (the model the round began with, unless the algorithm names another), `num_steps`
(this client's number of local steps) and what the algorithm sends along as context.
"""

from typing import Any

import jax
import optax
from optax import GradientTransformationExtraArgs as Transform

from fedeba_jax import tree
from fedeba_jax.types import Params, Scalar


def stateless(function: Any) -> Transform:
    """A transformation `function(gradient, params, **context)` without a memory."""

    def update(gradient: Params, state: Any, params: Params = None, **context: Any) -> tuple[Params, Any]:
        return function(gradient, params, **context), state

    return Transform(lambda params: optax.EmptyState(), update)


def blend(fair_scale: Scalar | None = None) -> Transform:
    """h = (1 - a) grad + a c g~: FedEBA+'s aligned gradient (Algorithm 1, line 11); with c = 1, MimeLite's step.

    g~ is the context's `target`, a its `weight` (FedEBA+: alpha where the gate is open, else 0; MimeLite: beta).

    Args:
      fair_scale: c; None is 1/K, which makes the fair part of a whole round one local step's worth.
        1.0 is the literal reading of the paper.
    """

    def function(
        gradient: Params, params: Params, *, target: Params, weight: Scalar, num_steps: jax.Array, **_: Any
    ) -> Params:
        c = 1.0 / num_steps if fair_scale is None else fair_scale
        return tree.add(tree.scale(1 - weight, gradient), tree.scale(weight * c, target))

    return stateless(function)


def proximal(mu: Scalar) -> Transform:
    """grad + mu (z - x_t): the gradient of FedProx's (mu/2) |z - x_t|^2; x_t is the anchor."""

    def function(gradient: Params, params: Params, *, anchor: Params, **_: Any) -> Params:
        return tree.add(gradient, tree.scale(mu, tree.subtract(params, anchor)))

    return stateless(function)
