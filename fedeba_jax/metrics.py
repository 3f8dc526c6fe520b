"""Summaries of client accuracies: how good, and how fair."""

import chex
import jax
import jax.numpy as jnp


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
