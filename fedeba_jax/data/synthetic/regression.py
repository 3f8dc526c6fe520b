"""Linear regression, the setting of the paper's theorem on the fairness of FedEBA+ (its appendix on regression)."""

import numpy as np

from fedeba_jax.data.sources.registry import Dataset
from fedeba_jax.data.synthetic.making import at_least, made, owners


def linear(
    clients: int = 10,
    examples: int = 40,
    features: int = 5,
    scale: float = 1.0,
    spread: float = 1.0,
    noise: float = 0.1,
    seed: int = 0,
) -> Dataset:
    """Clients with a linear law of their own; targets are floats.

    Of client i, with n = `examples`:  y = X_i w_i + N(0, noise^2),  w_i ~ N(0, spread^2 I),  X_i' X_i = n scale I. Test
    data has the same X_i and fresh noise.

    Args:
      clients: their number.
      examples: of each client, at least as many as there are features.
      features: d.
      scale: the theorem's b, the mean square of a feature.
      spread: how much the laws differ.
      noise: standard deviation of what a law does not explain.
      seed: of everything.

    Notes:
      Client i's least-squares solution is X_i' y / (n scale), and the minimiser of sum_i p_i F_i is the p-weighted mean
      of these, so what a method should find is known exactly.
    """
    at_least(1, clients=clients, features=features)
    at_least(features, examples=examples)
    at_least(0, spread=spread, noise=noise)
    rng = np.random.default_rng(seed)
    laws = rng.normal(0, spread, (clients, features, 1))
    x = np.linalg.qr(rng.normal(size=(clients, examples, features)))[0] * np.sqrt(examples * scale)
    arrays = {}
    for split in ("train", "test"):
        y = (x @ laws)[..., 0] + rng.normal(0, noise, (clients, examples))
        arrays[f"x_{split}"] = x.reshape(-1, features).astype(np.float32)
        arrays[f"y_{split}"] = y.reshape(-1).astype(np.float32)
        arrays[f"client_{split}"] = owners(np.full(clients, examples))
    sizes = {"clients": clients, "examples": examples, "features": features}
    arguments = sizes | {"scale": scale, "spread": spread, "noise": noise, "seed": seed}
    return made("synthetic_linear", arguments, 1, arrays)
