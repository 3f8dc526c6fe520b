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

FEWEST = 6  # seeds of an interval or a verdict: with five, no two-sided sign-flip test can give p <= 0.05
LEVEL = 0.05
NORMAL = 1.959963984540054  # beyond it lie LEVEL / 2 of a normal distribution
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
    adjusted: float | None  # p after `judged`: by Benjamini and Hochberg, over rows of a table
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


def judged(comparisons: Sequence[Comparison | None], families: Sequence[str] = ()) -> list[Comparison | None]:
    """The rows of a table with p-values adjusted for their number, and the verdicts that then remain.

    With families, one name for each row, they are adjusted for the number of rows of the same family.

    Benjamini and Hochberg's adjusted p bounds the expected share of false ones among the rows that say "better" or
    "worse". An adjusted p is never smaller than p, so that verdicts only get weaker. None, what cannot be compared, and
    rows with too few seeds, which can have no verdict, take no part.
    """
    found = list(comparisons)
    known: dict[str, dict[int, Comparison]] = {}
    for i, one in enumerate(comparisons):
        if one is not None and one.verdict not in (TOO_FEW, NOT_COMPARABLE):
            known.setdefault(families[i] if families else "", {})[i] = one
    if not known:
        return found
    from scipy import stats  # longer to import than JAX, and most runs show no verdict

    for family in known.values():
        adjusted = stats.false_discovery_control([one.p for one in family.values()])
        for (i, one), p in zip(family.items(), map(float, adjusted), strict=True):
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
    return _interval(tuple(map(float, values)))


@functools.lru_cache(maxsize=4096)  # a report shows the same numbers in several tables
def _interval(values: tuple[float, ...]) -> tuple[float, float] | None:
    numbers = np.array(values)
    count = len(numbers)
    if count < FEWEST or not np.isfinite(numbers).all():
        return None
    if np.ptp(numbers) <= EQUAL * np.abs(numbers).max():  # BCa divides by their spread
        return float(numbers.mean()), float(numbers.mean())
    from scipy import stats  # as above

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
    low: float | None  # of the 95 % interval of the mean; None with fewer than FEWEST seeds
    high: float | None
    mark: str = ""  # "best" or "second"
    against: Comparison | None = None  # the baseline; None: this is the baseline, or it takes no part


def spread(values: Sequence[float]) -> Cell:
    """Mean, population standard deviation and interval."""
    numbers = np.array(values, float)
    return Cell(float(numbers.mean()), float(numbers.std()), *(interval(numbers) or (None, None)))


def mark(means: Sequence[float], *, higher: bool) -> list[str]:
    """ "best", "second" or "" for each number; equal ones share a mark, and where all are equal there is none.

    Numbers are equal if their first ten digits are, which are those that a CSV file shows.
    """
    rounded = [float(f"{mean:.10g}") for mean in means]
    levels = sorted({number for number in rounded if not math.isnan(number)}, reverse=higher)
    marks = dict(zip(levels, ("best", "second"), strict=False)) if len(levels) > 1 else {}
    return [marks.get(number, "") for number in rounded]


def cells(
    values: Sequence[dict[int, float]],
    taking_part: Sequence[bool],
    baselines: Sequence[int | None],
    *,
    higher: bool,
    families: Sequence[str] = (),
) -> list[Cell]:
    """The cells of one column.

    Args:
      values: by seed, of each row.
      taking_part: only these rows are marked.
      baselines: the row that each is compared with; None: with none.
      higher: whether a higher value is better.
      families: of the rows, see `judged`.
    """
    found = [spread(list(by_seed.values())) for by_seed in values]
    means = [cell.mean if part else math.nan for cell, part in zip(found, taking_part, strict=True)]
    compared = [
        None if other is None else paired(own, values[other], higher=higher)
        for own, other in zip(values, baselines, strict=True)
    ]
    comparisons = judged(compared, families)
    marked = zip(found, mark(means, higher=higher), comparisons, strict=True)
    return [cell._replace(mark=sign, against=against) for cell, sign, against in marked]


def wilson(accuracies: np.ndarray, num_examples: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Wilson's 95 % interval of each client's accuracy, in percent: a share of so many test examples.

    (a + z^2 / 2n -+ z sqrt(a (1 - a) / n + z^2 / 4n^2)) / (1 + z^2 / n), with z = NORMAL.
    """
    share, n, z = np.asarray(accuracies, float) / 100, np.maximum(np.asarray(num_examples, float), 1), NORMAL
    middle, reach = share + z**2 / (2 * n), z * np.sqrt(np.maximum(share * (1 - share) / n + z**2 / (4 * n**2), 0))
    low, high = (100 * (middle + sign * reach) / (1 + z**2 / n) for sign in (-1, 1))
    return np.clip(low, 0, 100), np.clip(high, 0, 100)


def pareto_front(points: Sequence[tuple[float, ...]]) -> list[int]:
    """Indices of the points that no other beats in one coordinate without losing in another; lower is better.

    In the order of the first coordinate. Equal points are on the front together.
    """
    found = [
        i for i, own in enumerate(points)
        if not any(other != own and all(a <= b for a, b in zip(other, own, strict=True)) for other in points)
    ]  # fmt: skip
    return sorted(found, key=lambda i: points[i])
