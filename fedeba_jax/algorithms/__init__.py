"""The registry: names, and the factories that make the algorithms. One paper, one file.

A factory takes `local` (what clients can compute), `server` (how an update becomes the next model)
and keyword-only hyper-parameters. Those annotated `Scalar`, or one of its bounded forms such as `Positive`, may be
traced: a sweep over them compiles once. All others are static. `schedules.scheduled` lets any traced one change by
round.
"""

from collections.abc import Callable

from fedeba_jax.algorithms import (
    aaggff,
    afl,
    corefed,
    ditto,
    fedavg,
    fedavg_align,
    feddisco,
    fedeba,
    fedeba_plus,
    fedfv,
    fedmgda_plus,
    fedprox,
    fedwavg,
    focus,
    local_only,
    lp_proj,
    mime_lite,
    prac_fedeba_plus,
    propfair,
    qffl,
    rank_core_fed,
    robust_fedeba_plus,
    term,
)
from fedeba_jax.types import Algorithm

ALGORITHMS: dict[str, Callable[..., Algorithm]] = {
    "fedavg": fedavg.fedavg,
    "fedsgd": fedavg.fedsgd,
    "fedprox": fedprox.fedprox,
    "qffl": qffl.qffl,
    "fedmgda_plus": fedmgda_plus.fedmgda_plus,
    "fedfv": fedfv.fedfv,
    "ditto": ditto.ditto,
    "focus": focus.focus,
    "lp_proj": lp_proj.lp_proj,
    "rank_core_fed": rank_core_fed.rank_core_fed,
    "mime_lite": mime_lite.mime_lite,
    "fedeba": fedeba.fedeba,
    "fedeba_plus": fedeba_plus.fedeba_plus,
    "prac_fedeba_plus": prac_fedeba_plus.prac_fedeba_plus,
    "robust_fedeba_plus": robust_fedeba_plus.robust_fedeba_plus,
    "fedavg_align": fedavg_align.fedavg_align,
    "afl": afl.afl,
    "term": term.term,
    "propfair": propfair.propfair,
    "aaggff": aaggff.aaggff,
    "corefed": corefed.corefed,
    "fedwavg": fedwavg.fedwavg,
    "feddisco": feddisco.feddisco,
    "local_only": local_only.local_only,
}
