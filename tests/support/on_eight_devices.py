"""Rows of clients on eight devices, read and written, alone and under vmap: an error if one is not as it should be.

python -m tests.support.on_eight_devices
"""

import jax
import jax.numpy as jnp
import numpy as np

from fedeba_jax import client_map as maps
from fedeba_jax import ownership, tree
from fedeba_jax.types import State

DEVICES = 8
SIZES = [(33, 17), (9, 3)]  # clients, and how many of them are in a cohort: several of a device, or one


def exchange(clients):
    """(what is kept, ids, new rows in the order of ids) -> seats, the rows that a cohort reads, what it leaves."""
    client_map = maps.sharded(maps.device_mesh())

    def run(kept, ids, values):
        held = ownership.padded(client_map, State((), kept)).clients
        seats = ownership.seated(ownership.ordered(ids, clients, DEVICES), clients, DEVICES)
        found = ownership.rows(client_map, seats, held)
        rank = jnp.searchsorted(jnp.sort(ids), seats.id)
        return (
            seats,
            found,
            ownership.cropped(ownership.set_rows(client_map, seats, held, tree.rows(values, rank)), kept),
        )

    return run


def check(clients, n):
    """Cohorts that are drawn, and those of the first and of the last devices, whose rows travel most."""
    rng = np.random.default_rng(n)
    kept = {
        "model": rng.normal(size=(clients, 3, 2)).astype(np.float32),
        "half": jnp.asarray(rng.normal(size=(clients, 2)), jnp.bfloat16),
        "seen": rng.integers(0, 2, (clients, 4)).astype(bool),
        "number": np.arange(clients, dtype=np.int32),
    }
    values = jax.tree.map(lambda leaf: leaf[:n][::-1], kept)
    drawn = [rng.permutation(clients)[:n] for _ in range(3)]
    cohorts = np.array([*drawn, np.arange(n), np.arange(clients - n, clients)])
    one, several = jax.jit(exchange(clients)), jax.jit(jax.vmap(exchange(clients), in_axes=(None, 0, None)))
    together = jax.block_until_ready(several(kept, cohorts, values))
    for i, ids in enumerate(cohorts):
        seats, found, after = alone = jax.block_until_ready(one(kept, ids, values))
        same(found, tree.rows(kept, np.asarray(seats.id)))
        same(after, tree.set_rows(jax.tree.map(jnp.asarray, kept), np.sort(ids), values))
        same(tree.rows(together, i), alone)


def same(one, other):
    jax.tree.map(np.testing.assert_array_equal, one, other)


if __name__ == "__main__":
    jax.config.update("jax_num_cpu_devices", DEVICES)
    for size in SIZES:
        check(*size)
