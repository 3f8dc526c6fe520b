"""Private runs of the tiny problem, and the draws behind their noise."""

import jax
import numpy as np

import fedeba_jax
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


def run(name, mode, *, problem=None, rounds=ROUNDS, client_map=maps.mapped, **hparams):
    """The state and diagnostics of a few rounds of the tiny problem; numbers are traced, as in a sweep."""
    problem = problem or tiny()
    key = jax.random.key(KEY)
    numbers = {k: v for k, v in hparams.items() if isinstance(v, float)}
    words = {k: v for k, v in hparams.items() if k not in numbers}

    @jax.jit
    def program(numbers):
        algorithm = problem.algorithm(name, privacy=mode, **words, **numbers)
        state = algorithm.init(key, problem.model.init, problem.sizes)
        return fedeba_jax.run_rounds(
            algorithm, problem.federation, state, key, 0, rounds=rounds, sizes=problem.sizes, client_map=client_map
        )

    return program(numbers)


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
