"""Summaries of client accuracies: how good, and how fair."""

from typing import NamedTuple

import chex
import jax
import jax.numpy as jnp


class Measure(NamedTuple):
    """How a number of an evaluation is shown, and which way is better."""

    title: str
    digits: int
    higher_is_better: bool


# Every number of an evaluation: those of `summarize`, and those that also need losses or numbers of examples.
MEASURES = {
    "mean": Measure("global acc. %", 2, True),
    "variance": Measure("variance", 2, False),
    "worst5": Measure("worst 5 %", 2, True),
    "best5": Measure("best 5 %", 2, True),
    "cv": Measure("C_V", 4, False),
    "angle": Measure("angle °", 2, False),
    "std": Measure("std", 2, False),
    "kl": Measure("KL", 4, False),
    "entropy": Measure("entropy", 4, True),
    "jain": Measure("Jain", 4, True),
    "gini": Measure("Gini", 4, False),
    "noise": Measure("test noise", 2, False),
    "pooled_accuracy": Measure("pooled acc. %", 2, True),
    "loss": Measure("loss", 4, False),
    "loss_std": Measure("loss std", 4, False),
    "loss_variance": Measure("loss var.", 4, False),
}
SHOWN = ("mean", "variance", "worst5", "best5", "cv", "angle")  # in tables, unless others are asked for


def summarize(accuracies: jax.Array) -> dict[str, jax.Array]:
    """Accuracy and fairness of m clients (accuracies in percent; population statistics).

    Returns:
      mean: unweighted over clients, the paper's "Global Acc.".
      variance, std: in percentage points squared, and points.
      worst5, best5: mean of the max(1, int(0.05 m)) lowest and highest clients.
      cv: coefficient of variation std / mean (infinite if all are 0).
      angle: between the accuracy vector and the all-ones vector, degrees: arctan(cv).
      kl: KL(a / sum a || uniform) in nats; entropy: log m - kl.
      jain: Jain's index (sum a)^2 / (m sum a^2).
      gini: Gini's coefficient, the mean of |a_i - a_j| over all pairs, divided by twice the mean.
    """
    accuracies = jnp.asarray(accuracies, jnp.result_type(float))
    chex.assert_rank(accuracies, 1)
    m = accuracies.size
    k = max(1, int(0.05 * m))
    ordered = jnp.sort(accuracies)
    mean, std = accuracies.mean(), accuracies.std()
    nothing = mean == 0  # every client at 0 %: maximally bad, and no NaN into the logs
    share = jnp.where(nothing, 1 / m, accuracies / jnp.where(nothing, 1, accuracies.sum()))
    kl = jnp.maximum(0, jax.scipy.special.xlogy(share, m * share).sum())
    ranks = 2 * jnp.arange(1, m + 1) - m - 1
    gini = jnp.where(nothing, 0, (ranks * ordered).sum() / (m * m * jnp.where(nothing, 1, mean)))
    cv = jnp.where(nothing, jnp.inf, std / jnp.where(nothing, 1, mean))
    return {
        "mean": mean,
        "variance": accuracies.var(),
        "std": std,
        "worst5": ordered[:k].mean(),
        "best5": ordered[-k:].mean(),
        "cv": cv,
        "angle": jnp.degrees(jnp.arctan(cv)),
        "kl": kl,
        "entropy": jnp.log(m) - kl,
        "jain": 1 / (1 + cv**2),
        "gini": gini,
    }


def sampling_noise(accuracies: jax.Array, num_examples: jax.Array) -> jax.Array:
    """The part of the variance over clients that comes from testing each of them on few examples.

    A client of true accuracy p_i that is tested on n_i examples shows p_i plus noise of variance p_i (1 - p_i) / n_i.
    The expected variance of what m clients show is the variance of p plus (1 - 1/m) times the mean of these. Here
    p_i (1 - p_i) / n_i is estimated without bias by a_i (1 - a_i) / (n_i - 1), with a_i the measured accuracy.

    Args:
      accuracies: a_i in percent, [m].
      num_examples: n_i, [m]; a client with one test example tells nothing of its own noise, and counts as without.

    Returns:
      The noise in percentage points squared, as the variance is.
    """
    accuracies = jnp.asarray(accuracies, jnp.result_type(float))
    chex.assert_rank(accuracies, 1)
    m, n = accuracies.size, jnp.asarray(num_examples)
    return (1 - 1 / m) * (accuracies * (100 - accuracies) / jnp.maximum(n - 1, 1)).mean()
