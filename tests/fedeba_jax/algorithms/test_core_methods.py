"""Rank-Core-Fed: the voting rule against exact arithmetic and the core itself, its candidates, and degenerate input."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedeba_jax.algorithms.rank_core_fed import mixtures, veto_by_consumption
from tests.support.problems import tiny
from tests.twins import baselines_core


def close(actual, expected, atol=1e-12):
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=0, atol=atol), actual, expected)


def rounds(name="rank_core_fed", problem=None, **hparams):
    """(state, info) after two rounds."""
    problem = problem or tiny()
    return jax.jit(lambda key: problem.train(problem.algorithm(name, **hparams), key, rounds=2))(jax.random.key(3))


# Veto by consumption.

SPREAD = [[0.1, 0.5, 0.9, 0.4], [0.8, 0.3, 0.2, 0.4], [0.9, 0.6, 0.1, 0.5]]


@pytest.mark.parametrize(
    ("losses", "winner"),
    [
        (SPREAD, 3),  # dies 0, then 2, then 1
        ([[0, 1, 2]] * 60 + [[2, 0, 1]] * 40, 1),
        ([[0.0]] * 3, 0),
        (np.zeros((3, 4)), 3),  # equal candidates are eaten from the lowest index
        ([[0.3, 0.1, 0.2]], 1),  # a voter alone
        ([[0.4, 1.0], [1.0, 0.0]], 1),  # both die at once: the lower mean
        ([[0.0, 1.0], [1.0, 0.0]], 0),  # and then the lower index
        ([[3, 0, 1], [9, 2, 4], [5, 1, 2]], 1),  # one ranking: the unanimous best
        ([[np.nan, 2.0], [np.nan, 3.0]], 1),  # what is not a number is worst
        ([[np.inf, 2.0], [1.0, np.nan], [1.0, np.inf]], 0),
    ],
)
@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_winners(x64, losses, winner, kind):
    assert int(jax.jit(veto_by_consumption)(jnp.asarray(losses, kind))) == winner


@pytest.mark.parametrize(("voters", "candidates"), [(5, 7), (10, 20), (3, 4)])
def test_the_winner_is_that_of_exact_arithmetic_and_lies_in_the_core(voters, candidates):
    losses = np.random.default_rng(0).random((500, voters, candidates)).astype(np.float32)
    elected = np.asarray(jax.jit(jax.vmap(veto_by_consumption))(losses))
    assert elected.tolist() == [baselines_core.veto_by_consumption(case)[0] for case in losses]
    if voters <= 5:
        assert all(w in baselines_core.proportional_veto_core(case) for w, case in zip(elected, losses, strict=True))


def test_the_order_of_voters_does_not_matter():
    losses = np.random.default_rng(1).random((200, 6, 9))
    vote = jax.jit(jax.vmap(veto_by_consumption))
    np.testing.assert_array_equal(vote(losses), vote(losses[:, ::-1]))


# Candidates.


def test_mixtures_are_dirichlet_and_follow_the_client():
    ids = jnp.array([7, 2, 5, 0])
    drawn = mixtures(jax.random.key(0), ids, 4000)
    close(drawn.sum(1), np.ones(4000), 1e-6)
    close(drawn.mean(0), np.full(4, 0.25), 0.01)
    close(drawn.var(0), np.full(4, 0.25 * 0.75 / 5), 0.002)  # of Dirichlet(1, 1, 1, 1)
    close(mixtures(jax.random.key(0), ids[::-1], 4000), drawn[:, ::-1], 1e-6)
    assert mixtures(jax.random.key(0), ids, 0).shape == (0, 4)


def test_candidates_are_sent_down_and_losses_up():
    """1 + 4 + 2 candidates of 39 numbers beside x_t."""
    _, info = rounds(candidates=2)
    assert [int(info[k][0]) for k in ("floats_down", "floats_up", "exchanges")] == [39 + 7 * 39, 39 + 7, 1]


def test_the_weights_are_the_winner_s(x64):
    _, info = rounds(candidates=0)
    weights = {0: (0.25, np.log(4)), **dict.fromkeys(range(1, 5), (1.0, 0.0))}
    for winner, largest, entropy in zip(info["winner"], info["weight_max"], info["weight_entropy"], strict=True):
        close((largest, entropy), weights[int(winner)])


# Degenerate input.


def test_one_client_without_mixtures_is_its_own_local_model(x64):
    state, info = rounds(problem=tiny(1), candidates=0)
    expected, _ = rounds("fedavg", problem=tiny(1))
    close(state.server.params, expected.server.params)
    assert info["finite"].all()


def test_identical_clients_move_as_fedavg(x64):
    """All candidates are the same, whichever wins."""
    problem = tiny(6, batch_size=12)
    index, count = problem.federation.rows, problem.federation.num_examples
    index, count = jnp.broadcast_to(index[0], index.shape), jnp.full_like(count, count[0])
    problem = dataclasses.replace(problem, federation=problem.federation._replace(rows=index, num_examples=count))
    close(rounds(problem=problem)[0].server.params, rounds("fedavg", problem=problem)[0].server.params)
