"""How fast methods learn: the first evaluated round in which a run has an accuracy, compared with FedAvg's."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from experiments.paper.comparison import BASELINE, VIEW, Sheet, verdict_text
from experiments.reporting.series import Series, Setting
from experiments.reporting.statistics import judged, paired

EBA = tuple(f"fedeba_plus tau={tau} alpha=0.9" for tau in ("0.1", "1"))
MAIN = ("fedavg", "fedsgd", "qffl q=0.5", "fedfv alpha=0.1 window=10", "fedeba tau=0.1", *EBA)


class Course(NamedTuple):
    """Rows of a table or figure, and the accuracies in % that they are to reach."""

    preset: str
    task: str
    rows: tuple[str, ...]
    levels: tuple[int, ...]


COURSES = (
    Course("performance", "fashion_mnist_mlp", MAIN, (75, 80, 85)),
    Course("fairness_and_convergence", "mnist_mlp", ("fedavg", EBA[0]), (85, 90, 95)),
)


def needed(run: Series, level: float) -> float:
    """The first evaluated round in which the global model has this accuracy; NaN if there is none."""
    return next((float(t) for t, accuracy in run.curve("mean", VIEW).items() if accuracy >= level), math.nan)


def lines(made: Sheet, rows: Sequence[str], levels: Sequence[int]) -> list[tuple[str, ...]]:
    """One line for each row that was run: its seeds, and for each level the mean of its rounds and the comparison.

    p-values are adjusted over these rows, apart for each level.
    """
    by_label = {entry.row.label: entry.setting for entry in made.entries if entry.setting}
    known = {label: by_label[label] for label in rows if label in by_label}
    cells = [_cells(known, level) for level in levels] if BASELINE in known else []
    return [
        (f"`{label}`", str(len(setting.runs)), *(cell[label] for cell in cells))
        for label, setting in known.items()
        if cells
    ]


def _cells(known: dict[str, Setting], level: float) -> dict[str, str]:
    rounds = {label: {run.seed: needed(run, level) for run in own.runs} for label, own in known.items()}
    found = judged([paired(own, rounds[BASELINE], higher=False) if label != BASELINE else None
                    for label, own in rounds.items()])  # fmt: skip
    cells = {}
    for (label, own), against in zip(rounds.items(), found, strict=True):
        never = sum(math.isnan(one) for one in own.values())
        mean = f"{np.mean(list(own.values())):.0f}" if not never else f"not reached by {never} of {len(own)} seeds"
        cells[label] = mean if never or against is None else f"{mean}: {verdict_text(against, 0)}"
    return cells
