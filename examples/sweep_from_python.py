"""A sweep over temperatures and seeds from Python: six runs, one compilation.

`make_run` builds the algorithm from numbers that JAX traces, so no value of tau compiles anything anew. `sweep` maps
it over the stacked points. The binary `experiments.sweep` does the same, and adds files, resuming and tables.

Run: .venv/bin/python examples/sweep_from_python.py
"""

import jax
import jax.numpy as jnp
import optax

import fedeba_jax
from fedeba_jax.data import partition, sources

TAUS, SEEDS = (0.3, 1.0, 10.0), (0, 1)

data = sources.load("fashion_mnist_mini")
clients = partition.split_by_shards(data.y_train, data.y_test, num_clients=50, seed=0)
train = fedeba_jax.federate(data.x_train, data.y_train, clients.train)
test = fedeba_jax.held_out(fedeba_jax.federate(data.x_test, data.y_test, clients.test))
model = fedeba_jax.make_model("mlp", data.name, data.x_train.shape[1:], data.num_classes)
sizes = fedeba_jax.sizes_of(train, model.init, cohort_size=5)
local = fedeba_jax.LocalTraining(fedeba_jax.cross_entropy(model), learning_rate=0.1, steps=10, batch_size=50)
compilations = 0


def make_run(tau, seed, train, test):
    """Accuracy of each client after each evaluation, [evaluations, M]."""
    global compilations
    compilations += 1  # Python runs this line only when JAX traces the function
    algorithm = fedeba_jax.fedeba(local, fedeba_jax.descent(optax.sgd(1.0)), tau=tau)
    _, _, scores = fedeba_jax.simulate(
        algorithm,
        train,
        model.init,
        jax.random.key(seed),
        sizes=sizes,
        rounds=20,
        eval_every=10,
        test=test,
        apply=model.apply,
    )
    return scores["global"].accuracy


@jax.jit
def run_all(taus, seeds, train, test):
    return fedeba_jax.sweep(make_run, (taus, seeds), shared=(train, test))


taus, seeds = (grid.ravel() for grid in jnp.meshgrid(jnp.array(TAUS), jnp.array(SEEDS), indexing="ij"))
accuracy = run_all(taus, seeds, train, test)[:, -1]  # [runs, M], after the last round
for tau, of_seeds in zip(TAUS, accuracy.reshape(len(TAUS), len(SEEDS), -1), strict=True):
    variance = jnp.mean(jnp.var(of_seeds, axis=1))
    print(f"tau {tau:4}: mean accuracy {of_seeds.mean():.1f} %, variance {variance:.0f} (mean of {len(SEEDS)} seeds)")
print(f"{len(taus)} runs, traced {compilations} time{'s' * (compilations != 1)}")
