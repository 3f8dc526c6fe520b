"""The columns that a table can have: every measure of an evaluation, communication and speed."""

import math
from typing import NamedTuple

from fedeba_jax.metrics import MEASURES, SHOWN


class Column(NamedTuple):
    """One column: what it shows, how it is written, and which way is better."""

    key: str
    title: str
    digits: int
    higher_is_better: bool
    scale: float = 1.0  # a number is multiplied by this before it is written

    def rank(self, value: float) -> float:
        """By which numbers are sorted, best first; what is not a number comes last."""
        return math.inf if math.isnan(value) else -value if self.higher_is_better else value


METRICS = tuple(MEASURES)
COLUMNS = {key: Column(key, *measure) for key, measure in MEASURES.items()} | {
    "bytes": Column("bytes", "bytes, MiB", 2, False, 2.0**-20),
    "additional_cost": Column("additional_cost", "add. cost %", 1, False, 100.0),
    "rounds_per_second": Column("rounds_per_second", "rounds/s", 1, True),
}
REPORT = (*SHOWN, "bytes", "additional_cost")


def column(key: str, largest: float) -> Column:
    """The column of this key; bytes in GiB if the largest number of the column is that large."""
    large = COLUMNS["bytes"]._replace(title="bytes, GiB", scale=2.0**-30)
    return large if key == "bytes" and largest >= 2**30 else COLUMNS[key]
