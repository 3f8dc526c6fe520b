"""Rounds under an attack on a tiny problem."""

import jax

import fedeba_jax
from tests.support.problems import tiny


def rounds_under(attack, method, *, rounds=1, server=None, cohort_size=5, steps=3, **hparams):
    """State and diagnostics under an attack, which a function makes of a traced number."""
    problem, key = tiny(cohort_size, steps=steps), jax.random.key(0)
    algorithm = problem.algorithm(method, server=server, **hparams)

    @jax.jit
    def run(number):
        return fedeba_jax.run_rounds(
            algorithm, problem.federation, problem.start(algorithm, key), key, 0,
            rounds=rounds, sizes=problem.sizes, client_map=jax.vmap, attack=attack(number),
        )  # fmt: skip

    return run
