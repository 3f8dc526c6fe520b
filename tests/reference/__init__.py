"""Slow, obvious NumPy twins of the algorithms, written from the papers alone: the tests of the fast code."""

from tests.reference.averaging import fedavg, fedprox, fedsgd
from tests.reference.entropy import fedavg_align, fedeba, fedeba_plus, prac_fedeba_plus
from tests.reference.mime import mime_lite
from tests.reference.problem import Problem, Trace

TWINS = {
    "fedavg": fedavg,
    "fedsgd": fedsgd,
    "fedprox": fedprox,
    "mime_lite": mime_lite,
    "fedeba": fedeba,
    "fedeba_plus": fedeba_plus,
    "prac_fedeba_plus": prac_fedeba_plus,
    "fedavg_align": fedavg_align,
}

__all__ = ["TWINS", "Problem", "Trace"]
