"""Local training alone: steps by hand, what it shares with Ditto and FedAvg, and that nothing is sent."""

import functools

import jax
import numpy as np

import fedeba_jax
from fedeba_jax import tree
from tests.support.problems import tiny


@functools.cache
def trained(name, cohort_size=2, rate=0.3, **hparams):
    """(state, info) after three rounds of the tiny problem."""
    problem, key = tiny(cohort_size), jax.random.key(3)
    algorithm = problem.algorithm(name, rate=rate, **hparams)
    start = problem.start(algorithm, key)
    return jax.jit(lambda state: problem.train(algorithm, key, state=state, rounds=3))(start)


def close(actual, expected):
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-6), actual, expected)


def test_nothing_is_sent():
    _, info = trained("local_only")
    for name in ("floats_down", "bytes_down", "floats_up", "bytes_up", "exchanges"):
        assert not np.any(info[name]), name


def test_there_is_no_global_model():
    state, _ = trained("local_only")
    algorithm = tiny(2).algorithm("local_only")
    assert algorithm.models(state) == {}
    close(algorithm.personalize(state.server, tree.rows(state.clients, 0)).params, tree.rows(state.clients, slice(1)))


def test_who_is_not_sampled_stays_and_who_is_moves():
    state, info = trained("local_only")
    start = tiny(2).model.init(jax.random.key(3))
    sampled = set(np.asarray(info["cohort"]).ravel().tolist())
    assert 0 < len(sampled) < 6, "the case must have both"
    for i in range(6):
        moved = any(
            np.abs(a - b).max() > 1e-4
            for a, b in zip(*map(jax.tree.leaves, (tree.rows(state.clients, i), start)), strict=True)
        )
        assert moved == (i in sampled)


def test_it_is_ditto_without_a_tie():
    close(trained("local_only")[0].clients, trained("ditto", lam=0.0)[0].clients)


def test_the_mean_of_one_round_is_fedavg_s():
    """From the same x_0, with everybody: clients take the steps that FedAvg averages."""
    problem, key = tiny(6), jax.random.key(3)
    ends = {}
    for name, hparams in (("local_only", {}), ("fedavg", {"weighting": "uniform"})):
        algorithm = problem.algorithm(name, **hparams)
        ends[name], _ = problem.train(algorithm, key, state=problem.start(algorithm, key), rounds=1)
    close(jax.tree.map(lambda leaf: leaf.mean(0), ends["local_only"].clients), ends["fedavg"].server.params)


def test_it_has_no_hyper_parameters_of_its_own():
    assert fedeba_jax.hyperparameters.hyperparameters(fedeba_jax.local_only) == {}
