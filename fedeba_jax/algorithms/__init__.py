"""The registry: a name, the factory that makes the algorithm, one file a paper.

A factory takes `local` (what clients can compute), `server` (how an update becomes the next model)
and keyword-only hyper-parameters. Those annotated `Scalar`, or one of its bounded forms as `Positive`, may be
traced: a sweep over them compiles once. All others are static. `scheduled` lets any of the traced change by round.
"""

from collections.abc import Callable

from fedeba_jax.algorithms.aaggff import aaggff
from fedeba_jax.algorithms.afl import afl
from fedeba_jax.algorithms.corefed import corefed
from fedeba_jax.algorithms.ditto import ditto
from fedeba_jax.algorithms.fedavg import fedavg, fedsgd
from fedeba_jax.algorithms.fedavg_align import fedavg_align
from fedeba_jax.algorithms.feddisco import feddisco
from fedeba_jax.algorithms.fedeba import fedeba
from fedeba_jax.algorithms.fedeba_plus import fedeba_plus
from fedeba_jax.algorithms.fedfv import fedfv
from fedeba_jax.algorithms.fedmgda_plus import fedmgda_plus
from fedeba_jax.algorithms.fedprox import fedprox
from fedeba_jax.algorithms.fedwavg import fedwavg
from fedeba_jax.algorithms.focus import focus
from fedeba_jax.algorithms.lp_proj import lp_proj
from fedeba_jax.algorithms.mime_lite import mime_lite
from fedeba_jax.algorithms.prac_fedeba_plus import prac_fedeba_plus
from fedeba_jax.algorithms.propfair import propfair
from fedeba_jax.algorithms.qffl import qffl
from fedeba_jax.algorithms.rank_core_fed import rank_core_fed
from fedeba_jax.algorithms.scheduled import scheduled as scheduled
from fedeba_jax.algorithms.term import term
from fedeba_jax.types import Algorithm

ALGORITHMS: dict[str, Callable[..., Algorithm]] = {
    "fedavg": fedavg,
    "fedsgd": fedsgd,
    "fedprox": fedprox,
    "qffl": qffl,
    "fedmgda_plus": fedmgda_plus,
    "fedfv": fedfv,
    "ditto": ditto,
    "focus": focus,
    "lp_proj": lp_proj,
    "rank_core_fed": rank_core_fed,
    "mime_lite": mime_lite,
    "fedeba": fedeba,
    "fedeba_plus": fedeba_plus,
    "prac_fedeba_plus": prac_fedeba_plus,
    "fedavg_align": fedavg_align,
    "afl": afl,
    "term": term,
    "propfair": propfair,
    "aaggff": aaggff,
    "corefed": corefed,
    "fedwavg": fedwavg,
    "feddisco": feddisco,
}
