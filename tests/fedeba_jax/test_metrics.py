"""Summaries of client accuracies: the spec's vectors, identities between the measures, degenerate clients."""

import jax
import numpy as np
import pytest

from fedeba_jax.metrics import sampling_noise, summarize


def test_five_clients_golden(x64):
    expected = {
        "mean": 80, "variance": 200, "std": 200**0.5, "worst5": 60, "best5": 100, "cv": 0.17677670,
        "angle": 10.02498786, "kl": 0.01576677, "entropy": 1.59367115, "jain": 0.96969697,
        "gini": 0.1,
    }  # fmt: skip
    summary = summarize(np.array([80, 90, 70, 100, 60]))
    assert summary.keys() == expected.keys()
    for name, value in expected.items():
        np.testing.assert_allclose(summary[name], value, atol=5e-9, err_msg=name)


def test_one_client_of_four_has_everything():
    summary = summarize(np.array([1.0, 0, 0, 0]))
    np.testing.assert_allclose(summary["angle"], 60, rtol=1e-6)
    np.testing.assert_allclose(summary["kl"], np.log(4), rtol=1e-6)
    np.testing.assert_allclose(summary["jain"], 0.25, rtol=1e-6)


@pytest.mark.parametrize(("dtype", "tolerance"), [(np.float64, 5e-9), (np.float32, 1e-5)])
def test_a_hundred_clients_golden(dtype, tolerance):
    with jax.enable_x64(dtype == np.float64):
        summary = summarize(np.random.default_rng(0).permutation(np.linspace(60, 99, 100)).astype(dtype))
    expected = {"worst5": 60.78787879, "best5": 98.21212121, "angle": 8.14022976, "kl": 0.01029378}
    for name, value in expected.items():
        np.testing.assert_allclose(summary[name], value, atol=max(tolerance, tolerance * value), err_msg=name)


@pytest.mark.parametrize(("clients", "tail"), [(1, 1), (19, 1), (20, 1), (40, 2), (817, 40)])
def test_the_tail_holds_five_percent_of_the_clients_and_at_least_one(clients, tail):
    summary = summarize(np.arange(clients))
    np.testing.assert_allclose(summary["worst5"], (tail - 1) / 2)
    np.testing.assert_allclose(summary["best5"], clients - 1 - (tail - 1) / 2)


def test_identities_between_the_measures(x64):
    accuracies = np.random.default_rng(2).uniform(20, 100, 30)
    s = summarize(accuracies)
    cosine = accuracies.sum() / (np.linalg.norm(accuracies) * np.sqrt(30))
    np.testing.assert_allclose(s["angle"], np.degrees(np.arccos(cosine)), rtol=1e-9)
    np.testing.assert_allclose(s["jain"], accuracies.sum() ** 2 / (30 * (accuracies**2).sum()), rtol=1e-12)
    np.testing.assert_allclose(s["std"] ** 2, s["variance"], rtol=1e-12)
    np.testing.assert_allclose(s["kl"] + s["entropy"], np.log(30), rtol=1e-12)
    nearly_equal = summarize(90 + 0.01 * accuracies)
    np.testing.assert_allclose(nearly_equal["kl"], nearly_equal["cv"] ** 2 / 2, rtol=1e-2)


def test_equal_clients_are_perfectly_fair(x64):
    s = summarize(np.full(7, 42.0))
    expected = {"mean": 42, "variance": 0, "worst5": 42, "best5": 42, "cv": 0, "angle": 0, "kl": 0, "jain": 1}
    for name, value in expected.items():
        np.testing.assert_allclose(s[name], value, atol=1e-12, err_msg=name)


def test_a_single_client_is_perfectly_fair():
    s = summarize(np.array([37.0]))
    assert (s["mean"], s["worst5"], s["best5"], s["variance"], s["angle"], s["jain"]) == (37, 37, 37, 0, 0, 1)


def test_accuracies_of_zero_give_no_nan():
    s = summarize(np.zeros(5))
    assert (s["mean"], s["variance"], s["worst5"], s["angle"], s["jain"]) == (0, 0, 0, 90, 0)
    assert s["cv"] == np.inf
    assert not any(np.isnan(value) for value in s.values())


def test_gini_is_the_mean_difference_of_pairs(x64):
    accuracies = np.random.default_rng(3).uniform(0, 100, 40)
    pairs = np.abs(accuracies[:, None] - accuracies[None]).mean()
    np.testing.assert_allclose(summarize(accuracies)["gini"], pairs / (2 * accuracies.mean()), rtol=1e-12)
    assert summarize(np.zeros(4))["gini"] == 0
    np.testing.assert_allclose(summarize(np.array([1.0, 0, 0, 0]))["gini"], 0.75)


def test_noise_of_two_clients_golden(x64):
    """(1 - 1/2) of the mean of 90 * 10 / 9 and 50 * 50 / 100; one test example tells nothing."""
    np.testing.assert_allclose(sampling_noise(np.array([90.0, 50.0]), np.array([10, 101])), 31.25)
    assert sampling_noise(np.array([100.0, 0.0]), np.array([1, 1])) == 0


def test_noise_is_what_few_test_examples_add_to_the_variance(x64):
    """Clients of known accuracies, tested 4,000 times: variance minus noise is right on average."""
    rng = np.random.default_rng(0)
    known, counts = rng.uniform(60, 99, 20), rng.integers(5, 60, 20)
    measured = 100 * rng.binomial(counts, known / 100, (4000, 20)) / counts
    noise = jax.vmap(sampling_noise, in_axes=(0, None))(measured, counts)
    corrected = measured.var(axis=1) - np.asarray(noise)
    error = corrected.std() / 4000**0.5
    assert abs(corrected.mean() - known.var()) < 3 * error < 0.1 * known.var()
    assert measured.var(axis=1).mean() > 1.3 * known.var()
