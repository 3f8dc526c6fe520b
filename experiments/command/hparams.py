"""Hyper-parameters on the command line, checked against the algorithm's signature.

A number that may be traced may also be a schedule by round, tau=anneal(0.5, kappa=0.01, shape=convex), and a
temperature a rule, tau=solve(1.2).
"""

from collections.abc import Iterable, Mapping
from typing import Any

from experiments.command import calls
from experiments.command.values import Call, shown
from fedeba_jax import ALGORITHMS
from fedeba_jax.hyperparameters import Hyperparameter, hyperparameters, is_valid
from fedeba_jax.schedules import SCHEDULES
from fedeba_jax.weights import RULES

CHECKED_ROUNDS = (0, 1, 10, 100, 1000, 10_000)  # where a schedule must keep to its parameter's bounds


def pairs(written: str, *, flag: str = "--hparams") -> dict[str, str]:
    """ "tau=0.1,alpha=0.9" as texts by name."""
    texts: dict[str, str] = {}
    for item in filter(None, calls.split(written)):
        name, equals, value = (part.strip() for part in item.partition("="))
        if not equals or not name or not value:
            raise ValueError(f"{flag}: {shown(item)!r} is not NAME=VALUE; for example tau=0.1,alpha=0.9")
        if name in texts:
            raise ValueError(f"{flag}: {shown(name)} is given twice; give it once")
        texts[name] = value
    return texts


def known(algorithm: str) -> dict[str, Hyperparameter]:
    """The hyper-parameters of an algorithm, by name."""
    if algorithm not in ALGORITHMS:
        raise ValueError(f"--algorithm={shown(algorithm)} is not known; choose one of {', '.join(ALGORITHMS)}")
    return hyperparameters(ALGORITHMS[algorithm])


def check_names(algorithm: str, names: Iterable[str], *, flag: str = "--hparams") -> dict[str, Hyperparameter]:
    """The hyper-parameters of an algorithm; an error if one of the names is not among them."""
    parameters = known(algorithm)
    for name in names:
        if name not in parameters:
            raise ValueError(f"{flag}: {algorithm} has no {shown(name)!r}; it takes {describe(algorithm)}")
    return parameters


def read(algorithm: str, texts: Mapping[str, str], *, flag: str = "--hparams") -> dict[str, Any]:
    """Values by name, the rest at its defaults; errors name the flag."""
    parameters = check_names(algorithm, texts, flag=flag)
    values = {name: calls.default(h) for name, h in parameters.items()}
    for name, written in texts.items():
        h = parameters[name]
        if h.traced and calls.is_call(written):
            values[name] = _varying(h, written, place=flag, owner=algorithm)
        else:
            values[name] = calls.read(h, written, place=flag, owner=algorithm)
    return values


def describe(algorithm: str) -> str:
    """The valid hyper-parameters with their defaults."""
    return ", ".join(calls.describe_one(h) for h in known(algorithm).values()) or "none"


def _varying(h: Hyperparameter, written: str, *, place: str, owner: str) -> Call:
    """A schedule, or a rule, in place of a number."""
    rules = RULES[h.rule] if h.rule else {}
    place = f"{place}: {h.name}"
    call = calls.parse({**rules, **SCHEDULES}, written, place)
    place = f"{place}={shown(written)}"
    try:
        made = call.make()  # its own errors: of arguments that do not go together
        values = {} if call.name in rules else {round_: float(made(round_)) for round_ in CHECKED_ROUNDS}
    except ValueError as error:
        raise ValueError(f"{place} is not possible: {shown(str(error))}") from None
    except (TypeError, AttributeError, LookupError, ArithmeticError):
        takes = calls.describe(call.name, hyperparameters(call.function))
        raise ValueError(f"{place} is no schedule; give {takes}") from None
    for round_, value in values.items():
        if not is_valid(h, value):
            valid = f"not valid for {owner}; give {calls.describe_one(h)}"
            raise ValueError(f"{place} is {value:g} in round {round_}, which is {valid}")
    return call
