"""The registry: a name, the factory that makes the algorithm, one file a paper.

A factory takes `local` (what clients can compute), `server` (how an update becomes the next model)
and keyword-only hyper-parameters. Those annotated `Scalar`, or one of its bounded forms as `Positive`, may be
traced: a sweep over them compiles once. All others are static. `scheduled` lets any of the traced change by round.
"""

from collections.abc import Callable

from fedeba_jax.algorithms.fedavg import fedavg, fedsgd
from fedeba_jax.algorithms.fedavg_align import fedavg_align
from fedeba_jax.algorithms.fedeba import fedeba
from fedeba_jax.algorithms.fedeba_plus import fedeba_plus
from fedeba_jax.algorithms.fedprox import fedprox
from fedeba_jax.algorithms.prac_fedeba_plus import prac_fedeba_plus
from fedeba_jax.algorithms.scheduled import scheduled as scheduled
from fedeba_jax.types import Algorithm

ALGORITHMS: dict[str, Callable[..., Algorithm]] = {
    "fedavg": fedavg,
    "fedsgd": fedsgd,
    "fedprox": fedprox,
    "fedeba": fedeba,
    "fedeba_plus": fedeba_plus,
    "prac_fedeba_plus": prac_fedeba_plus,
    "fedavg_align": fedavg_align,
}
