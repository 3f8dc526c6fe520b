"""A few rounds over all devices of several processes: one of these processes, for tests.

    python -m tests.support.over_processes PORT PROCESS PROCESSES DEVICES FILE

The first one writes the models to the file.
"""

import sys

import jax
import numpy as np

from fedeba_jax import client_map as maps
from fedeba_jax.server import SERVERS
from tests.support.problems import tiny

SETTINGS = {
    "fedavg": ("fedavg", "sgd", {}),
    "fedeba_plus": ("fedeba_plus", "sgd", {"theta": 20.0}),
    "ditto": ("ditto", "sgd", {}),
    "fedfv": ("fedfv", "sgd", {"window": 2}),
    "fedeba_plus, varp": ("fedeba_plus", "varp", {"theta": 20.0}),
}


def models(client_map, rounds=5):
    """The parameters, and what clients keep, after some rounds: [setting, leaf]."""
    found = {}
    for setting, (name, server, hparams) in SETTINGS.items():
        problem = tiny(cohort_size=5)
        algorithm = problem.algorithm(name, server=SERVERS[server](1.0), **hparams)

        @jax.jit
        def train(seed, problem=problem, algorithm=algorithm):
            return problem.train(algorithm, jax.random.key(seed), rounds=rounds, client_map=client_map)[0]

        state = train(np.uint32(3))
        leaves = jax.tree.leaves((state.server.params, state.clients))
        whole = jax.jit(lambda *leaves: leaves, out_shardings=maps.replicated(maps.device_mesh()))(*leaves)
        found |= {f"{setting} {i}": np.asarray(leaf) for i, leaf in enumerate(whole)}
    return found


def in_both_precisions(client_map):
    """In float64 after five rounds; in float32, where rounding grows, after one."""
    with jax.enable_x64(True):
        exact = models(client_map())
    rounded = models(client_map(), rounds=1)
    return exact | {f"float32 {name}": value for name, value in rounded.items()}


def main(port, process, processes, devices, file):
    jax.config.update("jax_num_cpu_devices", int(devices))
    jax.distributed.initialize(f"127.0.0.1:{port}", int(processes), int(process))
    found = in_both_precisions(lambda: maps.sharded(maps.device_mesh()))
    if process == "0":
        np.savez(file, **found)


if __name__ == "__main__":
    main(*sys.argv[1:])
