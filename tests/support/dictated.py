"""A problem whose losses and updates are given as numbers; its model can show the weights of the clients."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax

import fedeba_jax
from fedeba_jax.hyperparameters import hyperparameters
from fedeba_jax.objectives import masked_mean
from fedeba_jax.types import Federation, Sizes


def play(name, losses, *, cohorts=None, counts=None, labels=None, moves=None, rate=1.0, **hparams):
    """Rounds with losses [T, M] (or [M], one round): how the model moves in each, and the states after them.

    Client i moves by 1 along axis i of the model, so that the model moves by the weights themselves, [T, M].

    Args:
      name: of the algorithm.
      losses: F_i(x_t); the same for any model.
      cohorts: ids [T, n]; everybody by default.
      counts: examples of each client; 1 by default.
      labels: of each client's examples; 0 by default. The model, of ten classes, predicts 0 always.
      moves: other updates of the clients, [M, d], or [T, M, d].
      rate: of learning; it does not change the updates.
      **hparams: of the algorithm.
    """
    losses = np.atleast_2d(losses)
    rounds, clients = losses.shape
    cohorts = np.tile(np.arange(clients), (rounds, 1)) if cohorts is None else np.asarray(cohorts)
    counts = np.ones(clients, int) if counts is None else np.asarray(counts)
    labels = [np.zeros(count, int) for count in counts] if labels is None else labels
    moves = np.eye(clients) if moves is None else np.asarray(moves, float)
    moves = np.broadcast_to(moves, (rounds, *moves.shape[-2:]))
    federations, dim = [_federation(losses, own / rate, counts, labels) for own in moves], moves.shape[-1]
    sizes = Sizes(clients, cohorts.shape[1], int(counts.max()), dim)
    known = hyperparameters(fedeba_jax.ALGORITHMS[name])
    numbers = {k: float(v) for k, v in hparams.items() if k in known and known[k].traced}
    static = tuple((k, v) for k, v in hparams.items() if k not in numbers)
    step = _program(name, static, sizes, jax.config.jax_enable_x64)
    states = [_algorithm(name, dim, rate, hparams).init(jax.random.key(0), lambda key: jnp.zeros(dim), sizes)]
    for t in range(rounds):
        states.append(step(states[-1], np.asarray(t), cohorts[t], rate, numbers, federations[t]))
    models = np.array([state.server.params for state in states])
    return np.diff(models, axis=0), states[1:]


def _algorithm(name, dim, rate, hparams):
    local = fedeba_jax.LocalTraining(
        objective=_objective(dim), learning_rate=rate, steps=1, batch_size=None,
        apply=lambda params, x: jnp.zeros((x.shape[0], 10)),
    )  # fmt: skip
    return fedeba_jax.ALGORITHMS[name](local, fedeba_jax.descent(optax.sgd(1.0)), **hparams)


@functools.cache
def _program(name, static, sizes, x64):
    """A round, compiled once for all numbers."""
    del x64  # a part of the cache's key

    @jax.jit
    def step(state, t, ids, rate, numbers, federation):
        return fedeba_jax.run_round(
            _algorithm(name, sizes.model_size, rate, dict(static) | numbers), federation, state, jax.random.key(0), t,
            sizes=sizes, client_map=jax.vmap, sample=lambda key, round_, sizes: ids,
        )[0]  # fmt: skip

    return step


def _federation(losses, directions, counts, labels):
    owners = np.repeat(np.arange(len(counts)), counts)
    rows = np.concatenate([directions, losses.T], axis=1)[owners]
    starts = np.concatenate([[0], np.cumsum(counts)[:-1]])
    index = np.minimum(starts[:, None] + np.arange(counts.max()), len(owners) - 1)
    arrays = (rows.astype(jnp.result_type(float)), np.concatenate(labels), index, counts)
    return Federation(*arrays)


def _objective(dim):
    def objective(params, batch, key, round_, train):
        loss = masked_mean(jnp.take(batch.x, dim + round_, axis=1), batch.mask)
        direction = (batch.x[:, :dim] * batch.mask[:, None]).sum(0) / batch.mask.sum()
        return loss - jnp.vdot(direction, params - jax.lax.stop_gradient(params))

    return objective
