"""The accountant's vectors."""

import importlib.util

import pytest

from experiments.privacy import accounting

SIGMAS = (1.0, 2.0, 5.0, 10.0, 50.0)


def four_digits(value):
    return pytest.approx(value, rel=5e-4)


@pytest.mark.parametrize(
    ("sigma", "pld", "rdp"),
    zip(SIGMAS, (41.77, 13.22, 4.108, 1.854, 0.3157), (47.07, 14.24, 4.446, 2.017, 0.3480), strict=True),
)
def test_poisson_vectors_of_examples(sigma, pld, rdp):
    """q = 50/480, 2000 releases, delta 1e-5."""
    assert accounting.poisson(sigma, 50 / 480, 2000, 1e-5) == (four_digits(pld), "PLD")
    assert accounting.poisson(sigma, 50 / 480, 2000, 1e-5, accountant="rdp") == (four_digits(rdp), "RDP")


@pytest.mark.parametrize(("sigma", "pld"), zip(SIGMAS, (32.13, 9.589, 2.781, 1.190, 0.1726), strict=True))
def test_poisson_vectors_of_clients(sigma, pld):
    """q = 0.1, 2000 releases, delta 1e-3."""
    assert accounting.poisson(sigma, 0.1, 2000, 1e-3).value == four_digits(pld)


def test_fixed_size_vectors():
    """10 of 100, replace one. Noise of half the right size, from the sensitivity of removing one, is sigma = 1."""
    assert accounting.fixed_size(2.0, 10, 100, 2000, 1e-3) == (four_digits(28.12), "RDP")
    assert accounting.fixed_size(1.0, 10, 100, 2000, 1e-3).value == four_digits(111.4)


def test_epsilon_falls_with_noise_and_grows_with_the_rest():
    base = accounting.fixed_size(2.0, 10, 100, 100, 1e-3).value
    assert accounting.fixed_size(4.0, 10, 100, 100, 1e-3).value < base
    assert accounting.fixed_size(2.0, 20, 100, 100, 1e-3).value > base
    assert accounting.fixed_size(2.0, 10, 100, 200, 1e-3).value > base
    assert accounting.fixed_size(2.0, 100, 100, 100, 1e-3).value > base  # everybody in every round


def test_a_hopeless_epsilon_is_the_quick_bound():
    assert accounting.poisson(0.1, 0.1, 2000, 1e-5).accountant == "RDP"


def test_a_missing_accountant_is_one_line_with_the_extra(monkeypatch):
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "dp_accounting" else find(name))
    for claim in (lambda: accounting.poisson(3.125, 0.1, 7, 1e-5), lambda: accounting.fixed_size(3.125, 1, 7, 7, 1e-3)):
        with pytest.raises(ValueError, match=r"pip install 'fedeba_jax\[privacy\]'"):
            claim()
