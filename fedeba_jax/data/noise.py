"""Wrong labels: symmetric flips of training labels, from labels, a rate and a seed alone.

Data is dealt to clients by the true labels, and held-out test examples keep theirs; what is returned
is a new vector, so the true labels stay where they were.
"""

import numpy as np

STREAM = 1
"""Spawn key of the noise: flips and partition of one seed are independent draws."""


def flip_symmetric(
    labels: np.ndarray,
    *,
    rate: float,
    num_classes: int,
    seed: int,
    rows: np.ndarray | None = None,
    exact_per_class: bool = True,
) -> np.ndarray:
    """Labels of which a share `rate` is replaced, each by one of the other num_classes - 1 at random.

    Args:
      labels: true labels [N] in 0, ..., num_classes - 1.
      rate: epsilon, in [0, 1].
      num_classes: classes of the data set.
      seed: of the draw.
      rows: the positions that may be flipped; all if None.
      exact_per_class: flip exactly floor(rate n_c) of the n_c rows of each class (as FedLSR's code does);
        otherwise each row independently with probability `rate`.
    """
    labels = np.asarray(labels)
    if labels.ndim != 1 or not np.issubdtype(labels.dtype, np.integer):
        raise ValueError(f"labels is {labels.dtype}{list(labels.shape)}; give a vector of integers")
    if not 0 <= rate <= 1:
        raise ValueError(f"rate={rate} is not a share; give a number in [0, 1]")
    if num_classes < 2:
        raise ValueError(f"num_classes={num_classes} leaves no other label; give at least 2")
    rng = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(STREAM,)))
    rows = np.arange(len(labels)) if rows is None else np.sort(rows)
    noisy = labels.copy()
    for label in np.unique(labels[rows]):
        own = rows[labels[rows] == label]
        flips = int(rate * len(own) + 1e-9) if exact_per_class else rng.binomial(len(own), rate)  # 0.29 * 100 < 29
        chosen = rng.choice(own, flips, replace=False)
        noisy[chosen] = (label + rng.integers(1, num_classes, flips)) % num_classes
    return noisy
