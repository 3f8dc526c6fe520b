"""A cohort of three clients of the tiny problem, for single exchanges without an algorithm around them."""

import jax
import jax.numpy as jnp

from fedeba_jax import client_map as maps
from fedeba_jax import tree
from fedeba_jax.cohort import Cohort
from fedeba_jax.ownership import seated
from tests.support.problems import tiny

PROBLEM = tiny(cohort_size=3)
X = {"w": jnp.arange(4.0), "b": jnp.array([1.0, -1.0])}  # 6 numbers


def cohort(client_map=jax.vmap, model_size=6):
    ids = jnp.array([4, 0, 2])
    return Cohort(
        seats=seated(ids, 6, 1), key=jax.random.key(0), client_keys=jax.random.split(jax.random.key(1), 3),
        state=10 * ids, round=jnp.asarray(7), federation=PROBLEM.federation, client_map=client_map,
        num_clients=PROBLEM.sizes.num_clients, model_size=model_size,
    )  # fmt: skip


def counted(of):
    return {name: int(value) for name, value in of.traffic.items()}


def scaled(client, params, **context):
    """Depends on the client, has the shape of a model."""
    return tree.scale(client.data.num_examples, params)


MAPS = {"vmap": jax.vmap, "mapped": maps.mapped, "sharded": maps.sharded(maps.device_mesh())}
