"""One round of the tiny problem as a program, compiled once for all laws and twins that need it.

Compilation is what these tests cost. So a program takes the cohort, the data, the round and the hyper-parameters as
arguments, and is cached by algorithm and map.
"""

import functools

import jax
import numpy as np

import fedeba_jax
from fedeba_jax import client_map as maps
from fedeba_jax.hyperparameters import hyperparameters
from tests.support.problems import tiny

MAPS = {
    "map": lambda: maps.mapped,
    "vmap": lambda: jax.vmap,
    "chunked": lambda: maps.chunked(3),
    "sharded": lambda: maps.sharded(maps.device_mesh()),
    "sharded_vmap": lambda: maps.sharded(maps.device_mesh(), jax.vmap),
}
COHORT = 5  # divides neither by the chunks of 3 nor by the 2 shards
IDS = np.array([2, 0, 5, 3, 1])
KEY = 11
SMALL = {  # static hyper-parameters that keep the laws cheap, and let a few rounds show everything
    "fedfv": {"window": 2},
    "lp_proj": {"dim": 4, "outer": 2, "inner": 2},
    "rank_core_fed": {"candidates": 3},
}


def exactly(ids):
    """The given cohort in whatever round: a program takes it as data."""
    return lambda key, round_, sizes: ids


def one_round(name, client_map, cohort_size=COHORT, static=None, **changes):
    """(state, ids, round, rate, hparams, federation) -> (state, info), not compiled."""
    problem, given = tiny(cohort_size, **changes), dict(SMALL.get(name, {}) if static is None else static)

    def run(state, ids, round_, rate, hparams, federation):
        algorithm = problem.algorithm(name, rate=rate, **given, **hparams)
        return fedeba_jax.run_round(
            algorithm, federation, state, jax.random.key(KEY), round_,
            sizes=problem.sizes, client_map=client_map, sample=exactly(ids),
        )  # fmt: skip

    return run


def program(name, map_name="vmap", x64=True, options=None, cohort_size=COHORT, static=None, epochs=None):
    """The same, compiled; what is static and not given has its default, or what `SMALL` has."""
    known = hyperparameters(fedeba_jax.ALGORITHMS[name]).values()
    usual = {h.name: h.default for h in known if not h.traced}
    given = usual | (SMALL.get(name, {}) if static is None else static)
    return _program(name, map_name, x64, options, cohort_size, tuple(sorted(given.items())), epochs)


@functools.cache
def _program(name, map_name, x64, options, cohort_size, static, epochs):
    del x64  # a part of the cache's key
    run = one_round(name, MAPS[map_name](), cohort_size, static, epochs=epochs)
    return jax.jit(run, compiler_options=dict(options) if options else None)
