"""Numbers that may be traced apart from all else, and together again."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments.command import hparams, values
from experiments.command.tasks import resolve
from experiments.command.values import Call, Traced
from fedeba_jax.schedules import anneal
from tests.support.runs import MINI, make

TEXTS = {"tau": "anneal(0.5, kappa=0.01, shape=convex)", "alpha": "0.3", "fair_scale": "none"}


def settings(**changes):
    return "fedeba_plus", hparams.read("fedeba_plus", TEXTS), resolve(MINI, changes)


def test_split_and_join_are_a_round_trip():
    before = settings(server="adam(0.1, b1=0.8)", privacy="paper(2)", local_epochs=1)
    numbers, static = values.split(before)
    assert all(type(number) is Traced for number in numbers)
    assert values.join(numbers, static) == before
    assert values.plain(list(values.join(numbers, static))[1]) == values.plain(before[1])


def test_join_puts_tracers_where_the_numbers_were():
    numbers, static = values.split(settings())

    @jax.jit
    def lr_and_kappa(numbers):
        _, own, task = values.join(numbers, static)
        return task.lr, own["tau"].arguments["kappa"]

    assert [float(number) for number in lr_and_kappa([float(n) for n in numbers])] == pytest.approx([0.1, 0.01])


def test_settings_that_differ_in_numbers_only_have_one_static_part():
    first, second = (values.split(settings(lr=lr, server=f"sgd({lr})")) for lr in (0.1, 0.7))
    assert first[1] == second[1]
    assert first[0] != second[0]
    assert len(first[0]) == len(second[0])
    for changes in ({"steps": 3}, {"server": "adam(0.1)"}, {"batch_size": 0}, {"dirichlet": 0.2}):
        assert values.split(settings(**changes))[1] != first[1]


def test_none_and_words_are_static():
    numbers, static = values.split({"fair_scale": None, "prior": "none", "tau": Traced(1.0), "window": 3})
    assert numbers == [1.0]
    assert values.join([2.0], static) == {"fair_scale": None, "prior": "none", "tau": 2.0, "window": 3}


def test_numbers_of_a_schedule_are_traced_and_its_shape_is_not():
    own = hparams.read("fedeba_plus", {"tau": TEXTS["tau"], "alpha": "0.3"})
    assert str(own["tau"]) == "anneal(0.5, 0.01, shape=convex)"
    numbers, static = values.split(own["tau"])
    traced = {name: value for name, value in own["tau"].arguments.items() if isinstance(value, Traced)}
    assert traced == {"initial": 0.5, "kappa": 0.01, "minimum": 0.001}
    assert sorted(numbers) == sorted(traced.values())
    assert "convex" in static.leaves
    rounds = jnp.arange(50)
    whole = values.join(numbers, static)
    np.testing.assert_array_equal(whole.make()(rounds), anneal(0.5, 0.01, "convex")(rounds))
    assert (own["alpha"], own["prior"]) == (0.3, "none")


def test_plain_is_what_json_has():
    (run,) = make(text="tau=anneal(0.5, 0.01)", server="adam(0.1)")
    written = values.plain(run.hparams)
    others = {"alpha": 0.9, "theta": 0.0, "fair_scale": None, "prior": "none", "weigh_by": "after"}
    assert written == {"tau": "anneal(0.5, 0.01)", **others}
    assert type(written["alpha"]) is float
    task = values.plain(run.task)
    assert (task["server"], task["lr"], task["steps"]) == ("adam(0.1)", 0.1, 2)
    assert set(task) == {field.name for field in dataclasses.fields(run.task)}


@pytest.mark.parametrize(
    ("value", "text", "short"),
    [(None, "none", "none"), (True, "true", "true"), (0.25, "0.25", "0.25"), (1e-8, "1e-08", "1e-08"),
     (Traced(1 / 3), "0.3333333333333333", "0.333333"), ("all", "all", "all"), (3, "3", "3")],
)  # fmt: skip
def test_values_as_text(value, text, short):
    assert (values.text(value), values.short(value)) == (text, short)


def test_a_call_of_nothing_is_its_name():
    assert str(Call("none", lambda: None, {})) == "none"
