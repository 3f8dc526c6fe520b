"""Hyper-parameters as signatures tell them: traced or static, their bounds and choices."""

import inspect
import math
import re
from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fedeba_jax
from fedeba_jax.hyperparameters import (
    Bounds,
    Count,
    Degrees,
    Fraction,
    Natural,
    NonNegative,
    Positive,
    Temperature,
    check,
    check_values,
    checked,
    collaborators,
    hyperparameters,
)
from fedeba_jax.types import Scalar
from fedeba_jax.weights import solve

Shape = Literal["round", "square"]


def factory(
    local, server, model, rounds, *,
    required: Positive, tau: Temperature = 1.0, share: Fraction = 0.5, plain: Scalar = 2.0, angle: Degrees = 0.0,
    perhaps: NonNegative | None = None, window: Natural = 3, clusters: Count = 2, shape: Shape = "round",
    either: Shape | None = None, flag: bool = False, word: str = "x", fixed: float = 0.1, other=None,
):  # fmt: skip
    """One of each kind."""


FOUND = hyperparameters(factory)


def test_collaborators_are_not_hyperparameters():
    assert collaborators(factory) == {"local", "server", "model", "rounds"}
    assert list(FOUND) == [name for name in inspect.signature(factory).parameters if name not in collaborators(factory)]


def test_what_is_annotated_as_a_scalar_is_traced():
    traced = {name for name, h in FOUND.items() if h.traced}
    assert traced == {"required", "tau", "share", "plain", "perhaps", "angle"}
    assert all(FOUND[name].kind is float for name in traced)


def test_kinds_of_static_ones():
    kinds = {name: h.kind for name, h in FOUND.items() if not h.traced}
    assert kinds == {
        "window": int, "clusters": int, "shape": str, "either": str, "flag": bool, "word": str, "fixed": float,
        "other": object,
    }  # fmt: skip


def test_defaults_choices_rules_and_what_may_be_none():
    assert [name for name, h in FOUND.items() if h.required] == ["required"]
    assert FOUND["window"].default == 3
    assert [name for name, h in FOUND.items() if h.optional] == ["perhaps", "either"]
    assert {name: h.choices for name, h in FOUND.items() if h.choices} == {
        "shape": ("round", "square"), "either": ("round", "square")
    }  # fmt: skip
    assert {name: h.rule for name, h in FOUND.items() if h.rule} == {"tau": "temperature"}


@pytest.mark.parametrize(
    ("name", "valid", "wrong", "text"),
    [
        ("required", [1e-9, 5, math.inf], [0, -1], "> 0"),
        ("perhaps", [0, 0.0, 7], [-1e-9], ">= 0"),
        ("share", [0, 0.3, 1], [-0.1, 1.1], "in [0, 1]"),
        ("angle", [0, 180], [180.1], "in [0, 180]"),
        ("window", [0, 3], [-1], ">= 0"),
        ("clusters", [1], [0], ">= 1"),
    ],
)
def test_bounds(name, valid, wrong, text):
    bounds = FOUND[name].bounds
    assert all(value in bounds for value in valid)
    assert not any(value in bounds for value in [*wrong, math.nan, "1", None])
    assert str(bounds) == text


def test_bounds_that_are_open_below_and_closed_above():
    assert str(Bounds(0, 1, open=True)) == "in (0, 1]"
    assert 0 not in Bounds(0, 1, open=True)
    assert 1 in Bounds(0, 1, open=True)


def test_what_has_no_bounds():
    assert {name for name, h in FOUND.items() if h.bounds is None} == {
        "plain", "shape", "either", "flag", "word", "fixed", "other"
    }  # fmt: skip


def test_a_word_that_is_not_a_choice_is_told_with_the_choices():
    check("shape", "square", Shape)
    with pytest.raises(ValueError, match=r"^shape='oval' is not one of round, square$"):
        check("shape", "oval", Shape)


def test_the_registry_knows_what_is_traced_and_its_bounds():
    found = {name: hyperparameters(fedeba_jax.ALGORITHMS[name]) for name in ("qffl", "fedmgda_plus", "fedfv")}
    assert found["qffl"]["q"].traced
    assert found["fedmgda_plus"]["eps"].traced
    assert not found["fedfv"]["alpha"].traced
    assert (found["fedfv"]["alpha"].kind, found["fedfv"]["window"].kind) == (float, int)
    assert 1.1 not in found["fedfv"]["alpha"].bounds
    assert -1 not in found["fedfv"]["window"].bounds


# Values.


@pytest.mark.parametrize(
    ("name", "value", "wanted"),
    [
        ("required", 0.0, "a finite number > 0"),
        ("required", math.inf, "a finite number > 0"),
        ("required", 1e-50, "a finite number > 0"),  # 0 in float32
        ("required", 1e50, "a finite number > 0"),  # infinite in float32
        ("required", 10**400, "a finite number > 0"),
        ("required", "0.1", "a finite number > 0"),
        ("required", None, "a finite number > 0"),
        ("required", True, "a finite number > 0"),
        ("required", np.ones(2), "a finite number > 0"),
        ("tau", -1, "a finite number > 0"),
        ("tau", "solve", "a finite number > 0"),
        ("share", np.float64(1.5), "a finite number in [0, 1]"),
        ("share", jnp.asarray(1.5), "a finite number in [0, 1]"),
        ("angle", -10, "a finite number in [0, 180]"),
        ("plain", math.nan, "a finite number"),
        ("perhaps", -1.0, "a finite number >= 0"),
        ("fixed", math.inf, "a finite number"),
        ("window", -1, "a whole number >= 0"),
        ("window", 2.0, "a whole number >= 0"),
        ("clusters", 0, "a whole number >= 1"),
        ("clusters", True, "a whole number >= 1"),
        ("flag", "no", "True or False"),
    ],
)
def test_a_value_that_is_not_valid_is_told_with_what_is(name, value, wanted):
    with pytest.raises(ValueError, match=rf"^factory: {name}=.* is not valid; give {re.escape(wanted)}$"):
        check_values(factory, {name: value})


def test_an_error_shows_the_number_without_its_type():
    for value in (5, 5.0, np.float64(5), jnp.asarray(5.0)):
        with pytest.raises(ValueError, match=r"share=5(\.0)? is"):
            check_values(factory, {"share": value})


def test_values_that_are_valid_pass():
    values = {
        "required": np.float32(3), "tau": solve(1.2), "share": jnp.asarray(0.5), "plain": -2, "perhaps": None,
        "window": np.int64(0), "flag": np.True_, "word": "y", "fixed": 1, "other": object(), "shape": "square",
    }  # fmt: skip
    check_values(factory, values)
    check_values(factory, {"share": lambda round_: 5.0})  # a schedule


def test_tracers_pass():
    """Their values are not known; nothing may look at them."""

    def run(value):
        check_values(factory, {"required": value, "share": value})
        return value

    assert jax.jit(run)(-3.0) == -3


def test_a_checked_factory_looks_as_it_was_written():
    @checked
    def half(share: Fraction = 0.5) -> float:
        """Its half."""
        return share / 2

    assert (half(), half(1.0), half.__doc__) == (0.25, 0.5, "Its half.")
    assert list(hyperparameters(half)) == ["share"]
    with pytest.raises(ValueError, match=r"^half: share=2 is not valid; give a finite number in \[0, 1\]$"):
        half(2)
