"""Hyper-parameters as text, schedules and rules among them."""

import pytest

from experiments.command import hparams, values
from experiments.command.values import Traced
from fedeba_jax import weights


def test_values_have_their_kinds_and_the_rest_its_defaults():
    read = hparams.read("fedeba_plus", {"tau": "0.5", "fair_scale": "none"})
    assert read == {"tau": 0.5, "alpha": 0.9, "theta": 0.0, "fair_scale": None, "prior": "none"}
    assert {name for name, value in read.items() if isinstance(value, Traced)} == {"tau", "alpha", "theta"}
    window = hparams.read("fedfv", {"window": "3"})["window"]
    assert (window, type(window)) == (3, int)


@pytest.mark.parametrize(
    ("text", "pairs"),
    [
        ("", {}),
        ("tau=0.1,alpha=0.9", {"tau": "0.1", "alpha": "0.9"}),
        (" tau = anneal(1, 2) , ", {"tau": "anneal(1, 2)"}),
    ],
)
def test_pairs(text, pairs):
    assert hparams.pairs(text) == pairs


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("tau", "--hparams: 'tau' is not NAME=VALUE; for example tau=0.1,alpha=0.9"),
        ("tau=", "is not NAME=VALUE"),
        ("=1", "is not NAME=VALUE"),
        ("tau=1,tau=2", "--hparams: tau is given twice; give it once"),
    ],
)
def test_wrong_pairs_are_told(text, message):
    with pytest.raises(ValueError) as error:
        hparams.pairs(text)
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("tau=linear_schedule(1.0, -0.5, 100)", "tau=linear_schedule(1.0, -0.5, 100) is -0.5 in round 100"),
        ("alpha=decay(0.5, 1.1)", "which is not valid for fedeba_plus; give alpha=0.9 (in [0, 1])"),
        ("tau=polynomial_schedule(1.0, 0.1, cubic, 100)", "is no schedule"),
        ("prior=anneal(1, 2)", "prior=anneal(1, 2) is not valid"),
    ],
)
def test_a_schedule_must_keep_to_the_bounds(text, names):
    with pytest.raises(ValueError, match="--hparams") as error:
        hparams.read("fedeba_plus", hparams.pairs(text))
    assert names in str(error.value)


def test_a_temperature_may_be_solved_for():
    own = hparams.read("fedeba", {"tau": "solve(1.5)"})
    numbers, static = values.split(own)
    assert numbers == [1.5]
    assert values.join(numbers, static)["tau"].make() == weights.solve(1.5)
    with pytest.raises(ValueError, match="is not known; give one of anneal"):
        hparams.read("fedeba_plus", {"alpha": "solve(1.5)"})
