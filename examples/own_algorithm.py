"""Your own method: weights proportional to the rank of a client's loss, beside FedAvg.

A method is a factory: it takes what clients can compute (`local`) and how an update becomes the next model (`server`),
and returns an `Algorithm`. Its `update` is one round. `cohort.ask` is the only way to the clients: they compute the
first argument with the rest of the arguments, and their replies come back stacked.

Nothing is registered here. To run a method by name, in sweeps and under all tests, see docs/adding_an_algorithm.md.

Run: .venv/bin/python examples/own_algorithm.py
"""

import jax
import jax.numpy as jnp
import optax

import fedeba_jax
from fedeba_jax.algorithm import diagnose, one_model
from fedeba_jax.data import partition, sources


def rank_weights(local, server, *, power=1.0):
    """x_{t+1} = x_t + sum_i p_i Delta_i with p_i ~ r_i^power, r_i the rank of F_i(x_t): 1 is the smallest loss."""

    def update(state, cohort):
        reply = cohort.ask(local.reporting("delta", "initial_loss").train, state.params)
        rank = 1.0 + jnp.argsort(jnp.argsort(reply.initial_loss))
        p = rank**power / jnp.sum(rank**power)
        return server.step(state, reply.delta, p, cohort, local), diagnose(p, before=reply.initial_loss)

    return one_model(server, update)


data = sources.load("fashion_mnist_mini")
clients = partition.split_by_shards(data.y_train, data.y_test, num_clients=50, seed=0)
train = fedeba_jax.federate(data.x_train, data.y_train, clients.train)
test = fedeba_jax.held_out(fedeba_jax.federate(data.x_test, data.y_test, clients.test))
model = fedeba_jax.make_model("mlp", data.name, data.x_train.shape[1:], data.num_classes)
sizes = fedeba_jax.sizes_of(train, model.init, cohort_size=5)
local = fedeba_jax.LocalTraining(fedeba_jax.cross_entropy(model), learning_rate=0.1, steps=10, batch_size=50)
server = fedeba_jax.descent(optax.sgd(1.0))

algorithms = {"fedavg": fedeba_jax.fedavg(local, server), "rank_weights": rank_weights(local, server, power=2.0)}


def run(algorithm, train, test, key):
    return fedeba_jax.simulate(
        algorithm, train, model.init, key, sizes=sizes, rounds=30, eval_every=15, test=test, apply=model.apply
    )


for name, algorithm in algorithms.items():
    state, info, scores = jax.jit(run, static_argnums=0)(algorithm, train, test, jax.random.key(0))
    figures = fedeba_jax.metrics.summarize(scores["global"].accuracy[-1])
    print(f"{name:12} accuracy {figures['mean']:.1f} %, variance {figures['variance']:.0f}, "
          f"largest weight {info['weight_max'][-1]:.2f}")  # fmt: skip
