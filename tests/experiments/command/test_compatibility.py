"""Options compose: every pair that the table allows runs, every other is refused in one line."""

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fedeba_jax
from experiments.command import compatibility, hparams
from experiments.command.tasks import resolve
from fedeba_jax.aggregation import nnm, trimmed_mean
from fedeba_jax.attacks import sign_flipping
from fedeba_jax.hyperparameters import hyperparameters
from fedeba_jax.lies import max_plus
from fedeba_jax.objectives import cross_entropy, lsr
from fedeba_jax.privacy import MODES
from fedeba_jax.server import SERVERS
from fedeba_jax.weights import solve
from tests.support.marks import slow_but
from tests.support.problems import tiny
from tests.support.runs import MINI

TEXT = {  # of an option, on the command line: fields of the task and hyper-parameters
    "an optimizer": ({"server": "adam(0.1)"}, None),
    "varp": ({"server": "varp(1.0)"}, None),
    "lsr": ({"objective": "lsr(gamma=0.2)"}, None),
    "label_noise": ({"label_noise": 0.5}, None),
    "paper": ({"privacy": "paper(2)"}, None),
    "example": ({"privacy": "example(2)"}, None),
    "client": ({"privacy": "client(2)"}, None),
    "a robust rule": ({"aggregator": "trimmed_mean(1, first=nnm(1))"}, None),
    "an attack": ({"attack": "sign_flipping(0.5, loss=max_plus(1))"}, None),
    "a schedule": ({}, "decay({default}, 0.9999)"),
    "solve": ({}, "solve(1.2)"),
}
PAIRS = list(itertools.product(fedeba_jax.ALGORITHMS, compatibility.TABLE))
ALLOWED = [(name, option) for name, option in PAIRS if name in compatibility.TABLE[option]]
REFUSED = [
    (name, option) for name, option in PAIRS if name not in compatibility.TABLE[option] and option in compatibility.WHY
]
COVERING = [  # every algorithm, every option
    (name, takes[place % len(takes)])
    for place, name in enumerate(fedeba_jax.ALGORITHMS)
    for takes in [
        [option for option, takers in compatibility.TABLE.items() if name in takers and option != "label_noise"]
    ]
]


def settings(name, option):
    fields, value = TEXT[option]
    text = ""
    if value:
        traced = [h for h in hyperparameters(fedeba_jax.ALGORITHMS[name]).values() if h.traced]
        first = next(h for h in traced if h.rule or option != "solve")
        text = f"{first.name}={value.format(default=first.default or 0.1)}"
    return hparams.read(name, hparams.pairs(text)), resolve(MINI, fields)


def one_round(name, option):
    """A function of a number (the option's own, where it has one) that runs a round with the option on."""
    problem = tiny()
    algorithm = fedeba_jax.ALGORITHMS[name]

    def run(number, state):
        changed = {"objective": cross_entropy(problem.model)}
        server, more, private = SERVERS["sgd"](1.0), {}, MODES["none"]()
        if option == "an optimizer":
            server = SERVERS["adam"](number)
        elif option == "varp":
            server = SERVERS["varp"](number)
        elif option == "lsr":
            changed = {"objective": lsr(problem.model, 10, gamma=number, views="same")}
        elif option == "a robust rule":
            server = fedeba_jax.robust(server, trimmed_mean(1, first=nnm(1)))
        elif option in MODES:
            private = MODES[option](number)
        elif option == "solve":
            more = {"tau": solve(1 + number)}
        local = fedeba_jax.LocalTraining(
            learning_rate=0.1, steps=problem.steps, batch_size=problem.batch_size, apply=problem.model.apply, **changed
        )
        if option == "a schedule":
            traced = [h for h in hyperparameters(algorithm).values() if h.traced]
            more = {h.name: lambda t, h=h: (h.default or 0.1) * (1 - 0.1 * number * (t + 1)) for h in traced}
        made = fedeba_jax.scheduled(functools.partial(algorithm, private.local(local), private.server(server)), **more)
        if state is None:
            state = fedeba_jax.start(made, problem.model.init, jax.random.key(0), sizes=problem.sizes)
        return fedeba_jax.run_round(
            made, problem.federation, state, jax.random.key(1), jnp.asarray(1), sizes=problem.sizes,
            client_map=jax.vmap, attack=sign_flipping(number, loss=max_plus()) if option == "an attack" else None,
        )  # fmt: skip

    return run


def test_the_table_covers_every_option_and_every_algorithm():
    assert set(TEXT) == set(compatibility.TABLE)
    assert {name for name, _ in COVERING} == set(fedeba_jax.ALGORITHMS)
    assert {option for _, option in COVERING} >= set(compatibility.TABLE) - {
        "label_noise",
        "paper",
        "example",
        "client",
    }
    refusing = {option for option, takers in compatibility.TABLE.items() if takers != compatibility.EVERY}
    assert refusing - {"a schedule", "solve"} == set(compatibility.WHY)


@pytest.mark.parametrize(("name", "option"), ALLOWED)
def test_what_the_table_allows_is_accepted_and_has_a_program(name, option):
    values, task = settings(name, option)
    assert option in compatibility.chosen(values, task)
    compatibility.check(name, values, task)
    if option != "label_noise":  # a matter of the data alone
        step = one_round(name, option)
        state, info = jax.eval_shape(lambda: step(0.1, None))
        assert jax.tree.leaves(state.server)
        assert info["finite"].shape == ()


@pytest.mark.parametrize(("name", "option"), REFUSED)
def test_what_it_does_not_allow_is_refused_in_one_line_and_by_the_library(name, option):
    values, task = settings(name, option)
    with pytest.raises(ValueError, match=f"--algorithm={name} is not possible") as error:
        compatibility.check(name, values, task)
    assert "\n" not in str(error.value)
    step = one_round(name, option)
    with pytest.raises(ValueError, match=r"privacy|varp|aggregator"):
        jax.eval_shape(lambda: step(0.1, None))


@pytest.mark.parametrize(
    ("text", "fields", "names"),
    [
        ("", {"server": "varp(1.0)", "privacy": "client(2)"}, "varp with --privacy=client(2.0) is not possible"),
        ("", {"server": "varp(1.0)", "aggregator": "median"}, "varp with --aggregator=median is not possible"),
        ("", {"privacy": "client(2)", "aggregator": "median"}, "a robust rule with --privacy=client(2.0)"),
        ("", {"privacy": "client(2)", "attack": "inf(0.2)"}, "an attack with --privacy=client(2.0) is not possible"),
        ("tau=solve(1.2)", {"privacy": "client(2)"}, "solve with --privacy=client(2.0) is not possible"),
    ],
)
def test_options_that_clash(text, fields, names):
    with pytest.raises(ValueError, match="is not possible") as error:
        compatibility.check("fedeba", hparams.read("fedeba", hparams.pairs(text)), resolve(MINI, fields))
    assert names in str(error.value)


def runs_finite_in_one_compilation(name, option):
    traces, step = [], one_round(name, option)

    @jax.jit
    def run(number):
        traces.append(option)
        state, _ = step(number, None)
        return step(number, state)

    for number in (0.05, 0.1):
        state, info = run(number)
        assert bool(info["finite"])
        assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(state.server))
    assert len(traces) == 1


OF_EACH = {option: name for name, option in COVERING}  # one algorithm of each option; all pairs have a program, above


@pytest.mark.parametrize(("name", "option"), slow_but([(name, option) for option, name in OF_EACH.items()], COVERING))
def test_a_covering_set_runs_finite_in_one_compilation(name, option):
    runs_finite_in_one_compilation(name, option)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "option"), [pair for pair in ALLOWED if pair[1] != "label_noise"])
def test_every_allowed_pair_runs_finite_in_one_compilation(name, option):
    runs_finite_in_one_compilation(name, option)
