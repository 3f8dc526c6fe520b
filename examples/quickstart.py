"""FedAvg and FedEBA+ on 50 clients with embedded images. Run: .venv/bin/python examples/quickstart.py"""

import jax
import optax

import fedeba_jax
from fedeba_jax.data import partition, sources

data = sources.load("fashion_mnist_mini")  # images that come with the package
clients = partition.split_by_shards(data.y_train, data.y_test, num_clients=50, seed=0)
train = fedeba_jax.federate(data.x_train, data.y_train, clients.train)
test = fedeba_jax.held_out(fedeba_jax.federate(data.x_test, data.y_test, clients.test))
model = fedeba_jax.make_model("mlp", data.name, data.x_train.shape[1:], data.num_classes)
sizes = fedeba_jax.sizes_of(train, model.init, cohort_size=5)
local = fedeba_jax.LocalTraining(fedeba_jax.cross_entropy(model), learning_rate=0.1, steps=10, batch_size=50)
server = fedeba_jax.descent(optax.sgd(1.0))
algorithms = {"fedavg": fedeba_jax.fedavg(local, server), "fedeba_plus": fedeba_jax.fedeba_plus(local, server, tau=0.5)}


def run(algorithm, train, test, key):
    return fedeba_jax.simulate(
        algorithm, train, model.init, key, sizes=sizes, rounds=40, eval_every=20, test=test, apply=model.apply
    )


for name, algorithm in algorithms.items():
    state, info, scores = jax.jit(run, static_argnums=0)(algorithm, train, test, jax.random.key(0))
    figures = fedeba_jax.metrics.summarize(scores["global"].accuracy[-1])  # of all clients, after the last round
    print(name, {key: round(float(figures[key]), 1) for key in ("mean", "variance", "worst5", "best5")})
