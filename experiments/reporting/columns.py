"""The columns that a table can have: measures of an evaluation, what follows from them, communication and speed."""

import math
from typing import NamedTuple

from fedeba_jax.metrics import MEASURES


class Column(NamedTuple):
    """One column: what it shows, how it is written, and which way is better."""

    key: str
    title: str
    digits: int
    higher_is_better: bool
    scale: float = 1.0  # a number is multiplied by this before it is written
    part: str = "value"  # or one of PARTS: of the comparison with the baseline

    def rank(self, value: float) -> float:
        """By which numbers are sorted, best first; what is not a number comes last."""
        return math.inf if math.isnan(value) else -value if self.higher_is_better else value


PARTS = {"difference": "Δ {} [95 %]", "p": "p", "verdict": "verdict"}  # titles; p is the adjusted one
METRICS = (*MEASURES, "variance_corrected")
COLUMNS = {key: Column(key, *measure) for key, measure in MEASURES.items()} | {
    "variance_corrected": Column("variance_corrected", "corrected var.", 2, False),
    "gap": Column("gap", "gap to own best", 2, False),
    "faa": Column("faa", "FAA", 4, False),
    "bytes": Column("bytes", "bytes, MiB", 2, False, 2.0**-20),
    "additional_cost": Column("additional_cost", "add. cost %", 1, False, 100.0),
    "rounds_per_second": Column("rounds_per_second", "rounds/s", 1, True),
}
REPORT = (
    "mean", "variance", "variance_corrected", "worst5", "best5", "cv", "angle", "gini", "loss_variance", "gap", "faa",
    "bytes", "additional_cost",
)  # fmt: skip
ALONE = ("gap", "faa")  # only where a run of `local_only` tells what each client reaches by itself
TERMINAL = ("mean", "variance", "variance_corrected", "worst5", "best5", "gap", "bytes")
COMPARED = ("mean", "variance", "worst5")  # with the baseline, in tables; files hold all
FRONT = ("mean", "variance", "bytes")  # of the three-way Pareto front


def column(key: str, largest: float) -> Column:
    """The column of this key; bytes in GiB if the largest number of the column is that large."""
    large = COLUMNS["bytes"]._replace(title="bytes, GiB", scale=2.0**-30)
    return large if key == "bytes" and largest >= 2**30 else COLUMNS[key]


def compared(shown: Column) -> list[Column]:
    """The columns of a comparison of this one: difference with interval, adjusted p, and verdict."""
    return [shown._replace(title=title.format(shown.title), part=part) for part, title in PARTS.items()]
