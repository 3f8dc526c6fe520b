"""The twins of the baselines, by name."""

from tests.twins.baselines_core import corefed, rank_core_fed
from tests.twins.baselines_gradients import fedfv, fedmgda_plus
from tests.twins.baselines_online import aaggff, afl
from tests.twins.baselines_personal import ditto, focus, lp_proj
from tests.twins.baselines_weights import feddisco, fedwavg, propfair, qffl, term

BASELINE_TWINS = {
    "qffl": qffl,
    "afl": afl,
    "term": term,
    "propfair": propfair,
    "fedmgda_plus": fedmgda_plus,
    "fedfv": fedfv,
    "aaggff": aaggff,
    "ditto": ditto,
    "focus": focus,
    "lp_proj": lp_proj,
    "corefed": corefed,
    "rank_core_fed": rank_core_fed,
    "fedwavg": fedwavg,
    "feddisco": feddisco,
}

__all__ = ["BASELINE_TWINS"]
