"""Spread, marks, intervals, tests and verdicts: by hand, by enumeration, and by simulation."""

import itertools
import math

import numpy as np
import pytest
from scipy.stats import binomtest

from experiments.reporting.statistics import (
    BETTER,
    FEWEST,
    MOST_ENUMERATED,
    NO_DIFFERENCE,
    NOT_COMPARABLE,
    TOO_FEW,
    WORSE,
    Cell,
    cells,
    interval,
    judged,
    mark,
    paired,
    pareto_front,
    sign_flip,
    spread,
    wilson,
)


def by_seed(values):
    return dict(enumerate(map(float, values)))


def against_zero(values, *, higher=True):
    return paired(by_seed(values), by_seed(np.zeros(len(values))), higher=higher)


@pytest.mark.parametrize("count", [1, 2, 5, 8])
def test_the_test_is_the_share_of_all_sign_patterns(count):
    differences = np.random.default_rng(count).normal(0.5, 1, count).round(1)  # rounded: ties among the sums
    patterns = [abs(np.dot(signs, differences)) for signs in itertools.product((-1, 1), repeat=count)]
    expected = np.mean([total >= abs(differences.sum()) - 1e-9 for total in patterns])
    assert sign_flip(differences) == expected


@pytest.mark.parametrize("count", [1, 3, 6, 10, MOST_ENUMERATED])
def test_differences_of_one_sign_have_the_smallest_p_there_is(count):
    assert sign_flip(0.1 * np.arange(1, count + 1)) == 2 / 2**count
    assert sign_flip(-0.1 * np.arange(1, count + 1)) == 2 / 2**count


def test_a_difference_of_nothing_has_p_one_whatever_the_number_of_seeds():
    assert sign_flip([0.0] * 6) == 1
    assert sign_flip([1.0, -1.0, 2.0, -2.0]) == 1
    assert sign_flip([0.0] * 40) == 1
    assert sign_flip([0.0, 0.0, 3.0]) == 1, "the sign of one difference is no news"


def test_many_seeds_are_tested_on_a_fixed_sample_of_patterns():
    differences = np.random.default_rng(0).normal(0.3, 1, MOST_ENUMERATED + 4)
    # The sum over signs of many differences is nearly normal, with the variance of the sum of squares.
    z = abs(differences.sum()) / math.sqrt((differences**2).sum())
    assert sign_flip(differences) == pytest.approx(math.erfc(z / math.sqrt(2)), abs=0.02)
    assert sign_flip(differences) == sign_flip(differences)
    assert sign_flip(np.ones(40)) == 1 / 2**16, "the data's own pattern is one of 2^16"


def test_the_interval_is_near_students_for_many_normal_numbers():
    numbers = np.random.default_rng(3).normal(5, 2, 200)
    half = 1.972 * numbers.std(ddof=1) / math.sqrt(200)  # t_{0.975, 199}
    assert interval(numbers) == pytest.approx((numbers.mean() - half, numbers.mean() + half), abs=0.12 * half)
    assert interval(numbers) == interval(numbers), "no luck: resampled with a fixed seed"


def test_the_interval_moves_and_grows_with_its_numbers_and_leans_to_the_long_side():
    numbers = np.array([1.0, 1.1, 1.2, 1.3, 1.5, 4.0])
    low, high = interval(numbers)
    assert interval(10 * numbers - 3) == pytest.approx((10 * low - 3, 10 * high - 3))
    assert high - numbers.mean() > numbers.mean() - low
    assert numbers.min() <= low
    assert high <= numbers.max()


def test_intervals_of_few_equal_or_infinite_numbers():
    assert interval([1.0, 2.0, 3.0, 4.0, 5.0]) is None
    assert interval([]) is None
    assert interval([2.5] * 6) == (2.5, 2.5)
    assert interval([0.1 + 0.2, 0.3] * 3) == pytest.approx((0.3, 0.3)), "equal but for rounding"
    assert interval([0.0] * 6) == (0, 0)
    assert interval([1.0, 2.0, 3.0, 4.0, 5.0, math.nan]) is None
    assert interval([1.0, 2.0, 3.0, 4.0, 5.0, math.inf]) is None


def test_a_comparison_goes_by_common_seeds():
    one, other = {0: 3.0, 1: 5.0, 2: 4.0, 9: 100.0}, {2: 4.0, 1: 2.0, 0: 2.0, 8: -100.0}
    found = paired(one, other, higher=True)
    assert (found.difference, found.seeds) == (pytest.approx(4 / 3), 3)
    assert found.p == 0.5  # differences 1, 3, 0: of 8 patterns, 2 times 2 reach |4|
    assert found.improvement == pytest.approx(2.5 / 3)  # a tie counts half
    assert paired(one, other, higher=False).improvement == pytest.approx(0.5 / 3)
    assert (found.low, found.high, found.adjusted, found.verdict) == (None, None, None, TOO_FEW)


def test_verdicts_know_the_direction_and_need_six_seeds():
    assert FEWEST == 6
    differences = [1.0, 2.0, 1.5, 1.2, 1.8, 1.4]
    assert against_zero(differences).verdict == BETTER
    assert against_zero(differences, higher=False).verdict == WORSE
    assert against_zero(np.negative(differences)).verdict == WORSE
    assert against_zero(np.negative(differences), higher=False).verdict == BETTER
    assert against_zero(differences[:5]).verdict == TOO_FEW
    assert against_zero([*differences[:5], -0.1]).verdict == NO_DIFFERENCE, "p is 4/64"


def test_equal_differences_are_a_difference_and_no_difference_is_none():
    constant = against_zero([2.0] * 6)
    assert constant[:4] == (2, 2, 2, 2 / 64)
    assert constant.verdict == BETTER, "bytes differ by the same number at every seed"
    nothing = against_zero([0.0] * 6)
    assert nothing[:6] == (0, 0, 0, 1, None, 0.5)
    assert nothing.verdict == NO_DIFFERENCE
    rounding = paired(by_seed([0.1 + 0.2] * 6), by_seed([0.3] * 6), higher=True)
    assert rounding.verdict == NO_DIFFERENCE
    assert rounding.difference == 0


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_what_diverged_at_a_common_seed_is_not_comparable(bad):
    values = by_seed(range(8))
    for found in (paired(values | {3: bad}, values, higher=True), paired(values, values | {3: bad}, higher=True)):
        assert math.isnan(found.difference)
        assert math.isnan(found.p)
        assert (found.low, found.high, found.seeds, found.verdict) == (None, None, 8, NOT_COMPARABLE)
    assert paired(values | {99: bad}, values, higher=True).verdict == NO_DIFFERENCE, "seed 99 has no partner"


def test_no_common_seed_and_one_common_seed():
    assert paired({0: 1.0}, {1: 2.0}, higher=True)[-2:] == (0, TOO_FEW)
    one = paired({0: 1.0}, {0: 2.0}, higher=False)
    assert (one.difference, one.p, one.improvement, one.seeds, one.verdict) == (-1, 1, 1, 1, TOO_FEW)


def test_p_values_are_adjusted_over_the_rows_of_a_table():
    clear, unclear = against_zero(range(1, 7)), against_zero([1, 2, 3, -4, 5, -6])
    broken = against_zero([1.0, math.nan])
    rows = judged([None, clear, unclear, broken, clear])
    # p = 2/64 twice and p of the unclear row once: Benjamini and Hochberg give min over k >= rank of 3 p_(k) / k.
    p = unclear.p
    assert p == np.mean([abs(np.dot(s, [1, 2, 3, 4, 5, 6])) >= 1 for s in itertools.product((-1, 1), repeat=6)])
    assert [row and row.adjusted for row in rows] == [None, 3 / 64, p, None, 3 / 64]
    assert [row and row.verdict for row in rows] == [None, BETTER, NO_DIFFERENCE, NOT_COMPARABLE, BETTER]
    alone = judged([clear, unclear])
    assert alone[0].adjusted == 4 / 64
    assert alone[0].verdict == NO_DIFFERENCE, "one of two rows at p = 2/64 is not enough"
    apart = judged([clear, unclear, clear], ["a", "a", "b"])
    assert apart == [*alone, *judged([clear])], "over the rows of a family"
    assert judged([]) == []
    assert judged([None, broken]) == [None, broken]
    assert judged([against_zero([1.0, 2.0])])[0].verdict == TOO_FEW


@pytest.mark.slow
@pytest.mark.parametrize("count", [6, 10, 20])
def test_the_interval_holds_the_truth_in_95_of_100_cases(count):
    """2,000 experiments of normal differences; where nothing differs, p is at most 0.05 in 5 % of them."""
    rng = np.random.default_rng(count)
    drawn = rng.normal(1.0, 2.0, (2000, count))
    inside = [low <= 1.0 <= high for low, high in map(interval, drawn)]
    assert 0.92 <= np.mean(inside) <= 0.98
    false = [sign_flip(differences - 1.0) <= 0.05 for differences in drawn]
    assert np.mean(false) <= 0.065


@pytest.mark.slow
def test_false_verdicts_are_rare_where_nothing_differs():
    """200 tables of five settings without any difference, at seven seeds."""
    rng = np.random.default_rng(0)
    said = 0
    for table in rng.normal(size=(200, 5, 7)):
        said += any(row.verdict != NO_DIFFERENCE for row in judged([against_zero(row) for row in table]))
    assert said / 200 <= 0.07


def test_spread_is_population_std_and_an_interval_from_six_seeds_on():
    assert spread([65, 75]) == Cell(70, 5, None, None)
    assert spread([3.0]) == Cell(3, 0, None, None)
    six = [1.0, 2.0, 4.0, 4.5, 6.0, 9.0]
    assert spread(six)[2:4] == interval(six)


def test_marks_know_the_direction_ties_and_what_takes_no_part():
    assert mark([1, 3, 2], higher=True) == ["", "best", "second"]
    assert mark([1, 3, 2], higher=False) == ["best", "", "second"]
    assert mark([3, 3 + 1e-13, 2, 2], higher=True) == ["best", "best", "second", "second"]
    assert mark([3, 3], higher=True) == ["", ""]
    assert mark([math.nan, 1, 2], higher=True) == ["", "second", "best"]


def test_what_takes_no_part_is_neither_marked_nor_compared():
    values = [{0: 99.0, 1: 99.0}, {0: 60.0, 1: 70.0}, {0: 65.0, 1: 64.0}]
    found = cells(values, [False, True, True], [None, None, 1], higher=True)
    assert [(cell.mean, cell.mark) for cell in found] == [(99, ""), (65, "best"), (64.5, "second")]
    assert [cell.against and (cell.against.difference, cell.against.verdict) for cell in found] == [
        None, None, (-0.5, TOO_FEW)
    ]  # fmt: skip


def test_wilsons_interval_is_that_of_scipy_for_each_client():
    accuracies, examples = np.array([0.0, 50.0, 92.0, 100.0]), np.array([20, 10, 100, 7])
    low, high = wilson(accuracies, examples)
    for i, n in enumerate(examples):
        found = binomtest(round(accuracies[i] * n / 100), int(n)).proportion_ci(method="wilson")
        assert (low[i], high[i]) == pytest.approx((100 * found.low, 100 * found.high))
    assert all(bound.shape == (1,) for bound in wilson(np.array([50.0]), np.array([0])))


def test_the_front_is_what_nothing_beats():
    points = [(-70, 100), (-60, 50), (-65, 120), (-60, 60), (-70, 100), (-50, 50)]
    assert pareto_front(points) == [0, 4, 1]
    assert pareto_front([(1, 1)]) == [0]
    assert pareto_front([]) == []
    assert pareto_front([(1, 2, 3), (1, 2, 2), (2, 1, 9), (0, 9, 9), (2, 2, 2)]) == [3, 1, 2]
