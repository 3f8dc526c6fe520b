"""Slow, obvious NumPy twins of the algorithms, written from the papers alone: the tests of the fast code."""

from tests.twins.averaging import fedavg, fedprox, fedsgd
from tests.twins.baselines_core import corefed, rank_core_fed
from tests.twins.baselines_gradients import fedfv, fedmgda_plus
from tests.twins.baselines_online import aaggff, afl
from tests.twins.baselines_personal import ditto, focus, local_only, lp_proj
from tests.twins.baselines_weights import feddisco, fedwavg, propfair, qffl, term
from tests.twins.entropy import fedavg_align, fedeba, fedeba_plus, prac_fedeba_plus
from tests.twins.mime import mime_lite
from tests.twins.problem import Problem, Trace
from tests.twins.robust import robust_fedeba_plus

TWINS = {
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
    "robust_fedeba_plus": robust_fedeba_plus,
    "fedavg_align": fedavg_align,
    "afl": afl,
    "term": term,
    "propfair": propfair,
    "aaggff": aaggff,
    "corefed": corefed,
    "fedwavg": fedwavg,
    "feddisco": feddisco,
    "local_only": local_only,
}

__all__ = ["TWINS", "Problem", "Trace"]
