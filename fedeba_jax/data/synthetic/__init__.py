"""Made-up federations, always called `synthetic_...`: they stand in for no real data set.

Which to use: `logistic` to vary how much clients differ, in what they see and in how they label it; `text` for the
shapes and costs of a language model with many users; `uniform` for very many clients of equal size; `linear` for
regression, where optima are known in closed form (from Python alone: binaries evaluate classifiers).

Each set follows from its arguments, the seed among them. The data seed of a run only chooses who takes part and which
examples are held out.
"""

from collections.abc import Callable

from fedeba_jax.data.sources.registry import Dataset
from fedeba_jax.data.synthetic.classifiers import logistic
from fedeba_jax.data.synthetic.many import uniform
from fedeba_jax.data.synthetic.regression import linear
from fedeba_jax.data.synthetic.writers import text

SYNTHETIC: dict[str, Callable[..., Dataset]] = {
    "synthetic_logistic": logistic,
    "synthetic_text": text,
    "synthetic_uniform": uniform,
}
"""Sets that binaries take by name, as --dataset="synthetic_logistic(alpha=0.5, beta=0.5)"."""

__all__ = ["SYNTHETIC", "linear", "logistic", "text", "uniform"]
