"""What a client can compute: losses, gradients, and K steps of SGD on its own data."""

import dataclasses
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from optax import GradientTransformationExtraArgs as Transform

from fedeba_jax import batching, privacy, tree
from fedeba_jax.batching import gather, mean_over_data
from fedeba_jax.hyperparameters import Bounds, is_finite, is_whole, shown
from fedeba_jax.schedules import as_schedule
from fedeba_jax.types import Apply, Batch, Client, Objective, Params, Scalar, Schedule

OBJECTIVE = 2**31
"""Folded into a client's key for its objectives; epochs 0, 1, ... are folded in for its permutations."""


class LocalUpdate(NamedTuple):
    """A client's report; what was not asked for is None, is not computed and not sent."""

    delta: Params = None  # x_K - x_0
    loss: Any = None  # F_i(x_K)
    initial_loss: Any = None  # F_i(x_0), of the model that was sent


@dataclasses.dataclass(frozen=True)
class LocalTraining:
    """Local SGD: x <- x - rate(round) * gradient(grad F_i(x; batch)), steps or epochs of it.

    Batches are those of `batching.permuted`.

    Attributes:
      objective: what is minimised.
      learning_rate: a number, or a schedule by round.
      steps: K, the same for every client.
      epochs: if given, this many passes over each client's data instead of K steps.
      batch_size: B; None takes the whole local set in every step.
      gradient: what is done to a gradient before the step (`fedeba_jax.gradients`).
      loss_on: "full" takes F_i over the whole local training set; "last_batch" over the last batch
        of the round, which is cheap and noisy.
      block: the most examples of one forward pass in full-data evaluations.
      reports: fields of `LocalUpdate` that `train` returns.
      apply: the model's logits, for methods that look at predictions; others do without.
      per_example: if given, each step is one of DP-SGD (`privacy.private_gradient`).
      limits: if given, bounds of what is reported and of what a client may weigh.
    """

    objective: Objective
    learning_rate: Scalar | Schedule
    steps: int = 10
    epochs: int | None = None
    batch_size: int | None = 50
    gradient: Transform = dataclasses.field(default_factory=lambda: optax.with_extra_args_support(optax.identity()))
    loss_on: str = "full"
    block: int = 600
    reports: tuple[str, ...] = ("delta",)
    apply: Apply | None = None
    per_example: privacy.PerExample | None = None
    limits: privacy.Limits | None = None

    def __post_init__(self) -> None:
        if self.loss_on not in ("full", "last_batch"):
            raise ValueError(f"loss_on={self.loss_on!r} is not one of full, last_batch")
        if unknown := set(self.reports) - set(LocalUpdate._fields):
            raise ValueError(f"reports={self.reports} has no {unknown.pop()!r}; fields are {LocalUpdate._fields}")
        remedies = {
            "batch_size": "None takes the whole local set in every step",
            "epochs": "None takes K steps instead",
        }
        for name in ("steps", "epochs", "batch_size", "block"):
            value, remedy = getattr(self, name), remedies.get(name)
            if not (value is None and remedy) and not (is_whole(value) and value >= 1):
                or_none = f"; {remedy}" if remedy else ""
                raise ValueError(f"{name}={shown(value)} is not valid; give a whole number >= 1{or_none}")
        rate = self.learning_rate
        if not (callable(rate) or isinstance(rate, jax.core.Tracer) or is_finite(rate, Bounds(0))):
            raise ValueError(f"learning_rate={shown(rate)} is not valid; give a finite number >= 0, or a schedule")

    def reporting(self, *fields: str) -> "LocalTraining":
        """The same training with these fields in its reports."""
        return dataclasses.replace(self, reports=fields)

    def with_gradient(self, transform: Transform) -> "LocalTraining":
        """The same training with one more transformation of the gradient."""
        return dataclasses.replace(self, gradient=optax.chain(self.gradient, transform))

    def rate(self, round_: jax.Array) -> jax.Array:
        """eta_L of a round."""
        return jnp.asarray(as_schedule(self.learning_rate)(round_))

    def num_steps(self, num_examples: jax.Array) -> jax.Array:
        """K_i of a client with so many examples."""
        if self.epochs is None:
            return jnp.full_like(num_examples, self.steps)
        return self.epochs * batching.steps_per_epoch(num_examples, self.batch_size)

    def loss(self, client: Client, params: Params) -> jax.Array:
        """F_i(params) over the local training set, or on the round's last batch (`loss_on`)."""

        def objective(batch: Batch) -> jax.Array:
            return self.objective(params, batch, client.key, client.round, False)

        if self.loss_on == "last_batch" and self.batch_size is not None:
            batches = self.batches(client)
            last = batches.num_steps - 1
            value = objective(gather(client.data, batches.position[last], batches.mask[last]))
        else:
            value = mean_over_data(client, objective, self.block)
        return value if self.limits is None else self.limits.loss(value)

    def loss_and_grad(self, client: Client, params: Params) -> tuple[jax.Array, Params]:
        """F_i and its gradient at params, over the whole local training set."""
        function = self._value_and_grad(client, params, client.key, train=False)
        value, gradient = mean_over_data(client, function, self.block)
        return value if self.limits is None else self.limits.loss(value), gradient

    def grad(self, client: Client, params: Params) -> Params:
        """The gradient of F_i at params, over the whole local training set."""
        return self.loss_and_grad(client, params)[1]

    def logits(self, params: Params, x: jax.Array) -> jax.Array:
        """The model's logits; an error if training was made without `apply`."""
        if self.apply is None:
            raise ValueError("apply=None, but this method looks at predictions: give LocalTraining(apply=model.apply)")
        return self.apply(params, x)

    def train(
        self,
        client: Client,
        params: Params,
        *,
        anchor: Params | None = None,
        visits: jax.Array | None = None,
        **context: Any,
    ) -> LocalUpdate:
        """K_i local steps from params.

        Args:
          client: whose data, key and round.
          params: x_0.
          anchor: what gradient transformations hold on to; None is params.
          visits: numbers [S] of the batches to step on, modulo K_i, instead of all K_i once.
          **context: further arguments of the gradient transformation.
        """
        rate = self.rate(client.round)
        batches = self.batches(client)
        objective_key = jax.random.fold_in(client.key, OBJECTIVE)
        start, anchor = params, params if anchor is None else anchor
        inputs = (jnp.arange(batches.position.shape[0]), batches.position, batches.mask)
        if visits is not None:
            inputs = (visits, *tree.rows((batches.position, batches.mask), visits % batches.num_steps))

        def step(carry: Any, inputs: Any) -> tuple[Any, None]:
            params, optimizer = carry
            k, position, mask = inputs
            value_and_grad = self._value_and_grad(client, params, jax.random.fold_in(objective_key, k))
            if self.per_example is not None:
                value, gradient = None, self._private_gradient(self.per_example, client, params, k)
            elif self.batch_size is None:
                value, gradient = mean_over_data(client, value_and_grad, self.block)
            else:
                value, gradient = value_and_grad(gather(client.data, position, mask))
            direction, optimizer = self.gradient.update(
                gradient, optimizer, params, value=value, anchor=anchor, num_steps=batches.num_steps, **context
            )
            moved = jax.tree.map(lambda p, d: p - rate.astype(p.dtype) * d, params, direction)
            if self.epochs is not None and visits is None:  # a client that is done idles
                moved = jax.tree.map(lambda new, old: jnp.where(k < batches.num_steps, new, old), moved, params)
            return (moved, optimizer), None

        (trained, _), _ = jax.lax.scan(step, (start, self.gradient.init(start)), inputs)
        delta = tree.subtract(trained, start)
        if self.limits is not None:
            delta = self.limits.delta(delta)
        return LocalUpdate(
            delta=delta if "delta" in self.reports else None,
            loss=self.loss(client, trained) if "loss" in self.reports else None,
            initial_loss=self.loss(client, start) if "initial_loss" in self.reports else None,
        )

    def first_step(self, client: Client, params: Params) -> Params:
        """x_1 - x_0: the first step that `train` takes in the same round, alone."""
        return dataclasses.replace(self, steps=1, epochs=None, reports=("delta",)).train(client, params).delta

    def batches(self, client: Client) -> batching.Batches:
        """The round's batches of this client."""
        num_steps = self.num_steps(client.data.num_examples)
        capacity = client.data.capacity
        batch_size = min(self.batch_size or capacity, capacity)
        steps = self.steps if self.epochs is None else self.epochs * math.ceil(capacity / batch_size)
        if self.batch_size is None or self.per_example is not None:
            return batching.empty(steps, num_steps)
        return batching.permuted(client, steps, num_steps, batch_size)

    def _value_and_grad(
        self, client: Client, params: Params, key: jax.Array, train: bool = True
    ) -> Callable[[Batch], Any]:
        def function(batch: Batch) -> Any:
            return jax.value_and_grad(self.objective)(params, batch, key, client.round, train)

        return function

    def _private_gradient(self, rule: privacy.PerExample, client: Client, params: Params, k: jax.Array) -> Params:
        def gradient(alone: Batch, key: jax.Array) -> Params:
            return jax.grad(self.objective)(params, alone, key, client.round, True)

        return privacy.private_gradient(rule, client, k, gradient, params, self.batch_size, self.block)
