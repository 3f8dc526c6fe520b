"""How fast methods learn, and where they end: what the paper's figures of courses show, compared with FedAvg."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from experiments.paper.comparison import BASELINE, VIEW, Cell, Sheet, texts, verdict_text
from experiments.reporting.columns import COLUMNS
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


ENDS = ("mean", "variance", "variance_corrected")
COURSES = (
    Course("performance", "fashion_mnist_mlp", MAIN, (75, 80, 85)),
    Course("fairness_and_convergence", "mnist_mlp", ("fedavg", EBA[0]), (85, 90, 95)),
)


def needed(run: Series, level: float) -> float:
    """The first evaluated round in which the global model has this accuracy; NaN if there is none."""
    return next((float(t) for t, accuracy in run.curve("mean", VIEW).items() if accuracy >= level), math.nan)


def head(levels: Sequence[int]) -> tuple[str, ...]:
    """Of the table that `lines` fills."""
    return ("row", "seeds", *(f"rounds to {level} %" for level in levels), *(COLUMNS[key].title for key in ENDS))


def lines(made: Sheet, rows: Sequence[str], levels: Sequence[int]) -> list[tuple[str, ...]]:
    """One line for each row that was run: its rounds to each level, and its figures in the end, each compared.

    p-values of rounds are adjusted over these rows, apart for each level; those in the end are the sheet's.
    """
    by_label = {entry.row.label: entry for entry in made.entries if entry.setting}
    known = {label: by_label[label] for label in rows if label in by_label}
    if BASELINE not in known:
        return []
    settings = {label: entry.setting for label, entry in known.items() if entry.setting}
    reached = [_reached(settings, level) for level in levels]
    return [
        (
            f"`{label}`",
            str(len(settings[label].runs)),
            *(cells[label] for cells in reached),
            *(_end(key, entry.cells[key]) for key in ENDS),
        )
        for label, entry in known.items()
    ]


def _end(key: str, cell: Cell) -> str:
    digits = COLUMNS[key].digits
    ours = texts(cell, digits)[0]
    return f"{ours}: {verdict_text(cell.against, digits)}" if cell.against else ours


def _reached(known: dict[str, Setting], level: float) -> dict[str, str]:
    rounds = {label: {run.seed: needed(run, level) for run in own.runs} for label, own in known.items()}
    found = judged([paired(own, rounds[BASELINE], higher=False) if label != BASELINE else None
                    for label, own in rounds.items()])  # fmt: skip
    cells = {}
    for (label, own), against in zip(rounds.items(), found, strict=True):
        never = sum(math.isnan(one) for one in own.values())
        mean = f"{np.mean(list(own.values())):.0f}" if not never else f"not reached by {never} of {len(own)} seeds"
        cells[label] = mean if never or against is None else f"{mean}: {verdict_text(against, 0)}"
    return cells
