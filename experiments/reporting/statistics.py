"""Numbers over seeds: their mean and spread, which setting is best, and what of a difference is noise.

A difference to the best is called noise where the seeds cannot tell the two settings apart: with d_s the difference
at seed s, over the n seeds that both have, if |mean d| <= t_{0.975, n-1} std(d) / sqrt(n). Pairing matters: the seed
decides the split and the cohorts, and moves all settings together by more than they differ.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy.stats import t as student_t


class Cell(NamedTuple):
    """One metric of one setting over its seeds."""

    mean: float
    std: float  # population
    half_width: float | None  # of the 95 % interval; None with one seed
    mark: str = ""  # "best" or "second"
    noise: bool | None = None  # within noise of the best; None: this is the best, or it cannot be decided


def spread(values: Sequence[float]) -> Cell:
    """Mean, population standard deviation, and half the width of the 95 % interval by Student's t."""
    numbers = np.array(values, float)
    n = len(numbers)
    half = float(student_t.ppf(0.975, n - 1) * numbers.std(ddof=1) / n**0.5) if n > 1 else None
    return Cell(float(numbers.mean()), float(numbers.std()), half)


def within_noise(best: dict[int, float], other: dict[int, float]) -> bool | None:
    """Whether the seeds that both have cannot tell them apart; None with fewer than two such seeds."""
    common = sorted(best.keys() & other.keys())
    if len(common) < 2:
        return None
    difference = spread([best[seed] - other[seed] for seed in common])
    return abs(difference.mean) <= (difference.half_width or 0.0)


def mark(means: Sequence[float], *, higher: bool) -> list[str]:
    """ "best", "second" or "" for each number; equal ones share a mark, and where all are equal there is none.

    Numbers are equal if their first ten digits are, which are those that a CSV file shows.
    """
    rounded = [float(f"{mean:.10g}") for mean in means]
    levels = sorted({number for number in rounded if not math.isnan(number)}, reverse=higher)
    marks = dict(zip(levels, ("best", "second"), strict=False)) if len(levels) > 1 else {}
    return [marks.get(number, "") for number in rounded]


def compare(values: Sequence[dict[int, float]], taking_part: Sequence[bool], *, higher: bool) -> list[Cell]:
    """The cells of one metric, from the values by seed of each setting; only those taking part are marked."""
    cells = [spread(list(by_seed.values())) for by_seed in values]
    means = [cell.mean if part else math.nan for cell, part in zip(cells, taking_part, strict=True)]
    marks = mark(means, higher=higher)
    if "best" not in marks:
        return cells
    best = values[marks.index("best")]
    return [
        cell._replace(mark=m, noise=None if m == "best" or math.isnan(mean) else within_noise(best, own))
        for cell, m, mean, own in zip(cells, marks, means, values, strict=True)
    ]
