"""The tiny problem as the NumPy twins take it: the same start, data, rates, and draws of the fast code."""

import functools

import jax
import numpy as np

import fedeba_jax
from fedeba_jax.rounds import round_keys
from fedeba_jax.types import Client, LocalData
from tests.twins import Problem

ROUNDS = 5


def drawn(problem, key, epochs=None):
    """The batches that the fast code draws for all clients, as the twin takes them."""
    draw = drawing(problem.steps, problem.batch_size, epochs, jax.config.jax_enable_x64)
    clients = range(problem.sizes.num_clients)
    drawn = draw(key, problem.federation, np.arange(ROUNDS), np.array(clients))
    position, mask, steps = jax.tree.map(np.asarray, drawn)
    return [{i: [position[t, i, k][mask[t, i, k]] for k in range(steps[t, i])] for i in clients} for t in range(ROUNDS)]


@functools.cache
def drawing(steps, batch_size, epochs, x64):
    """The program behind `drawn`."""
    del x64  # a part of the cache's key
    local = fedeba_jax.LocalTraining(
        objective=None, learning_rate=0.0, steps=steps, batch_size=batch_size, epochs=epochs
    )

    def one(key, federation, t, i):
        _, clients, _ = round_keys(key, t)
        data = LocalData(federation.x, federation.y, federation.rows[i], federation.num_examples[i])
        return local.batches(Client(i, jax.random.fold_in(clients, i), data, (), t))

    over_clients = jax.vmap(one, in_axes=(None, None, None, 0))
    return jax.jit(jax.vmap(over_clients, in_axes=(None, None, 0, None)))


def as_twin_problem(problem, key, cohorts, epochs=None):
    index, count = np.asarray(problem.federation.rows), np.asarray(problem.federation.num_examples)
    x, y = np.asarray(problem.federation.x, np.float64) / 255, np.asarray(problem.federation.y)
    data = [(x[row[:c]], y[row[:c]]) for row, c in zip(index, count, strict=True)]
    return Problem(
        params=to_numpy(problem.model.init(key)), data=data, cohorts=cohorts.tolist(),
        batches=drawn(problem, key, epochs),
        learning_rate=lambda t: problem.rate * 0.9**t,
    )  # fmt: skip


def to_numpy(model):
    return [tuple(np.asarray(leaf) for leaf in layer) for layer in model]
