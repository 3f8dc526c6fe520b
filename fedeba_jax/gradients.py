"""What happens to a local gradient before the step: optax transformations with extra arguments.

`LocalTraining.train` calls them with `params` (the current local model), `value` (the batch's loss
there), `anchor` (the model the round began with, unless the algorithm names another), `num_steps`
(this client's number of local steps) and what the algorithm sends along as context.
"""

from collections.abc import Callable
from typing import Any

import jax
import optax
from optax import GradientTransformationExtraArgs as Transform

from fedeba_jax import tree
from fedeba_jax.types import Params, Scalar


def _stateless(function: Any) -> Transform:
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

    return _stateless(function)


def tied(projection: Params, slope: Callable[[jax.Array], jax.Array]) -> Transform:
    """grad - P' slope(w - P z): lp-proj's tie of the local model z to w, the context's `shared`.

    Args:
      projection: P, a stack of trees like z.
      slope: the derivative of the tie, of w - P z.
    """

    def function(gradient: Params, params: Params, *, shared: jax.Array, **_: Any) -> Params:
        away = slope(shared - tree.products(projection, params))
        return tree.subtract(gradient, tree.weighted_sum(projection, away))

    return _stateless(function)


def chain_rule(outer: Callable[[jax.Array], jax.Array]) -> Transform:
    """outer'(F) grad F: the step minimises outer(F), F the loss of the whole batch, however it is cut into blocks."""

    def function(gradient: Params, params: Params, *, value: jax.Array, **_: Any) -> Params:
        return tree.scale(jax.grad(outer)(value), gradient)

    return _stateless(function)


def proximal(mu: Scalar) -> Transform:
    """grad + mu (z - x_t): the gradient of FedProx's (mu/2) |z - x_t|^2; x_t is the anchor."""

    def function(gradient: Params, params: Params, *, anchor: Params, **_: Any) -> Params:
        return tree.add(gradient, tree.scale(mu, tree.subtract(params, anchor)))

    return _stateless(function)
