"""Your own data and your own network, without a file of this package changed.

Data are two flat arrays and, for each client, the list of the rows that it owns. A model is two functions: one makes
parameters from a key, the other makes logits from parameters and inputs. Here ten clients each see points around two
rings; the rings of some clients are shifted, so that one model cannot suit all of them equally well.

Run: .venv/bin/python examples/own_model_and_data.py
"""

import jax
import jax.numpy as jnp
import numpy as np
import optax

import fedeba_jax

CLIENTS, POINTS = 10, 80


def rings(seed):
    """Points x [N, 2] in the plane, the ring y [N] that each is on, and the rows of each client."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 2, CLIENTS * POINTS)
    angle = rng.uniform(0, 2 * np.pi, y.size)
    owner = np.arange(y.size) // POINTS
    x = (1 + y)[:, None] * np.stack([np.cos(angle), np.sin(angle)], axis=1) + rng.normal(0, 0.2, (y.size, 2))
    x[:, 0] += 0.2 * owner  # client 9 is shifted most
    return x.astype(np.float32), y.astype(np.int32), [np.flatnonzero(owner == i) for i in range(CLIENTS)]


def init(key):
    """One hidden layer of 32 units."""
    first, second = jax.random.split(key)
    return {
        "hidden": jax.random.normal(first, (2, 32)),
        "bias": jnp.zeros((1, 32)),
        "out": 0.1 * jax.random.normal(second, (32, 2)),
    }


def apply(params, x):
    """Logits [B, classes] of inputs [B, 2]."""
    return jax.nn.relu(x @ params["hidden"] + params["bias"]) @ params["out"]


model = fedeba_jax.Model(init, apply)
train, test = fedeba_jax.federate(*rings(seed=0)), fedeba_jax.held_out(fedeba_jax.federate(*rings(seed=1)))
sizes = fedeba_jax.sizes_of(train, model.init, cohort_size=5)
local = fedeba_jax.LocalTraining(fedeba_jax.cross_entropy(model), learning_rate=0.05, steps=5, batch_size=20)
algorithm = fedeba_jax.fedeba(local, fedeba_jax.descent(optax.sgd(1.0)), tau=1.0)


@jax.jit
def run(train, test, key):
    return fedeba_jax.simulate(
        algorithm, train, model.init, key, sizes=sizes, rounds=200, eval_every=50, test=test, apply=model.apply
    )


state, info, scores = run(train, test, jax.random.key(0))
for done, accuracy in zip((50, 100, 150, 200), scores["global"].accuracy, strict=True):
    print(f"round {done}: mean accuracy {accuracy.mean():.1f} %, worst client {accuracy.min():.1f} %")
