"""Numbers over seeds: mean, spread and interval, which setting is best, and whether two settings differ.

Two settings are compared seed by seed: the seed decides the split, the first model and the cohorts, and moves all
settings together by more than they differ. With d_s the difference at seed s, over the S seeds that both have, there
are the mean of d, its 95 % interval, an exact test of "the sign of each d_s is a coin toss", and a verdict in words
that are fixed beforehand (docs/statistics.md).
"""

import functools
import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy import stats

FEWEST = 6  # seeds of an interval or a verdict: with five, no two-sided sign-flip test can give p <= 0.05
LEVEL = 0.05
RESAMPLES = 9999
MOST_ENUMERATED = 16  # seeds whose sign patterns are all tried; of more, SAMPLED patterns are drawn
SAMPLED = 2**16 - 1
RNG_SEED = 0
EQUAL = 1e-9  # relative: differences closer than this are rounding

BETTER, WORSE, NO_DIFFERENCE = "better", "worse", "no difference shown"
TOO_FEW, NOT_COMPARABLE = "too few seeds", "not comparable"


class Comparison(NamedTuple):
    """One setting minus another, over the seeds that both have."""

    difference: float  # mean; NaN if nothing can be compared
    low: float | None  # of the 95 % interval; None with fewer than FEWEST seeds
    high: float | None
    p: float  # of the two-sided sign-flip test; NaN if nothing can be compared
    adjusted: float | None  # p after `judged`: by Benjamini and Hochberg, over the rows of a table
    improvement: float  # share of the seeds at which the first is better; a tie counts half
    seeds: int
    verdict: str


def paired(one: dict[int, float], other: dict[int, float], *, higher: bool) -> Comparison:
    """One minus the other, by seed; the verdict is that of a table with this row alone.

    A value that is not finite (a run that diverged) at a common seed makes the two not comparable: to leave that seed
    out would favour what diverges.

    Args:
      one: the metric by seed.
      other: the same of the setting that it is compared with.
      higher: whether a higher value is better.
    """
    common = sorted(one.keys() & other.keys())
    first, second = (np.array([values[seed] for seed in common], float) for values in (one, other))
    if not np.isfinite([first, second]).all():
        return Comparison(math.nan, None, None, math.nan, None, math.nan, len(common), NOT_COMPARABLE)
    if not common:
        return Comparison(math.nan, None, None, math.nan, None, math.nan, 0, TOO_FEW)
    rounding = EQUAL * np.maximum(abs(first), abs(second))
    differences = np.where(abs(first - second) <= rounding, 0.0, first - second)
    wins = np.sign(differences if higher else -differences)
    low, high = interval(differences) or (None, None)
    mean, p = float(differences.mean()), sign_flip(differences)
    found = Comparison(mean, low, high, p, None, float((1 + wins.mean()) / 2), len(common), "")
    return found._replace(verdict=_verdict(found, higher=higher))


def judged(comparisons: Sequence[Comparison | None]) -> list[Comparison | None]:
    """The rows of a table with p-values adjusted for their number, and the verdicts that then remain.

    Benjamini and Hochberg's adjusted p bounds the expected share of false ones among the rows that say "better" or
    "worse". An adjusted p is never smaller than p, so that verdicts only get weaker. None, and what cannot be
    compared, takes no part.
    """
    known = [i for i, one in enumerate(comparisons) if one is not None and not math.isnan(one.p)]
    found = list(comparisons)
    adjusted = stats.false_discovery_control([one.p for one in comparisons if one and not math.isnan(one.p)])
    for i, p in zip(known, map(float, adjusted), strict=True):
        one = comparisons[i]
        assert one is not None
        weaker = one.verdict in (BETTER, WORSE) and p > LEVEL
        found[i] = one._replace(adjusted=p, verdict=NO_DIFFERENCE if weaker else one.verdict)
    return found


def _verdict(found: Comparison, *, higher: bool) -> str:
    if found.low is None or found.high is None:
        return TOO_FEW
    if found.p > LEVEL or found.low <= 0 <= found.high:
        return NO_DIFFERENCE
    return BETTER if (found.difference > 0) == higher else WORSE


def sign_flip(differences: Sequence[float] | np.ndarray) -> float:
    """The two-sided p-value of "the sign of each difference is a coin toss", by its mean.

    p is the share of the 2^S sign patterns whose |sum| is at least that of the data; the smallest possible is 2 / 2^S.
    All patterns are tried up to MOST_ENUMERATED seeds. Of more seeds, SAMPLED patterns are drawn with a fixed seed,
    and the data's own pattern counts as one more.
    """
    sizes = np.abs(np.asarray(differences, float))
    reached = abs(math.fsum(differences)) - 1e-12 * math.fsum(sizes)  # sums in another order differ by rounding
    count = len(sizes)
    signs = _all_signs(count) if count <= MOST_ENUMERATED else _some_signs(count)
    hits = int((np.abs(signs @ sizes) >= reached).sum())
    return hits / len(signs) if count <= MOST_ENUMERATED else (hits + 1) / (len(signs) + 1)


@functools.cache
def _all_signs(count: int) -> np.ndarray:
    """Every pattern with a first sign of +: the others are their mirror images, with the same |sum|."""
    bits = np.arange(2 ** max(count - 1, 0))[:, None] >> np.arange(count)
    return 1.0 - 2.0 * (bits & 1)


@functools.cache
def _some_signs(count: int) -> np.ndarray:
    return np.random.default_rng(RNG_SEED).choice([-1.0, 1.0], size=(SAMPLED, count))


def interval(values: Sequence[float] | np.ndarray) -> tuple[float, float] | None:
    """The 95 % interval of the mean over seeds: bias-corrected and accelerated bootstrap (BCa).

    The bootstrap is too narrow for few seeds (of ten, it holds the mean 90 times in 100). So it is asked for the level
    1 - 2 Phi(-t_{0.975, S-1} sqrt(S / (S - 1))), which for normal numbers makes up for that (Hesterberg 2015, "What
    Teachers Should Know about the Bootstrap", expanded percentile interval).

    Returns:
      None with fewer than FEWEST values: a resampled mean cannot leave their range, which holds the median in no more
      than 1 - 2 / 2^S of all cases; or with values that are not finite. Equal values have an interval of no width.
    """
    numbers = np.asarray(values, float)
    count = len(numbers)
    if count < FEWEST or not np.isfinite(numbers).all():
        return None
    if np.ptp(numbers) <= EQUAL * np.abs(numbers).max():  # BCa divides by their spread
        return float(numbers.mean()), float(numbers.mean())
    reach = stats.t.ppf(1 - LEVEL / 2, count - 1) * math.sqrt(count / (count - 1))
    found = stats.bootstrap(
        (numbers,), np.mean, confidence_level=1 - 2 * stats.norm.sf(reach), n_resamples=RESAMPLES, method="BCa",
        rng=np.random.default_rng(RNG_SEED),
    ).confidence_interval  # fmt: skip
    return float(found.low), float(found.high)


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
    half = float(stats.t.ppf(0.975, n - 1) * numbers.std(ddof=1) / n**0.5) if n > 1 else None
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
