"""Hyper-parameters on the command line, checked against the algorithm's signature.

A number that may be traced may also be a schedule by round, tau=anneal(0.5, kappa=0.01, shape=convex), and a
temperature a rule, tau=solve(1.2). Both are kept as their shortest texts, so that settings stay plain JSON.
"""

import dataclasses
import math
from typing import Any

from experiments import calls
from experiments.tasks import Task
from fedeba_jax import ALGORITHMS
from fedeba_jax.algorithms.participation import uses_everybody
from fedeba_jax.algorithms.signature import Hyperparameter, hyperparameters
from fedeba_jax.schedules import SCHEDULES
from fedeba_jax.weights import RULES

CHECKED_ROUNDS = (0, 1, 10, 100, 1000, 10_000)  # where a schedule must keep to its parameter's bounds


def parse(algorithm: str, text: str, *, flag: str = "--hparams") -> dict[str, Any]:
    """ "tau=0.1,alpha=0.9" as values by name, the rest at its defaults; errors name the flag."""
    if algorithm not in ALGORITHMS:
        raise ValueError(f"--algorithm={algorithm} is not known; choose one of {', '.join(ALGORITHMS)}")
    known = hyperparameters(ALGORITHMS[algorithm])
    values = {name: h.default for name, h in known.items()}
    seen: set[str] = set()
    for item in filter(None, calls.split(text)):
        name, equals, value = (part.strip() for part in item.partition("="))
        if not equals or name not in known:
            raise ValueError(f"{flag}: {algorithm} has no {item!r}; it takes {describe(algorithm)}")
        if name in seen:
            raise ValueError(f"{flag}: {name} is given twice; give it once")
        seen.add(name)
        varying = known[name].traced and calls.is_call(value)
        read = _varying if varying else calls.read
        values[name] = read(known[name], value, place=flag, owner=algorithm)
    return values


def everybody(algorithm: str, values: dict[str, Any], task: Task) -> Task:
    """The task with all clients in every cohort, if the method at these values uses every client by definition."""
    needed = uses_everybody(ALGORITHMS[algorithm], values)
    return dataclasses.replace(task, cohort_size=task.clients) if needed else task


def describe(algorithm: str) -> str:
    """The valid hyper-parameters with their defaults."""
    known = hyperparameters(ALGORITHMS[algorithm]).values()
    return ", ".join(calls.describe_one(h) for h in known) or "none"


def traced(algorithm: str, values: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Hyper-parameters apart: numbers that may be traced (of a schedule, a dict of them), and what is static."""
    known = hyperparameters(ALGORITHMS[algorithm])
    numbers: dict[str, Any] = {}
    static: dict[str, Any] = {}
    for name, value in values.items():
        if known[name].traced and isinstance(value, str):
            table = _table(known[name])
            numbers[name], static[name] = calls.traced(table, calls.parse(table, value, name))
        elif known[name].traced and value is not None:
            numbers[name] = value
        else:
            static[name] = value
    return numbers, static


def together(algorithm: str, numbers: dict[str, Any], static: dict[str, Any]) -> dict[str, Any]:
    """What `traced` took apart: schedules as functions of the round, rules as they are."""
    known = hyperparameters(ALGORITHMS[algorithm])
    values = {**static, **numbers}
    for name, value in static.items():
        if isinstance(value, calls.Call):
            values[name] = _table(known[name])[value.name](**value.arguments, **numbers[name])
    return values


def _table(h: Hyperparameter) -> calls.Table:
    """What may stand for a traced number."""
    return {**(RULES[h.rule] if h.rule else {}), **SCHEDULES}


def _varying(h: Hyperparameter, text: str, *, place: str, owner: str) -> str:
    table = _table(h)
    call = calls.parse(table, text, f"{place}: {h.name}")
    if call.name not in SCHEDULES:
        return calls.write(table, call)
    try:
        schedule = SCHEDULES[call.name](**call.arguments)
        values = {round_: float(schedule(round_)) for round_ in CHECKED_ROUNDS}
    except (TypeError, ValueError, AttributeError) as error:
        raise ValueError(f"{place}: {h.name}={text} is no schedule: {error}") from None
    for round_, value in values.items():
        if not math.isfinite(value) or (h.bounds and value not in h.bounds):
            valid = f"not valid for {owner}; give {calls.describe_one(h)}"
            raise ValueError(f"{place}: {h.name}={text} is {value:g} in round {round_}, which is {valid}")
    return calls.write(table, call)
