"""Six clients with ragged data, one by one: what a client computes, without a round around it."""

import jax
import jax.numpy as jnp
import numpy as np

from fedeba_jax import LocalTraining
from fedeba_jax.data.federation import index_table
from fedeba_jax.objectives import masked_mean
from fedeba_jax.types import Client, LocalData

COUNTS = np.array([7, 3, 12, 5, 9, 1])
STARTS = np.concatenate([[0], np.cumsum(COUNTS)[:-1]])
VALUES = np.random.default_rng(0).normal(size=(COUNTS.sum(), 2))
LABELS = np.random.default_rng(1).integers(0, 3, len(VALUES))
CENTRES = np.array([(-1.0, 0.0), (1.0, 0.0), (0.0, 1.0)])
KEY = jax.random.key(5)


def distance(params, batch, key, round_, train):
    """Mean of |z - x|^2 / 2: its gradient is z minus the mean example."""
    return masked_mean(0.5 * ((params[None] - batch.x) ** 2).sum(-1), batch.mask.astype(params.dtype))


LOCAL = LocalTraining(objective=distance, learning_rate=0.1, steps=7, batch_size=4, block=5)


def client(i=0, capacity=12, round_=0):
    """Client i of the federation with COUNTS examples; a smaller capacity holds the same examples."""
    owned = [np.arange(start, start + count)[:capacity] for start, count in zip(STARTS, COUNTS, strict=True)]
    table, count = (jnp.asarray(a)[i] for a in index_table(owned, capacity))
    data = LocalData(jnp.asarray(VALUES), jnp.zeros(len(VALUES), int), table, count)
    return Client(jnp.asarray(i), KEY, data, (), jnp.asarray(round_))


def examples(i):
    return VALUES[STARTS[i] : STARTS[i] + COUNTS[i]]


def drawn(local, of):
    """The batches of a client as lists of positions, one for each step that it takes."""
    position, mask, steps = jax.tree.map(np.asarray, jax.jit(local.batches)(of))
    return [position[k][mask[k].astype(bool)].tolist() for k in range(steps)]


def nearest(params, x):
    """Logits of three classes; example x is of the class of its nearest row of params."""
    return -((x[:, None] - params[None]) ** 2).sum(-1)


def labelled(i):
    """The client with LABELS."""
    of = client(i)
    return of._replace(data=of.data._replace(y=jnp.asarray(LABELS)))
