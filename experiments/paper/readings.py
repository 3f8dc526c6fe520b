"""What the paper leaves open, read in several ways and compared with what it prints.

Which evaluation of a run it prints, by the runs of its first table; how the learning rate decays, how test data is
dealt and when the losses that weigh clients are measured, by runs with other settings.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from experiments.paper import evidence
from experiments.paper.comparison import Sheet
from experiments.paper.evidence import Evidence
from experiments.paper.rows import written
from experiments.reporting.columns import COLUMNS
from experiments.reporting.series import View
from experiments.reporting.statistics import FEWEST

READINGS = {"last5": View(), "last": View(last=1), "best": View(best=True)}
"""By name: the mean of the last evaluations, which we report; the last one; the most accurate one of each run."""
TOLD = {"last5": "mean of the last 5", "last": "last", "best": "most accurate"}
MEASURES = ("mean", "variance", "worst5")
TASK = "fashion_mnist_mlp"
EBA = "fedeba_plus; tau=0.1; alpha=0.9"
SETTINGS = {
    "as we run it": ("fedavg", EBA, "prac_fedeba_plus; tau=0.1; alpha=0.9"),
    "the rate does not decay": ("fedavg; lr_decay=1", f"{EBA}; lr_decay=1"),
    "tested on a fifth of each client's own data": ("fedavg; test_split=holdout", f"{EBA}; test_split=holdout"),
    "weights by losses before training": ("prac_fedeba_plus; tau=0.1; alpha=1",),  # its second softmax alone
}
"""Rows by what differs from ours; the first of them is ours."""


class Read(NamedTuple):
    """A printed number, and ours by each reading."""

    row: str
    measure: str
    paper: float
    ours: dict[str, float]

    def distance(self, reading: str) -> float:
        return abs(self.ours[reading] - self.paper)


def read(sheets: Mapping[str, Sheet]) -> list[Read]:
    """What is printed of rows with enough seeds, in which no run diverged; the sheets are of one table, by reading."""
    found = []
    for entries in zip(*(sheets[reading].entries for reading in READINGS), strict=True):
        for measure in MEASURES:
            cells = [entry.cells.get(measure) for entry in entries]
            first = cells[0]
            if first is None or first.printed is None or first.seeds < FEWEST or np.isnan(first.mean):
                continue
            ours = {reading: cell.mean for reading, cell in zip(READINGS, cells, strict=True) if cell is not None}
            found.append(Read(entries[0].row.label, measure, first.printed.mean, ours))
    return found


def lines(found: list[Read]) -> list[tuple[str, ...]]:
    """One line for each printed number, and for each measure the median distance to the paper."""
    told = []
    for measure in MEASURES:
        own, column = [one for one in found if one.measure == measure], COLUMNS[measure]
        numbers = [(one.row, f"{one.paper:g}", [one.ours[name] for name in READINGS]) for one in own]
        if own:
            apart = [float(np.median([one.distance(name) for one in own])) for name in READINGS]
            numbers.append((f"median distance of {len(own)} rows", "", apart))
        told += [
            (label, column.title, paper, *(f"{value:.{column.digits}f}" for value in values))
            for label, paper, values in numbers
        ]
    return told


def nearest(found: list[Read], measure: str) -> dict[str, int]:
    """For how many printed numbers of a measure each reading comes nearest."""
    own = [min(READINGS, key=one.distance) for one in found if one.measure == measure]
    return {reading: own.count(reading) for reading in READINGS}


def settings(found: Evidence, seeds: Sequence[int]) -> list[tuple[str, ...]]:
    """One line for each row of `SETTINGS` that was run: mean and std over these seeds, by two readings."""
    told = []
    for what, texts in SETTINGS.items():
        for row in (row for text in texts for row in written(TASK, text)):
            setting = evidence.setting(row.runs(seeds), row.given, found)
            if setting is None or setting.diverged:
                continue
            cells = [
                f"{np.mean(values):.{COLUMNS[measure].digits}f} ± {np.std(values):.{COLUMNS[measure].digits}f}"
                for name in ("last5", "best")
                for measure in MEASURES
                for values in [list(setting.values(measure, READINGS[name]).values())]
            ]
            told.append((what, row.label, str(len(setting.runs)), *cells))
    return told
