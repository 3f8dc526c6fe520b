"""Hyper-parameters of an algorithm, or of a schedule, read off its factory's signature.

What is annotated `Scalar` (or one of its bounded forms) is traced: any number of values share one
compilation. Everything else is static.
"""

import functools
import inspect
import operator
import types
from collections.abc import Callable
from typing import Annotated, Any, Literal, NamedTuple, Union, get_args, get_origin

from fedeba_jax.types import Bounds, Scalar

COLLABORATORS = ("local", "server", "model", "rounds", "privacy")
"""Parameters that are not the user's: values that the program passes to a factory."""


class Hyperparameter(NamedTuple):
    name: str
    default: Any  # inspect.Parameter.empty: none
    traced: bool
    kind: Any  # float for traced ones; otherwise int, float, bool or str; object where the annotation says no more
    optional: bool  # whether None is a value
    bounds: Bounds | None = None
    choices: tuple[Any, ...] = ()
    rule: str | None = None  # the kind of rules (`weights.RULES`) that may stand for the number


def hyperparameters(factory: Callable[..., Any]) -> dict[str, Hyperparameter]:
    """The parameters of a factory, by name, in order."""
    parameters = inspect.signature(factory).parameters.values()
    return {p.name: _read(p) for p in parameters if p.name not in COLLABORATORS}


def collaborators(factory: Callable[..., Any]) -> set[str]:
    """Names of the collaborators that a factory takes."""
    return inspect.signature(factory).parameters.keys() & COLLABORATORS


def _read(parameter: inspect.Parameter) -> Hyperparameter:
    kind, optional, bounds, rule = parameter.annotation, False, None, None
    choices: tuple[Any, ...] = ()
    if kind != Scalar and get_origin(kind) in (types.UnionType, Union) and type(None) in get_args(kind):
        optional = True
        kind = functools.reduce(operator.or_, (a for a in get_args(kind) if a is not type(None)))
    if get_origin(kind) is Annotated:
        kind, *notes = get_args(kind)
        bounds = next((note for note in notes if isinstance(note, Bounds)), None)
        rule = next((note for note in notes if isinstance(note, str)), None)
    if get_origin(kind) is Literal:
        choices = get_args(kind)
        kind = type(choices[0])
    traced = kind == Scalar
    kind = float if traced else kind if kind in (int, float, bool, str) else object
    return Hyperparameter(parameter.name, parameter.default, traced, kind, optional, bounds, choices, rule)
