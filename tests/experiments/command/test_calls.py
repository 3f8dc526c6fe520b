"""Names with arguments on the command line, and schedules among the hyper-parameters."""

import dataclasses

import jax.numpy as jnp
import numpy as np
import pytest

from experiments import calls, hparams, points
from experiments.program import Seeds
from experiments.tasks import TASKS, resolve, traced
from fedeba_jax import weights
from fedeba_jax.schedules import SCHEDULES, anneal


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("a,b", ["a", "b"]),
        ("tau=anneal(0.5, kappa=0.01), alpha=1", ["tau=anneal(0.5, kappa=0.01)", "alpha=1"]),
        ("f({1: 2, 3: 4}, [5, 6]),7", ["f({1: 2, 3: 4}, [5, 6])", "7"]),
        ("", [""]),
    ],
)
def test_commas_inside_parentheses_do_not_split(text, parts):
    assert calls.split(text) == parts


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("anneal(0.5, kappa=0.01, shape=convex)", "anneal(0.5, 0.01, shape=convex)"),
        ("anneal( kappa=0.01,initial=0.5 )", "anneal(0.5, 0.01)"),
        ("decay(1)", "decay(1.0)"),
        ("linear_schedule(1.0, 0.1, 100)", "linear_schedule(1.0, 0.1, 100)"),
        ("piecewise_constant_schedule(1, {9: 0.5})", "piecewise_constant_schedule(1, boundaries_and_scales={9: 0.5})"),
    ],
)
def test_a_call_is_kept_as_its_shortest_text(text, written):
    call = calls.parse(SCHEDULES, text, "--hparams: tau")
    assert calls.write(SCHEDULES, call) == written
    assert calls.parse(SCHEDULES, written, "x") == call


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("nothing(1)", "is not known; give one of solve(target, of), anneal(initial, kappa, shape, minimum), decay("),
        ("anneal(0.5", "is not known"),
        ("anneal(0.5)", "lacks kappa; give anneal(initial (> 0), kappa (>= 0)"),
        ("anneal(0.5, 0.1, speed=3)", "takes no 'speed=3' there"),
        ("anneal(0.5, 0.1, kappa=3)", "takes no 'kappa=3' there"),
        ("anneal(0.5, 0.1, round)", "shape=round is not valid for anneal; give shape=linear (linear | concave"),
        ("anneal(-1, 0.1)", "initial=-1 is not valid for anneal; give initial (> 0)"),
        ("linear_schedule(1.0, 0.1, 2 3)", "transition_steps=2 3 is not valid"),
    ],
)
def test_a_wrong_call_is_one_clear_line(text, names):
    with pytest.raises(ValueError) as error:
        hparams.parse("fedeba_plus", f"tau={text}") if text.endswith(")") else calls.parse(SCHEDULES, text, "--x")
    assert names in str(error.value)
    assert "\n" not in str(error.value)


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
        hparams.parse("fedeba_plus", text)
    assert names in str(error.value)


def test_numbers_of_a_schedule_are_traced_and_its_shape_is_not():
    values = hparams.parse("fedeba_plus", "tau=anneal(0.5, kappa=0.01, shape=convex), alpha=0.3")
    assert values["tau"] == "anneal(0.5, 0.01, shape=convex)"
    numbers, static = hparams.traced("fedeba_plus", values)
    assert numbers["tau"] == {"initial": 0.5, "kappa": 0.01, "minimum": 0.001}
    whole = hparams.together("fedeba_plus", numbers, static)
    rounds = jnp.arange(50)
    np.testing.assert_array_equal(whole["tau"](rounds), anneal(0.5, 0.01, "convex")(rounds))
    assert (whole["alpha"], whole["prior"]) == (0.3, "none")


def test_a_temperature_may_be_solved_for():
    values = hparams.parse("fedeba", "tau=solve(1.5)")
    numbers, static = hparams.traced("fedeba", values)
    assert numbers == {"tau": {"target": 1.5}}
    assert hparams.together("fedeba", numbers, static)["tau"] == weights.solve(1.5)
    with pytest.raises(ValueError, match="is not known; give one of anneal"):
        hparams.parse("fedeba_plus", "alpha=solve(1.5)")


@pytest.mark.parametrize(
    ("changes", "names"),
    [
        ({"server": "sgd"}, "--server=sgd lacks learning_rate; give sgd(learning_rate (> 0))"),
        ({"server": "sgd(0)"}, "--server=sgd(0): learning_rate=0 is not valid for sgd"),
        ({"server": "sdg(1.0)"}, "--server=sdg(1.0) is not known; give one of sgd(learning_rate)"),
        ({"objective": "hinge"}, "--objective=hinge is not known"),
    ],
)
def test_a_wrong_option_of_a_task_is_one_clear_line(changes, names):
    with pytest.raises(ValueError, match="--") as error:
        resolve("mnist_mlp", changes)
    assert names in str(error.value)


def test_numbers_of_an_option_are_traced():
    numbers, static = traced(resolve("mnist_mlp", {"server": "sgd( learning_rate = 0.5 )"}))
    assert numbers["server"] == {"learning_rate": 0.5}
    assert static == traced(resolve("mnist_mlp", {}))[1]
    assert resolve("mnist_mlp", {"objective": "cross_entropy()"}) == resolve("mnist_mlp", {})


def test_points_that_differ_in_numbers_of_a_schedule_share_a_compilation():
    texts = ["anneal(0.5, 0.01)", "anneal(1, 0.1)", "anneal(1, 0.1, shape=convex)", "0.5", "0.1"]
    name, values = points.parse_axis(f"tau={','.join(texts)}")
    task = dataclasses.replace(TASKS["fashion_mnist_mini_mlp"], test_split="sharded_official")
    made = points.make(
        ["fedeba"], points.grid([(name, values)]), task_name="fashion_mnist_mini_mlp", task=task, seeds=(0,),
        seeds_of=lambda s: Seeds(s, s, s), validation=0.1,
    )  # fmt: skip
    assert [len(group) for group in points.grouped(made)] == [2, 1, 2]
    assert len({point.id for point in made}) == 5
