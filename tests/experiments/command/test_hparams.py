"""Hyper-parameters as text, schedules and rules among them."""

import pytest

from experiments.command import hparams, values
from experiments.command.values import Traced
from fedeba_jax import weights
from fedeba_jax.schedules import SCHEDULES


def test_values_have_their_kinds_and_the_rest_its_defaults():
    read = hparams.read("fedeba_plus", {"tau": "0.5", "fair_scale": "none"})
    assert read == {"tau": 0.5, "alpha": 0.9, "theta": 0.0, "fair_scale": None, "prior": "none", "weigh_by": "after"}
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
        ("tau=polynomial_schedule(1.0, 0.1, cubic, 100)", "power=cubic is not valid for polynomial_schedule"),
        ("tau=linear_schedule(1.0, low, 100)", "is no schedule; give linear_schedule(init_value (value), end_value"),
        ("tau=linear_schedule(1.0, 1e400, 100)", "is nan in round 0"),
        ("prior=anneal(1, 2)", "prior=anneal(1, 2) is not valid"),
    ],
)
def test_a_schedule_must_keep_to_the_bounds(text, names):
    with pytest.raises(ValueError, match="--hparams") as error:
        hparams.read("fedeba_plus", hparams.pairs(text))
    assert names in str(error.value)


@pytest.mark.parametrize(
    ("text", "names"),
    [
        (
            "linear_schedule(1, 0.1, 0)",
            "transition_steps=0 is not valid for linear_schedule; give transition_steps (>=",
        ),
        ("linear_schedule(1, 0.1, 9, -3)", "transition_begin=-3 is not valid"),
        ("polynomial_schedule(1, 0.1, 0, 100)", "power=0 is not valid"),
        ("polynomial_schedule(1, 0.1, 2, 0)", "transition_steps=0 is not valid"),
        ("exponential_decay(1, 0, 0.5)", "transition_steps=0 is not valid"),
        ("exponential_decay(1, 10, 0)", "decay_rate=0 is not valid"),
        ("cosine_decay_schedule(1, 0, 0.1)", "decay_steps=0 is not valid"),
        ("cosine_decay_schedule(1, 100, 0.1, exponent=0)", "exponent=0 is not valid"),
        ("piecewise_constant_schedule(1)", "boundaries_and_scales=None has no pieces; give {ROUND: FACTOR, ...}"),
        ("piecewise_constant_schedule(1, {})", "boundaries_and_scales={} has no pieces"),
        ("piecewise_constant_schedule(1, {0: 0.5})", "boundaries_and_scales={0: 0.5} has no pieces"),
        ("piecewise_interpolate_schedule(linear, 1)", "boundaries_and_scales=None has no pieces"),
        ("warmup_constant_schedule(0.1, 1, 0)", "warmup_steps=0 is not valid"),
        ("warmup_cosine_decay_schedule(0.1, 1, 0, 100, 0.1)", "warmup_steps=0 is not valid"),
        ("warmup_exponential_decay_schedule(0.1, 1, 5, 10, 0)", "decay_rate=0 is not valid"),
        ("cosine_onecycle_schedule(0, 1)", "transition_steps=0 is not valid"),
        ("linear_onecycle_schedule(0, 1)", "transition_steps=0 is not valid"),
        ("sgdr_schedule([])", "cosine_kwargs=[] has no cycles; give a list of dicts of arguments"),
    ],
)
def test_a_schedule_that_would_never_change_is_told(text, names):
    with pytest.raises(ValueError, match=r"^--hparams: tau=") as error:
        hparams.read("fedeba_plus", {"tau": text})
    assert names in str(error.value)
    assert "\n" not in str(error.value)


def test_every_schedule_has_a_use():
    texts = [
        "anneal(1, 0.1)", "decay(1)", "linear_schedule(1, 0.1, 9)", "polynomial_schedule(1, 0.1, 2, 100)",
        "exponential_decay(1, 10, 0.999)", "cosine_decay_schedule(1, 100, 0.1)",
        "piecewise_constant_schedule(1, {9: 0.5})", "piecewise_interpolate_schedule(linear, 1, {9: 0.5})",
        "warmup_constant_schedule(0.1, 1, 5)", "warmup_cosine_decay_schedule(0.1, 1, 5, 100, 0.1)",
        "warmup_exponential_decay_schedule(0.1, 1, 5, 10, 0.999)", "cosine_onecycle_schedule(100, 1)",
        "linear_onecycle_schedule(100, 1)",
        "sgdr_schedule([{'init_value': 1, 'peak_value': 2, 'warmup_steps': 5, 'decay_steps': 10, 'end_value': 1}])",
    ]  # fmt: skip
    assert [text.partition("(")[0] for text in texts] == list(SCHEDULES)
    for text in texts:
        call = hparams.read("fedeba_plus", {"tau": text})["tau"]
        assert hparams.read("fedeba_plus", {"tau": str(call)})["tau"] == call


def test_a_temperature_may_be_solved_for():
    own = hparams.read("fedeba", {"tau": "solve(1.5)"})
    numbers, static = values.split(own)
    assert numbers == [1.5]
    assert values.join(numbers, static)["tau"].make() == weights.solve(1.5)
    with pytest.raises(ValueError, match="is not known; give one of anneal"):
        hparams.read("fedeba_plus", {"alpha": "solve(1.5)"})
