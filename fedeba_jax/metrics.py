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


# Every number of an evaluation: those of `summarize`, and three that also need losses or numbers of examples.
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
    "pooled_accuracy": Measure("pooled acc. %", 2, True),
    "loss": Measure("loss", 4, False),
    "loss_std": Measure("loss std", 4, False),
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
    }
