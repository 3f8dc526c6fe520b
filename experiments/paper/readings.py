"""What the paper leaves open, read in several ways and compared with what it prints.

Which evaluation of a run it prints, by the runs of its first table; how the learning rate decays, how test data is
dealt and when the losses that weigh clients are measured, by runs with other settings.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from experiments.paper import evidence
from experiments.paper.comparison import Cell, Sheet, verdict_text
from experiments.paper.evidence import Evidence
from experiments.paper.rows import written
from experiments.reporting.columns import COLUMNS
from experiments.reporting.series import Setting, View
from experiments.reporting.statistics import FEWEST

READINGS = {"last5": View(), "last": View(last=1), "best": View(best=True)}
"""By name: the mean of the last evaluations, which we report; the last one; the most accurate one of each run."""
TOLD = {"last5": "mean of the last 5", "last": "last", "best": "most accurate"}
MEASURES = ("mean", "variance", "worst5", "best5")
TOLD_OF_SETTINGS = MEASURES[:3]
STEADY = 20  # evaluations, the last half of a run, over which a variance goes up and down
TASK = "fashion_mnist_mlp"
EBA = "fedeba_plus; tau=0.1; alpha=0.9"
SETTINGS = {
    "as we run it": ("fedavg", EBA, "prac_fedeba_plus; tau=0.1; alpha=0.9"),
    "the rate does not decay": ("fedavg; lr_decay=1", f"{EBA}; lr_decay=1"),
    "tested on a fifth of each client's own data": ("fedavg; test_split=holdout", f"{EBA}; test_split=holdout"),
    "weights by losses before training": (
        f"{EBA}; weigh_by=before",
        "prac_fedeba_plus; tau=0.1; alpha=1",  # its second softmax alone
    ),
}
"""Rows by what differs from ours; the first of them is ours."""


class Read(NamedTuple):
    """A printed number, and ours by each reading."""

    row: str
    measure: str
    paper: float
    ours: dict[str, Cell]

    def distance(self, reading: str) -> float:
        return abs(self.ours[reading].mean - self.paper)


def read(sheets: Mapping[str, Sheet]) -> list[Read]:
    """What is printed of rows with enough seeds, in which no run diverged; the sheets are of one table, by reading."""
    found = []
    for entries in zip(*(sheets[reading].entries for reading in READINGS), strict=True):
        for measure in MEASURES:
            cells = {name: entry.cells[measure] for name, entry in zip(READINGS, entries, strict=True) if entry.cells}
            first = next(iter(cells.values()), None)
            if first and first.printed and first.seeds >= FEWEST and not np.isnan(first.mean):
                found.append(Read(entries[0].row.label, measure, first.printed.mean, cells))
    return found


def lines(found: list[Read]) -> list[tuple[str, ...]]:
    """One line for each measure and reading: how far ours are from what is printed, and how many come out so."""
    told: list[tuple[str, ...]] = []
    for measure in MEASURES:
        own, digits = [one for one in found if one.measure == measure], COLUMNS[measure].digits
        nearest = [min(READINGS, key=one.distance) for one in own]
        for name in READINGS if own else ():
            apart = [one.ours[name].mean - one.paper for one in own]
            told.append(
                (
                    COLUMNS[measure].title,
                    f"{TOLD[name]} (`{name}`)",
                    str(len(own)),
                    f"{np.median(np.abs(apart)):.{digits}f}",
                    f"{np.mean(apart):+.{digits}f}",
                    str(sum(bool(one.ours[name].inside) for one in own)),
                    str(nearest.count(name)),
                )
            )
    return told


def compared(made: Sheet, rows: Sequence[str]) -> list[tuple[str, ...]]:
    """Rows of a sheet against FedAvg, one line for each."""
    told = []
    for entry in (entry for label in rows for entry in made.entries if entry.row.label == label):
        cells = [(COLUMNS[measure].digits, entry.cells.get(measure)) for measure in TOLD_OF_SETTINGS]
        texts = [verdict_text(cell.against, digits) for digits, cell in cells if cell and cell.against]
        if texts:
            told.append((f"`{entry.row.label}`", *texts))
    return told


def unsteadiness(setting: Setting) -> float:
    """How far the variance over clients goes up and down at the end: std over mean of its last evaluations, in %."""
    ends = [[*run.curve("variance", READINGS["last"]).values()][-STEADY:] for run in setting.runs]
    return 100 * float(np.mean([np.std(values) / np.mean(values) for values in ends]))


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
                for measure in TOLD_OF_SETTINGS
                for values in [list(setting.values(measure, READINGS[name]).values())]
            ]
            told.append((what, row.label, str(len(setting.runs)), *cells))
    return told
