"""Public names, and names that would hide others."""

import importlib
import inspect
import pkgutil
import types

import pytest

import fedeba_jax

MODULES = {
    info.name: importlib.import_module(info.name) for info in pkgutil.walk_packages(fedeba_jax.__path__, "fedeba_jax.")
}
CLASSES = sorted(
    {
        member
        for module in MODULES.values()
        for member in vars(module).values()
        if inspect.isclass(member) and member.__module__ == module.__name__
    },
    key=lambda member: (member.__module__, member.__qualname__),
)
TUPLES = [member for member in CLASSES if issubclass(member, tuple)]


@pytest.mark.parametrize("name", fedeba_jax.ALGORITHMS)
def test_every_factory_is_exported_and_is_not_the_module(name):
    factory = getattr(fedeba_jax, name)
    assert factory is fedeba_jax.ALGORITHMS[name]
    assert inspect.isfunction(factory)


@pytest.mark.parametrize("name", [name for name in fedeba_jax.ALGORITHMS if name != "fedsgd"])  # FedAvg's file has both
def test_the_file_of_a_method_is_a_module_of_its_name(name):
    module = getattr(fedeba_jax.algorithms, name)
    assert isinstance(module, types.ModuleType)
    assert getattr(module, name) is getattr(fedeba_jax, name)


@pytest.mark.parametrize(
    "name",
    [
        "federate", "federation_from", "held_out", "make_model", "start", "run_round", "run_rounds", "simulate",
        "sweep", "sizes_of", "scheduled", "descent", "variance_reduced", "cross_entropy", "lsr", "LocalTraining",
    ],
)  # fmt: skip
def test_what_a_user_needs_is_at_the_top(name):
    assert callable(getattr(fedeba_jax, name))
    assert inspect.getdoc(getattr(fedeba_jax, name))


@pytest.mark.parametrize("name", ["client_map", "metrics", "privacy", "sampling", "schedules", "weights"])
def test_modules_that_a_user_needs_are_at_the_top(name):
    assert getattr(fedeba_jax, name) is MODULES[f"fedeba_jax.{name}"]


@pytest.mark.parametrize("name", MODULES)
def test_nothing_hides_a_module_of_its_name(name):
    parent, _, own = name.rpartition(".")
    assert getattr(importlib.import_module(parent), own) is MODULES[name]


def test_there_are_tuples_to_check():
    assert len(TUPLES) > 25


@pytest.mark.parametrize("kind", TUPLES, ids=lambda kind: f"{kind.__module__}.{kind.__qualname__}")
def test_no_field_of_a_tuple_hides_a_method_of_tuples(kind):
    assert not set(kind._fields) & set(dir(tuple))
