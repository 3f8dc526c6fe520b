"""Names with arguments on the command line."""

import pytest

from experiments.command import calls, hparams, values
from fedeba_jax.aggregation import AGGREGATORS
from fedeba_jax.attacks import ATTACKS
from fedeba_jax.schedules import SCHEDULES


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
    assert str(call) == written
    assert calls.parse(SCHEDULES, written, "x") == call


@pytest.mark.parametrize(
    ("table", "text", "written"),
    [
        (ATTACKS, "mimic(0.2)", "mimic(0.2)"),
        (ATTACKS, "mimic(0.2, loss=honest)", "mimic(0.2)"),
        (ATTACKS, "scaling(0.2, 1, loss=inflate(add=3))", "scaling(0.2, factor=1.0, loss=inflate(add=3.0))"),
        (
            AGGREGATORS,
            "trimmed_mean(2, nnm(2, first=clipping(1)))",
            "trimmed_mean(2, first=nnm(2, first=clipping(1.0)))",
        ),
        (AGGREGATORS, "median(first=nothing)", "median"),
    ],
)
def test_a_call_may_have_calls_in_it(table, text, written):
    call = calls.parse(table, text, "--flag")
    assert str(call) == written
    assert calls.parse(table, written, "--flag") == call
    assert call.make()
    shares = [number for number in values.split(call)[0]]
    assert all(isinstance(number, values.Traced) for number in shares)


@pytest.mark.parametrize(
    ("table", "text", "names"),
    [
        (ATTACKS, "mimic", "--flag=mimic lacks share; give mimic(share (in [0, 1]), loss=honest (honest | inflate"),
        (ATTACKS, "mimic(2)", "share=2 is not valid for mimic; give share (in [0, 1])"),
        (ATTACKS, "mimic(0.2, loss=tall)", "loss=tall is not known; give one of honest(), inflate(add, factor)"),
        (AGGREGATORS, "krum(1, first=mda(1))", "first=mda(1) is not known; give one of nothing(), nnm(f, first)"),
    ],
)
def test_errors_of_calls_in_calls_name_the_place(table, text, names):
    with pytest.raises(ValueError, match="flag") as error:
        calls.parse(table, text, "--flag")
    assert names in str(error.value)
    assert "\n" not in str(error.value)


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
        ("anneal(,0.1)", "initial= is not valid for anneal"),
        ("anneal(0.5, 0.1,)", "shape= is not valid for anneal"),
        (f"linear_schedule(1.0, {'[' * 3000}, 3)", "end_value=[[["),
    ],
)
def test_a_wrong_call_is_one_clear_line(text, names):
    with pytest.raises(ValueError) as error:
        hparams.read("fedeba_plus", {"tau": text}) if text.endswith(")") else calls.parse(SCHEDULES, text, "--x")
    assert names in str(error.value)
    assert "\n" not in str(error.value)
