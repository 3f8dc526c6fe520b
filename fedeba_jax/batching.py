"""Which of its examples a client visits, and in which order."""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from fedeba_jax import tree
from fedeba_jax.examples import counting, take
from fedeba_jax.tracing import traced_once
from fedeba_jax.types import Batch, Client, LocalData


class Batches(NamedTuple):
    """The batches of a round: positions among the client's examples, [K, B], and which entries count."""

    position: jax.Array
    mask: jax.Array
    num_steps: jax.Array  # K_i; steps beyond it are idle (they exist only with local epochs)


def gather(data: LocalData, position: jax.Array, mask: jax.Array) -> Batch:
    """The client's examples at these positions."""
    row = data.rows[position]
    return Batch(take(data.x, row), data.y[row], mask.astype(jnp.result_type(float)))


def steps_per_epoch(num_examples: jax.Array, batch_size: int | None) -> jax.Array:
    """How many batches one pass over the data takes."""
    if batch_size is None:
        return jnp.ones_like(num_examples)
    return jnp.maximum(1, -(-num_examples // batch_size))


def permuted(client: Client, steps: int, num_steps: jax.Array, batch_size: int) -> Batches:
    """Batches from a fresh permutation of the client's data in each epoch; they depend on its key and size alone.

    A smaller last batch is kept, then the next permutation begins. A client with fewer examples than a batch uses all
    of them in every step.

    Args:
      client: whose data.
      steps: K, the number of batches (static).
      num_steps: K_i, how many of them this client uses.
      batch_size: B, at most the client's capacity.
    """
    count, capacity = client.data.num_examples, client.data.capacity
    per_epoch = steps_per_epoch(count, batch_size)
    step = jnp.arange(steps)[:, None]
    place = (step % per_epoch) * batch_size + jnp.arange(batch_size)[None]  # within the epoch, [K, B]
    slot = jnp.minimum(place, capacity - 1)

    def epoch(e: jax.Array, position: jax.Array) -> jax.Array:
        bits = jax.random.bits(jax.random.fold_in(client.key, e), (capacity,), jnp.uint32)
        order = jnp.argsort(jnp.where(jnp.arange(capacity) < count, bits, ~jnp.uint32(0)))
        return jnp.where(step // per_epoch == e, order[slot].astype(position.dtype), position)

    # Whoever holds at most one batch needs no permutation beyond the first.
    epochs = jnp.where(count <= batch_size, 1, -(-num_steps // per_epoch))
    position = jax.lax.fori_loop(0, epochs, epoch, jnp.zeros((steps, batch_size), jnp.int32))
    whole = jnp.minimum(jnp.arange(batch_size), jnp.maximum(count - 1, 0))[None]
    position = jnp.where(count <= batch_size, whole.astype(position.dtype), position)
    return Batches(position, place < count, num_steps)


def empty(steps: int, num_steps: jax.Array) -> Batches:
    """Batches without examples, for steps that choose their examples otherwise."""
    nothing = jnp.zeros((steps, 0), jnp.int32)
    return Batches(nothing, nothing, num_steps)


class Blocks(NamedTuple):
    """A client's data cut into blocks of equal size, the last one filled up with masked examples."""

    number: int
    size: int
    batch: Callable[[Any], Batch]  # the number of a block -> its examples


def even_blocks(count: int, most: int) -> tuple[int, int]:
    """How many blocks of at most so many examples there are, and how many examples each has."""
    blocks = max(1, math.ceil(count / most))
    return blocks, math.ceil(count / blocks)


def blocks_of(client: Client, most: int) -> Blocks:
    """The client's data in blocks of at most so many examples."""
    num_examples, capacity = client.data.num_examples, client.data.capacity
    blocks, size = even_blocks(capacity, most)

    def batch(b: Any) -> Batch:
        position = b * size + jnp.arange(size)
        return gather(client.data, jnp.minimum(position, capacity - 1), position < num_examples)

    return Blocks(blocks, size, batch)


def num_targets(data: LocalData) -> jax.Array:
    """How many targets of the client count: one for each example, or several where examples are sequences."""
    if data.y.ndim == 1:
        return data.num_examples
    own = jnp.arange(data.capacity) < data.num_examples
    return jnp.maximum(counting(data.y[data.rows], own).sum(), 1)


def mean_over_data(client: Client, function: Callable[[Batch], Any], block: int) -> Any:
    """Mean over the client's targets of `function` (itself a mean over a batch), block by block."""
    count = num_targets(client.data)
    blocks, function = blocks_of(client, block), traced_once(function)

    def add(b: jax.Array, total: Any) -> Any:
        batch = blocks.batch(b)
        share = counting(batch.y, batch.mask).sum() / count
        return jax.tree.map(lambda t, v: t + share.astype(v.dtype) * v, total, function(batch))

    if blocks.number == 1:
        return function(blocks.batch(0))
    zeros = tree.zeros_like(jax.eval_shape(lambda: function(blocks.batch(0))))
    return jax.lax.fori_loop(0, -(-client.data.num_examples // blocks.size), add, zeros)
