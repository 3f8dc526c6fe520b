"""Spread, marks and noise, worked out by hand."""

import math

import pytest

from experiments.reporting.statistics import Cell, compare, mark, spread, within_noise


def test_spread_is_population_std_and_students_interval():
    assert spread([65, 75]) == Cell(70, 5, pytest.approx(12.7062 * 5))  # t_{0.975, 1} std(ddof=1) / sqrt(2)
    assert spread([3.0]) == Cell(3, 0, None)
    many = spread([0.0, 1.0] * 50)  # more seeds than the table of t has
    assert many.half_width == pytest.approx(1.984217 * 0.5 * math.sqrt(100 / 99) / 10)


def test_marks_know_the_direction_ties_and_what_takes_no_part():
    assert mark([1, 3, 2], higher=True) == ["", "best", "second"]
    assert mark([1, 3, 2], higher=False) == ["best", "", "second"]
    assert mark([3, 3 + 1e-13, 2, 2], higher=True) == ["best", "best", "second", "second"]
    assert mark([3, 3], higher=True) == ["", ""]
    assert mark([math.nan, 1, 2], higher=True) == ["", "second", "best"]


def test_noise_is_decided_on_paired_seeds():
    best = {0: 70.0, 1: 80.0, 2: 90.0}
    assert within_noise(best, {0: 69.0, 1: 79.0, 2: 89.1}) is False  # mean 0.967 > 4.303 * 0.0577 / sqrt(3)
    assert within_noise(best, {0: 60.0, 1: 85.0, 2: 88.0}) is True  # mean 2.33 <= 4.303 * 7.51 / sqrt(3)
    assert within_noise(best, {1: 79.0, 2: 89.1, 7: 0.0}) is False  # 0.95 > 12.706 * 0.0707 / sqrt(2)
    assert within_noise(best, {0: 60.0}) is None
    assert within_noise(best, {5: 60.0}) is None
    assert within_noise(best, dict(best)) is True


def test_what_takes_no_part_is_neither_marked_nor_compared():
    values = [{0: 99.0, 1: 99.0}, {0: 60.0, 1: 70.0}, {0: 65.0, 1: 64.0}]
    cells = compare(values, [False, True, True], higher=True)
    assert [(cell.mean, cell.mark, cell.noise) for cell in cells] == [
        (99, "", None), (65, "best", None), (64.5, "second", True)
    ]  # fmt: skip
