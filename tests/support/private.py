"""Private runs of the tiny problem, and the draws behind their noise."""

import jax
import numpy as np

from fedeba_jax import client_map as maps
from fedeba_jax import privacy
from fedeba_jax.rounds import round_keys
from fedeba_jax.types import Client, LocalData
from tests.support.problems import tiny

INF = float("inf")
ROUNDS = 2
KEY = 5


def numpy(tree):
    return jax.tree.map(np.asarray, tree)


def close(fast, slow, tolerance=1e-8):
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=tolerance, rtol=0), fast, slow)


def run(name, mode, *, sigma=None, problem=None, rounds=ROUNDS, client_map=maps.mapped, **hparams):
    """The state and diagnostics of a few rounds of the tiny problem; numbers are traced, as in a sweep.

    With `sigma`, which is then traced too, `mode` makes the mode of it. Runs that differ in numbers alone, under one
    and the same mode, share a program.
    """
    problem = problem or tiny()
    numbers = {k: v for k, v in hparams.items() if isinstance(v, float)}
    words = {k: v for k, v in hparams.items() if k not in numbers}
    sizes = (problem.sizes, problem.steps, problem.batch_size, problem.epochs)
    setting = (name, mode, sigma is None, tuple(words.items()), sizes, rounds, client_map, jax.config.jax_enable_x64)
    if setting not in PROGRAMS:
        PROGRAMS[setting] = program(name, mode, words, problem, rounds, client_map)
    return PROGRAMS[setting](numbers, sigma)


PROGRAMS = {}


def program(name, mode, words, problem, rounds, client_map):
    @jax.jit
    def run(numbers, sigma):
        made = mode if sigma is None else mode(sigma)
        algorithm = problem.algorithm(name, privacy=made, **words, **numbers)
        return problem.train(algorithm, jax.random.key(KEY), rounds=rounds, client_map=client_map)

    return run


def server_noise(problem, rounds=ROUNDS):
    """N(0, I) that the server draws in each round."""
    params = problem.model.init(jax.random.key(0))
    keys = [round_keys(jax.random.key(KEY), t)[2] for t in range(rounds)]
    return [numpy(privacy.noise(jax.random.fold_in(key, privacy.KEY), params)) for key in keys]


def client_of(problem, t, i, key=KEY):
    federation = problem.federation
    shard = LocalData(federation.x, federation.y, federation.rows[i], federation.num_examples[i])
    clients = round_keys(jax.random.key(key), t)[1]
    return Client(i, jax.random.fold_in(clients, i), shard, (), t)
