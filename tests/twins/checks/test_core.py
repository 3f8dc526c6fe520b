"""The twins of CoreFed and Rank-Core-Fed: published vectors, cases by hand, invariants, inputs that tempt a NaN."""

import numpy as np
import pytest

from tests.support.twin_problems import LOSSES, classification, close, dictated, same, weights
from tests.support.vectors import UNIFORM
from tests.twins.algebra import add, combine, subtract
from tests.twins.averaging import fedavg
from tests.twins.baselines_core import (
    corefed,
    corefed_weights,
    proportional_veto_core,
    rank_core_fed,
    veto_by_consumption,
)
from tests.twins.local import local_sgd

# CoreFed.


@pytest.mark.parametrize(
    ("M", "expected"),
    [
        (2.0, (0.13698630, 0.16438356, 0.49315068, 0.20547945)),
        (5.0, (0.21829522, 0.23284823, 0.29937630, 0.24948025)),
    ],
)
def test_corefed_vector(M, expected):
    problem = dictated(np.zeros((4, 2)), [0.2, 0.5, 1.5, 0.8])
    close(weights(corefed(problem, M=M)), expected)


def test_corefed_limits():
    close(corefed_weights(LOSSES, 1e12), UNIFORM, atol=1e-11)
    close(corefed_weights([0.7] * 3, 2.0), UNIFORM, atol=1e-15)
    close(corefed_weights([9.0, 99.0, 1.0], 2.0), np.array([5, 5, 1]) / 11, atol=1e-15)  # beyond M - eps: 1 / eps
    problem = classification()
    same(corefed(problem, M=1e15), fedavg(problem, weighting="uniform"))


# Rank-Core-Fed.


def test_veto_vector():
    losses = np.array([[0.1, 0.5, 0.9, 0.4], [0.8, 0.3, 0.2, 0.4], [0.9, 0.6, 0.1, 0.5]])
    winner, deaths, left = veto_by_consumption(losses)
    assert winner == 3
    assert deaths == [(0, 0.5), (2, 0.5), (1, 0.25)]
    assert left == {3: 0.25}
    assert proportional_veto_core(losses) == [1, 3]


def test_veto_of_a_large_minority():
    """60 voters a > b > c, 40 voters b > c > a."""
    winner, deaths, left = veto_by_consumption(np.array([[0, 1, 2]] * 60 + [[2, 0, 1]] * 40))
    assert winner == 1
    assert deaths == [(2, pytest.approx(1 / 60)), (0, pytest.approx(1 / 120))]
    assert left == {1: 0.5}


def test_veto_winner_is_in_the_core():
    rng = np.random.default_rng(0)
    for _ in range(500):
        losses = rng.uniform(size=(5, 7))
        assert veto_by_consumption(losses)[0] in proportional_veto_core(losses)


def test_veto_degenerate():
    assert veto_by_consumption(np.zeros((3, 1)))[0] == 0
    assert veto_by_consumption(np.zeros((3, 4)))[0] == 3  # equal candidates are eaten from the lowest index
    assert veto_by_consumption([[0.3, 0.1, 0.2]])[0] == 1  # a voter alone
    assert veto_by_consumption([[0.4, 1.0], [1.0, 0.0]])[0] == 1  # both die at once: the lower mean
    assert veto_by_consumption([[0.0, 1.0], [1.0, 0.0]])[0] == 0  # and then the lower index
    same_ranking = np.array([[3.0, 1.0, 2.0, 4.0]] * 5)
    assert veto_by_consumption(same_ranking)[0] == 1


def test_rank_core_candidates():
    problem = classification(rounds=2)
    mixtures = [np.random.default_rng(t).dirichlet(np.ones(3), 5) for t in range(2)]
    trace = rank_core_fed(problem, mixtures=mixtures)
    x = problem.params
    for t, (cohort, measured) in enumerate(zip(problem.cohorts, trace.diagnostics, strict=True)):
        deltas = [subtract(local_sgd(problem, t, i, x)[-1], x) for i in cohort]
        omegas = np.concatenate([[[1 / 3] * 3], np.eye(3), mixtures[t]])
        close(measured["weights"], omegas[measured["winner"]], atol=0)
        for c, omega in enumerate(omegas):
            candidate = add(x, combine(omega, deltas))
            close(measured["candidate_losses"][:, c], [problem.full_loss(candidate, i) for i in cohort], atol=1e-12)
        assert measured["winner"] == veto_by_consumption(measured["candidate_losses"])[0]
        assert measured["winner"] in proportional_veto_core(measured["candidate_losses"])
        x = trace.params[t]


def test_rank_core_of_one_client_without_mixtures_is_its_local_model():
    problem = classification(cohort_size=1)
    trace = rank_core_fed(problem, mixtures=[np.zeros((0, 1))] * 3)
    same(trace, fedavg(problem))
    problem.server_rate = 0.5
    same(rank_core_fed(problem, mixtures=[np.zeros((0, 1))] * 3), fedavg(problem))
