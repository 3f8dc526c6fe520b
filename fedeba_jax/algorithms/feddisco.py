"""FedDisco (Ye et al. 2023, "FedDisco: Federated Learning with Discrepancy-Aware Collaboration").

Notes:
  Labels never change, so a histogram need be sent only once; here clients send it in every round, which
  costs as many numbers as there are classes, and is counted. It tells the server about a client's labels.
  The published code defaults to a = 0.5 and KL; defaults here are those of the FedEBA+ paper. The code fails
  where no term is positive; the weights are the shares of examples then.
"""

from typing import Literal

import jax
import jax.numpy as jnp
from jax.scipy.special import rel_entr

from fedeba_jax.algorithm import diagnose, one_model
from fedeba_jax.cohort import Cohort
from fedeba_jax.examples import counting, take
from fedeba_jax.hyperparameters import NonNegative, Range, check
from fedeba_jax.local import LocalTraining, LocalUpdate
from fedeba_jax.method import method
from fedeba_jax.server import Server, ServerState
from fedeba_jax.types import Algorithm, Client, Info, Params
from fedeba_jax.weights import by_examples, normalised

Metric = Literal["l2", "kl"]


@method(hears_losses=False, logits=True, search={"a": Range(0.01, 1.0), "b": Range(0.01, 1.0)})
def feddisco(
    local: LocalTraining, server: Server, *, a: NonNegative = 0.1, b: NonNegative = 0.1, metric: Metric = "l2"
) -> Algorithm:
    """x_{t+1} = x_t + sum_i p_i Delta_i with p_i ~ relu(n_i - a d_i + b), n_i the client's share of examples.

    Args:
      local: local training; it must know the model's logits.
      server: server optimizer.
      a: how much the discrepancy d_i of a client's labels from uniform ones counts.
      b: offset; a large one is uniform FedAvg.
      metric: "l2", d_i = |D_i - 1/C|, or "kl", KL(D_i, 1/C) divided by its sum over the cohort.
    """
    check("metric", metric, Metric)

    def train(client: Client, x: Params) -> tuple[LocalUpdate, jax.Array]:
        return local.reporting("delta").train(client, x), label_counts(local, client, x)

    def update(state: ServerState, cohort: Cohort) -> tuple[ServerState, Info]:
        reply, counts = cohort.ask(train, state.params)
        p = disco_weights(counts, a, b, metric)
        return server.step(state, reply.delta, p, cohort, local), diagnose(p)

    return one_model(server, update)


def disco_weights(counts: jax.Array, a: NonNegative, b: NonNegative, metric: Metric) -> jax.Array:
    """p_i ~ relu(n_i - a d_i + b) from the clients' label counts [n, C]; n_i if no term is positive."""
    shares = by_examples(counts.sum(1))
    histogram = counts / counts.sum(1, keepdims=True)
    target = jnp.full_like(histogram, 1 / counts.shape[1])
    if metric == "l2":
        distance = jnp.linalg.norm(histogram - target, axis=1)
    else:
        kl = rel_entr(histogram, target).sum(1)
        distance = normalised(kl, jnp.zeros_like(kl))
    return normalised(jax.nn.relu(shares - a * distance + b), shares)


def label_counts(local: LocalTraining, client: Client, params: Params) -> jax.Array:
    """How many of the client's targets are each label that the model can predict, [classes] int32."""
    data = client.data
    labels, own = data.y[data.rows], jnp.arange(data.capacity) < data.num_examples
    num_classes = jax.eval_shape(lambda: local.logits(params, take(data.x, data.rows[:1]))).shape[-1]
    weights = counting(labels, own).astype(jnp.int32)
    return jax.ops.segment_sum(weights.ravel(), labels.ravel(), num_classes)
