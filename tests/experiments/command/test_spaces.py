"""What a tuning tries: spaces, their points, and rungs."""

import math

import numpy as np
import pytest

from experiments.command import spaces, tasks
from experiments.command.spaces import Rung
from fedeba_jax import ALGORITHMS

TASK = tasks.TASKS["fashion_mnist_mini_mlp"]


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_every_method_tunes_the_learning_rate_on_a_log_scale_around_the_task_s(algorithm):
    rate = spaces.space(algorithm, TASK)["lr"]
    assert rate.log
    assert math.isclose(rate.low * rate.high, TASK.lr**2)


def test_points_are_inside_and_as_many_as_asked_for():
    space = spaces.space("fedeba_plus", TASK)
    points = spaces.points(space, 50, seed=3)
    assert len(points) == 50
    for name, within in space.items():
        values = np.array([float(point[name]) for point in points])
        assert within.low <= values.min() < values.max() <= within.high
        scaled = (
            np.log(values / within.low) / math.log(within.high / within.low) if within.log else values / within.high
        )
        assert 0.3 < np.median(scaled) < 0.7, "even on its scale"


def test_all_methods_try_the_same_learning_rates():
    rates = [[point["lr"] for point in spaces.points(spaces.space(name, TASK), 8, seed=0)] for name in ALGORITHMS]
    assert all(own == rates[0] for own in rates)


def test_numbers_of_a_point_are_drawn_apart():
    points = spaces.points(spaces.space("fedeba_plus", TASK), 40, seed=0)
    columns = np.log([[float(point["lr"]), float(point["tau"])] for point in points])
    assert abs(np.corrcoef(columns.T)[0, 1]) < 0.5


def test_a_larger_budget_begins_with_the_points_of_a_smaller_one_and_another_seed_has_others():
    space = spaces.space("qffl", TASK)
    assert spaces.points(space, 8, 0) == spaces.points(space, 32, 0)[:8]
    assert spaces.points(space, 8, 0) != spaces.points(space, 8, 1)


@pytest.mark.parametrize(
    ("budget", "rounds", "eval_every", "expected"),
    [
        (16, 2000, 50, [(16, 250), (8, 500), (4, 1000), (2, 2000)]),
        (4, 8, 2, [(4, 4), (2, 8)]),
        (6, 8, 2, [(6, 4), (3, 8)]),
        (3, 100, 10, [(3, 100)]),
        (2, 100, 10, [(2, 100)]),
        (1, 100, 10, [(1, 100)]),
        (16, 100, 30, [(16, 30), (4, 60), (2, 100)]),  # whole evaluations; 12.5 and 25 rounds are one rung
        (16, 2, 1, [(16, 1), (2, 2)]),
        (8, 10, 50, [(8, 10)]),
    ],
)
def test_rungs(budget, rounds, eval_every, expected):
    assert spaces.rungs(budget, rounds, eval_every) == [Rung(*rung) for rung in expected]


def test_halving_costs_half_of_full_runs():
    rungs = spaces.rungs(16, 2000, 50)
    assert sum(points * rounds for points, rounds in rungs) == 16 * 2000 // 2
