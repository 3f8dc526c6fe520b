"""What a client can compute: losses, gradients, and K steps of SGD on its own data."""

import dataclasses
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from optax import GradientTransformationExtraArgs as Transform

from fedeba_jax import privacy, tree
from fedeba_jax.examples import take
from fedeba_jax.schedules import as_schedule
from fedeba_jax.types import Apply, Batch, Client, Objective, Params, Scalar, Schedule, Shard

OBJECTIVE = 2**31
"""Folded into a client's key for its objectives; epochs 0, 1, ... are folded in for its permutations."""


class LocalUpdate(NamedTuple):
    """A client's report; what was not asked for is None, is not computed and not sent."""

    delta: Params = None  # x_K - x_0
    loss: Any = None  # F_i(x_K)
    initial_loss: Any = None  # F_i(x_0), of the model that was sent


class Batches(NamedTuple):
    """Which of its examples a client visits: rows of its shard, [K, B], and which entries count."""

    position: jax.Array
    mask: jax.Array
    num_steps: jax.Array  # K_i; steps beyond it are idle (they exist only with `epochs`)


@dataclasses.dataclass(frozen=True)
class LocalTraining:
    """Local SGD: x <- x - rate(round) * gradient(grad F_i(x; batch)), steps or epochs of it.

    Batches come from a fresh permutation of the client's data; a smaller last batch is kept, then
    the next permutation begins. A client with fewer examples than `batch_size` uses all of them in
    every step.

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
      per_example: if given, DP-SGD: each step takes a Poisson sample of expected size B, clips each example's
        gradient, and adds noise to their sum.
      limits: if given, bounds of the updates and losses that are reported.
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
        if self.steps < 1 or self.block < 1:
            raise ValueError(f"steps={self.steps} and block={self.block} must be at least 1")

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
        return self.epochs * self._steps_per_epoch(num_examples)

    def loss(self, client: Client, params: Params) -> jax.Array:
        """F_i(params) over the local training set, or on the round's last batch (`loss_on`)."""

        def objective(batch: Batch) -> jax.Array:
            return self.objective(params, batch, client.key, client.round, False)

        if self.loss_on == "last_batch" and self.batch_size is not None:
            batches = self.batches(client)
            last = batches.num_steps - 1
            value = objective(gather(client.data, batches.position[last], batches.mask[last]))
        else:
            value = self._mean_over_data(client, objective)
        return value if self.limits is None else self.limits.loss(value)

    def loss_and_grad(self, client: Client, params: Params) -> tuple[jax.Array, Params]:
        """F_i and its gradient at params, over the whole local training set."""
        value, gradient = self._mean_over_data(client, self._value_and_grad(client, params, client.key, train=False))
        return value if self.limits is None else self.limits.loss(value), gradient

    def grad(self, client: Client, params: Params) -> Params:
        return self.loss_and_grad(client, params)[1]

    def correct(self, client: Client, params: Params) -> jax.Array:
        """Which of the client's examples the model classifies correctly, [C] bool; False beyond its count."""
        apply = self._logits()
        blocks, _, batch = self._blocks(client)

        def judge(b: jax.Array) -> jax.Array:
            block = batch(b)
            return (apply(params, block.x).argmax(-1) == block.y) & (block.mask > 0)

        return jax.lax.map(judge, jnp.arange(blocks)).reshape(-1)[: client.data.index.shape[0]]

    def label_counts(self, client: Client, params: Params) -> jax.Array:
        """How many of the client's examples have each label that the model can predict, [classes] int32."""
        shard, capacity = client.data, client.data.index.shape[0]
        labels, mask = shard.y[shard.index], jnp.arange(capacity) < shard.count
        num_classes = jax.eval_shape(lambda: self._logits()(params, take(shard.x, shard.index[:1]))).shape[-1]
        return jax.ops.segment_sum(mask.astype(jnp.int32), labels, num_classes)

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
                value, gradient = self._mean_over_data(client, value_and_grad)
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

    def batches(self, client: Client) -> Batches:
        """The round's batches of this client; they depend on its key and count alone."""
        count, capacity = client.data.count, client.data.index.shape[0]
        num_steps = self.num_steps(count)
        batch_size = min(self.batch_size or capacity, capacity)
        steps = self.steps if self.epochs is None else self.epochs * math.ceil(capacity / batch_size)
        if self.batch_size is None or self.per_example is not None:  # steps that choose their examples otherwise
            nothing = jnp.zeros((steps, 0), jnp.int32)
            return Batches(nothing, nothing, num_steps)
        per_epoch = self._steps_per_epoch(count)
        step = jnp.arange(steps)[:, None]
        place = (step % per_epoch) * batch_size + jnp.arange(batch_size)  # within the epoch, [K, B]
        slot = jnp.minimum(place, capacity - 1)

        def epoch(e: jax.Array, position: jax.Array) -> jax.Array:
            bits = jax.random.bits(jax.random.fold_in(client.key, e), (capacity,), jnp.uint32)
            order = jnp.argsort(jnp.where(jnp.arange(capacity) < count, bits, ~jnp.uint32(0)))
            return jnp.where(step // per_epoch == e, order[slot].astype(position.dtype), position)

        # Whoever holds at most one batch needs no permutation beyond the first.
        epochs = jnp.where(count <= batch_size, 1, -(-num_steps // per_epoch))
        position = jax.lax.fori_loop(0, epochs, epoch, jnp.zeros((steps, batch_size), jnp.int32))
        whole = jnp.minimum(jnp.arange(batch_size), jnp.maximum(count - 1, 0))
        position = jnp.where(count <= batch_size, whole.astype(position.dtype), position)
        return Batches(position, place < count, num_steps)

    def _steps_per_epoch(self, num_examples: jax.Array) -> jax.Array:
        if self.batch_size is None:
            return jnp.ones_like(num_examples)
        return jnp.maximum(1, -(-num_examples // self.batch_size))

    def _blocks(self, client: Client) -> tuple[int, int, Callable[[Any], Batch]]:
        """The client's data in blocks of at most `block` examples: how many, of what size, and block b as a batch."""
        count, capacity = client.data.count, client.data.index.shape[0]
        blocks = math.ceil(capacity / self.block)
        size = math.ceil(capacity / blocks)

        def batch(b: Any) -> Batch:
            position = b * size + jnp.arange(size)
            return gather(client.data, jnp.minimum(position, capacity - 1), position < count)

        return blocks, size, batch

    def _logits(self) -> Apply:
        if self.apply is None:
            raise ValueError("apply=None, but this method looks at predictions: give LocalTraining(apply=model.apply)")
        return self.apply

    def _value_and_grad(
        self, client: Client, params: Params, key: jax.Array, train: bool = True
    ) -> Callable[[Batch], Any]:
        def function(batch: Batch) -> Any:
            return jax.value_and_grad(self.objective)(params, batch, key, client.round, train)

        return function

    def poisson_sample(self, client: Client, k: Any) -> jax.Array:
        """Which of the client's examples step k of private training takes, [C]: each with probability B / N_i."""
        count, capacity = client.data.count, client.data.index.shape[0]
        draws = jax.random.uniform(private_keys(client, k)[0], (capacity,))
        return (draws * count < self._expected_batch(count)) & (jnp.arange(capacity) < count)

    def _expected_batch(self, num_examples: jax.Array) -> jax.Array:
        return num_examples if self.batch_size is None else jnp.minimum(self.batch_size, num_examples)

    def _private_gradient(self, rule: privacy.PerExample, client: Client, params: Params, k: jax.Array) -> Params:
        """(sum_j clip(grad_j) + noise) / L over a Poisson sample of whatever size, L its expectation.

        The sample is worked off in chunks of B, as many as it needs, so no sample is ever cut short.
        """
        count, capacity = client.data.count, client.data.index.shape[0]
        chosen = self.poisson_sample(client, k)
        order = jnp.argsort(~chosen)  # the chosen first
        size = min(self.batch_size or self.block, capacity)
        _, noise_key, objective_key = private_keys(client, k)

        def clipped(x: jax.Array, y: jax.Array, mask: jax.Array, position: jax.Array) -> Params:
            alone = Batch(x[None], y[None], jnp.ones_like(mask)[None])
            key = jax.random.fold_in(objective_key, position)
            gradient = rule.clipped(jax.grad(self.objective)(params, alone, key, client.round, True))
            return tree.scale(mask, gradient)

        def add(b: jax.Array, total: Params) -> Params:
            place = b * size + jnp.arange(size)
            position = order[jnp.minimum(place, capacity - 1)]
            batch = gather(client.data, position, place < chosen.sum())
            chunk = jax.vmap(clipped)(batch.x, batch.y, batch.mask, position)
            return jax.tree.map(lambda t, g: t + g.sum(0), total, chunk)

        total = jax.lax.fori_loop(0, -(-chosen.sum() // size), add, tree.zeros_like(params))
        expected = jnp.maximum(self._expected_batch(count), 1)
        return tree.scale(1.0 / expected, rule.noised(noise_key, total))

    def _mean_over_data(self, client: Client, function: Callable[[Batch], Any]) -> Any:
        """Mean over the client's examples of `function` (itself a mean over a batch), block by block."""
        count = client.data.count
        blocks, size, batch = self._blocks(client)

        def add(b: jax.Array, total: Any) -> Any:
            block = batch(b)
            share = block.mask.sum() / count
            return jax.tree.map(lambda t, v: t + share.astype(v.dtype) * v, total, function(block))

        if blocks == 1:
            return function(batch(0))
        zeros = tree.zeros_like(jax.eval_shape(lambda: function(batch(0))))
        return jax.lax.fori_loop(0, -(-count // size), add, zeros)


def private_keys(client: Client, k: Any) -> jax.Array:
    """Keys of a private step: of its sample, its noise and its objective."""
    return jax.random.split(jax.random.fold_in(jax.random.fold_in(client.key, privacy.KEY), k), 3)


def gather(shard: Shard, position: jax.Array, mask: jax.Array) -> Batch:
    """The examples at these places of a client's shard."""
    row = shard.index[position]
    return Batch(take(shard.x, row), shard.y[row], mask.astype(jnp.result_type(float)))
