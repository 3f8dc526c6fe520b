"""Synthetic(alpha, beta) of FedProx (Li et al. 2020, "Federated Optimization in Heterogeneous Networks")."""

import numpy as np

from fedeba_jax.data.sources.registry import Dataset
from fedeba_jax.data.synthetic.making import at_least, made, owners

FEATURES, LABELS = 60, 10


def logistic(alpha: float = 1.0, beta: float = 1.0, clients: int = 30, seed: int = 0) -> Dataset:
    """Clients that see and label things in their own way: 60 features, 10 labels, sizes with a heavy tail.

    Of client k:  x ~ N(v_k, diag(j^-1.2)),  y = argmax(x W_k + b_k),  with entries of v_k ~ N(B_k, 1) and of W_k and
    b_k ~ N(u_k, 1), where B_k ~ N(0, beta^2) and u_k ~ N(0, alpha^2); it has 50 + LogNormal(4, 2) examples.

    Args:
      alpha: part of the set's name in the literature, without effect (see the notes).
      beta: how much inputs differ, beyond what v_k alone does.
      clients: their number.
      seed: of everything.

    Notes:
      As in the authors' code, where alpha and beta are standard deviations. u_k adds the same number to the scores of
      all labels, so alpha changes no label: classifiers differ between clients at any alpha. There is no test set: 20 %
      of each client's examples are held out, where the authors hold out 10 %.
    """
    at_least(0, alpha=alpha, beta=beta)
    at_least(1, clients=clients)
    rng = np.random.default_rng(seed)
    counts = 50 + rng.lognormal(4, 2, clients).astype(np.int64)
    u, big_b = rng.normal(0, alpha, clients), rng.normal(0, beta, clients)
    v = rng.normal(big_b[:, None], 1, (clients, FEATURES))
    deviation = np.arange(1, FEATURES + 1) ** -0.6
    x, y = [], []
    for k in range(clients):
        weights, bias = rng.normal(u[k], 1, (FEATURES, LABELS)), rng.normal(u[k], 1, (1, LABELS))
        seen = rng.normal(v[k], deviation, (counts[k], FEATURES))
        x.append(seen.astype(np.float32))
        y.append(np.argmax(seen @ weights + bias, axis=1).astype(np.int32))
    arrays = {"x_train": np.concatenate(x), "y_train": np.concatenate(y), "client_train": owners(counts)}
    arguments = {"alpha": alpha, "beta": beta, "clients": clients, "seed": seed}
    return made("synthetic_logistic", arguments, LABELS, arrays)
