"""What a method goes with is declared once: refusals, participation and visible signatures follow."""

import dataclasses
import inspect
import math

import jax
import jax.numpy as jnp
import optax
import pytest

import fedeba_jax
from fedeba_jax import privacy
from fedeba_jax.algorithm import one_model
from fedeba_jax.hyperparameters import Range, hyperparameters, is_valid
from fedeba_jax.local import LocalTraining
from fedeba_jax.method import Declaration, declared, method, supposed_rule, uses_everybody
from fedeba_jax.server import sgd
from fedeba_jax.types import Sizes
from tests.support.problems import tiny

LOCAL, SERVER = LocalTraining(objective=None, learning_rate=0.1, batch_size=4), sgd(1.0)
MODES = {"paper": privacy.paper(1.0), "example": privacy.example(1.0), "client": privacy.client(1.0)}
every_algorithm = pytest.mark.parametrize("name", fedeba_jax.ALGORITHMS)


def toy(**declaration):
    """A method that does nothing, declared so."""

    @method(**declaration)
    def made(local, server, *, variant="D", rate=1.0):
        """Of no use."""
        return one_model(server, lambda state, cohort: (state, {}))

    return made


def with_mode(factory, mode, **hparams):
    return factory(mode.local(LOCAL), mode.server(SERVER), **hparams)


# Declarations.


def test_a_method_declares_what_it_goes_with():
    declaration = {
        "privacy": ("client",),
        "weighted_sum": False,
        "hears_losses": False,
        "everyone_if": {"variant": "S"},
    }
    declaration |= {"logits": True, "search": {"tau": Range(0.1, 1.0)}}
    assert declared(toy(**declaration)) == Declaration(**declaration)
    bare = Declaration(privacy=(), weighted_sum=True, hears_losses=True, logits=False, everyone_if={}, search={})
    assert declared(toy()) == Declaration() == bare


def test_what_is_not_declared_goes_with_the_defaults():
    assert declared(lambda local, server: None) == Declaration()


def test_attackers_suppose_what_the_hyper_parameters_say():
    robust, moves = fedeba_jax.ALGORITHMS["robust_fedeba_plus"], jnp.array([[1.0], [1.0], [5.0], [-1.0]])

    def supposed(**hparams):
        return float(supposed_rule(robust, hparams)(moves, jnp.arange(4))[0][0])

    assert supposed() == pytest.approx(4 / 3), "no longer than two median lengths, and only those that agree"
    assert supposed(norm_clip=5.0) == pytest.approx(7 / 3)
    assert supposed(norm_clip=lambda round_: 3.0 - round_) == pytest.approx(5 / 3), "of a schedule the first value"
    assert supposed(trust="off") == pytest.approx(3 / 4)
    assert supposed_rule(robust, {"level": "loss_only"}) is None
    assert supposed_rule(fedeba_jax.fedeba_plus, {}) is None


@every_algorithm
def test_every_method_is_declared_and_its_declaration_speaks_of_what_it_has(name):
    factory = fedeba_jax.ALGORITHMS[name]
    assert isinstance(factory.declaration, Declaration)
    assert set(declared(factory).privacy) <= set(privacy.REASONS)
    assert set(declared(factory).everyone_if) <= set(inspect.signature(factory).parameters)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("fedavg", Declaration(privacy=("example", "client"), hears_losses=False)),
        ("fedeba", Declaration(privacy=("client",), search={"tau": Range(0.05, 20.0)})),
        (
            "fedeba_plus",
            Declaration(("paper",), search={"tau": Range(0.05, 20.0), "alpha": Range(0.0, 0.95, log=False)}),
        ),
        ("qffl", Declaration(search={"q": Range(0.001, 15.0)})),
        ("lp_proj", Declaration(weighted_sum=False, hears_losses=False, search={"lam": Range(0.1, 50.0)})),
        ("fedwavg", Declaration(hears_losses=False, logits=True, search={"alpha": Range(0.0, 1.0, log=False)})),
        ("afl", Declaration(everyone_if={"participation": "all"}, search={"gamma": Range(0.01, 1.0)})),
    ],
)
def test_declarations_of_some(name, expected):
    assert declared(fedeba_jax.ALGORITHMS[name]) == expected


@every_algorithm
def test_every_range_that_is_searched_holds_the_default_of_a_traced_number_and_valid_values_alone(name):
    factory = fedeba_jax.ALGORITHMS[name]
    known = hyperparameters(factory)
    for searched, within in declared(factory).search.items():
        h = known[searched]
        assert h.traced, "a static value would be another compilation"
        assert within.low <= h.default <= within.high
        assert within.low < within.high
        assert is_valid(h, within.low)
        assert is_valid(h, within.high)
        assert within.low > 0 or not within.log


def test_a_range_is_written_as_a_sweep_takes_it():
    assert [str(Range(0.05, 20.0)), str(Range(0.0, 0.9, log=False))] == ["0.05..20:log", "0..0.9"]


# Signatures.


def test_the_signature_of_a_factory_is_visible():
    parameters = inspect.signature(fedeba_jax.fedeba_plus).parameters
    assert list(parameters) == ["local", "server", "tau", "alpha", "theta", "fair_scale", "prior", "weigh_by"]
    assert {n: p.default for n, p in parameters.items() if p.kind is inspect.Parameter.KEYWORD_ONLY} == {
        "tau": 0.1, "alpha": 0.9, "theta": 0.0, "fair_scale": None, "prior": "none", "weigh_by": "after",
    }  # fmt: skip


@every_algorithm
def test_a_declared_factory_looks_as_it_was_written(name):
    factory = fedeba_jax.ALGORITHMS[name]
    written = factory.__wrapped__
    assert inspect.signature(factory) == inspect.signature(written)
    assert (factory.__name__, factory.__doc__) == (name, written.__doc__)
    assert factory.__module__.startswith("fedeba_jax.algorithms.")


def test_arguments_that_a_method_does_not_have_are_refused():
    with pytest.raises(TypeError, match="sigma"):
        toy()(LOCAL, SERVER, sigma=1.0)
    with pytest.raises(TypeError, match="server"):
        toy()(LOCAL)


# Privacy.


@pytest.mark.parametrize("mode", MODES)
def test_a_method_refuses_modes_that_it_does_not_declare(mode):
    with pytest.raises(ValueError, match=f"privacy={mode} is not possible here: ") as error:
        with_mode(toy(privacy=tuple(other for other in MODES if other != mode)), MODES[mode])
    assert privacy.REASONS[mode] in str(error.value)
    assert "\n" not in str(error.value)
    with_mode(toy(privacy=(mode,)), MODES[mode])
    with_mode(toy(), privacy.none())


def test_collaborators_are_looked_at_however_they_are_passed():
    limited = MODES["client"].local(LOCAL)
    for call in (lambda f: f(limited, SERVER), lambda f: f(server=SERVER, local=limited)):
        with pytest.raises(ValueError, match="privacy=client"):
            call(toy())


@every_algorithm
@pytest.mark.parametrize("mode", MODES)
def test_a_method_takes_the_modes_of_its_declaration_and_no_others(name, mode):
    factory = fedeba_jax.ALGORITHMS[name]
    if mode in declared(factory).privacy:
        with_mode(factory, MODES[mode])
    else:
        with pytest.raises(ValueError, match=f"privacy={mode} is not possible here"):
            with_mode(factory, MODES[mode])


# Predictions.


@every_algorithm
def test_methods_that_look_at_predictions_say_so(name):
    """Without `apply` they, and only they, fail."""
    problem = tiny(cohort_size=6)
    local = LocalTraining(fedeba_jax.cross_entropy(problem.model), 0.1, steps=1, batch_size=4)
    algorithm = fedeba_jax.ALGORITHMS[name](local, fedeba_jax.descent(optax.sgd(1.0)))

    def one_round(key):
        state = fedeba_jax.start(algorithm, problem.model.init, key, sizes=problem.sizes)
        return fedeba_jax.run_round(
            algorithm, problem.federation, state, key, 0, sizes=problem.sizes, client_map=jax.vmap
        )

    if declared(fedeba_jax.ALGORITHMS[name]).logits:
        with pytest.raises(ValueError, match=r"apply=model\.apply"):
            jax.eval_shape(one_round, jax.random.key(0))
    else:
        jax.eval_shape(one_round, jax.random.key(0))


# Methods that use every client.

EVERYBODY = [("afl", {"participation": "all"}), ("aaggff", {"variant": "S"})]


@pytest.mark.parametrize(("name", "hparams"), EVERYBODY)
def test_a_method_of_all_clients_refuses_a_cohort(name, hparams):
    assert uses_everybody(fedeba_jax.ALGORITHMS[name], hparams)
    assert not uses_everybody(fedeba_jax.ALGORITHMS[name], {})
    problem, key = tiny(4), jax.random.key(0)
    with pytest.raises(ValueError, match=rf"cohort_size=4, but {name} with .* set cohort_size=6"):
        problem.algorithm(name, **hparams).init(key, problem.model.init, problem.sizes)
    problem.algorithm(name, **hparams).init(key, problem.model.init, tiny(6).sizes)


def test_other_methods_take_any_cohort():
    others = [factory for name, factory in fedeba_jax.ALGORITHMS.items() if name not in dict(EVERYBODY)]
    assert not any(uses_everybody(factory, {}) for factory in others)


def test_a_default_may_be_what_uses_everybody():
    factory, key = toy(everyone_if={"variant": "D", "rate": 1.0}), jax.random.key(0)
    assert uses_everybody(factory, {})
    assert not uses_everybody(factory, {"rate": 2.0})
    message = r"cohort_size=2, but made with variant='D', rate=1.0 uses every client .* set cohort_size=3"
    with pytest.raises(ValueError, match=message):
        factory(LOCAL, SERVER).init(key, lambda key: 0.0, Sizes(3, 2, 1, 1))
    factory(LOCAL, SERVER).init(key, lambda key: 0.0, Sizes(3, 3, 1, 1))
    factory(LOCAL, SERVER, rate=2.0).init(key, lambda key: 0.0, Sizes(3, 2, 1, 1))


def test_a_method_made_of_another_keeps_its_own_name_and_declaration():
    """FedSGD is FedAvg with one step; PropFair is FedAvg too, but without its privacy."""
    assert fedeba_jax.fedsgd.__name__ == "fedsgd"
    limited = dataclasses.replace(LOCAL, limits=privacy.Limits(1.0, 2.3, 2.0))
    fedeba_jax.fedsgd(limited, MODES["client"].server(SERVER))
    with pytest.raises(ValueError, match="privacy=client"):
        fedeba_jax.propfair(limited, SERVER)


# Numbers.


@pytest.mark.parametrize(
    ("name", "hparams", "message"),
    [
        ("fedeba", {"tau": -1.0}, "fedeba: tau=-1.0 is not valid; give a finite number > 0"),
        (
            "fedeba",
            {"tau": math.inf},
            "fedeba: tau=inf (not finite in programs) is not valid; give a finite number > 0",
        ),
        ("fedeba_plus", {"alpha": 5}, "fedeba_plus: alpha=5 is not valid; give a finite number in [0, 1]"),
        ("fedeba_plus", {"theta": -10}, "fedeba_plus: theta=-10 is not valid; give a finite number in [0, 180]"),
        ("qffl", {"q": math.inf}, "qffl: q=inf (not finite in programs) is not valid; give a finite number >= 0"),
        ("term", {"t": math.nan}, "term: t=nan is not valid; give a finite number"),
        ("fedfv", {"window": -1}, "fedfv: window=-1 is not valid; give a whole number >= 0"),
        ("focus", {"clusters": 2.5}, "focus: clusters=2.5 is not valid; give a whole number >= 1"),
    ],
)
def test_numbers_out_of_their_bounds_are_refused(name, hparams, message):
    with pytest.raises(ValueError) as error:
        fedeba_jax.ALGORITHMS[name](LOCAL, SERVER, **hparams)
    assert str(error.value) == message


@every_algorithm
def test_every_number_with_a_bound_is_checked(name):
    factory = fedeba_jax.ALGORITHMS[name]
    for h in hyperparameters(factory).values():
        if h.bounds is not None:
            with pytest.raises(ValueError, match=f"^{name}: {h.name}=-1 is not valid; give "):
                factory(LOCAL, SERVER, **{h.name: -1})


def test_numbers_that_are_traced_are_not_looked_at():
    jax.eval_shape(lambda tau: fedeba_jax.fedeba(LOCAL, SERVER, tau=tau) and tau, -1.0)
