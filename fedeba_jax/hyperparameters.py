"""Hyper-parameters: the types that factories annotate them with, and how these are read off a signature.

What is annotated `Scalar`, or one of its bounded forms such as `Positive`, is traced: any number of values share one
compilation. Everything else is static.
"""

import functools
import inspect
import math
import operator
import types
from collections.abc import Callable
from typing import Annotated, Any, Literal, NamedTuple, Union, get_args, get_origin

from fedeba_jax.types import Scalar


class Bounds(NamedTuple):
    """The valid values of a number; checked at the edge, where it is not traced yet."""

    low: float
    high: float = math.inf
    open: bool = False  # whether `low` itself is excluded

    def __contains__(self, value: object) -> bool:
        if not isinstance(value, int | float):
            return False
        return (value > self.low if self.open else value >= self.low) and value <= self.high

    def __str__(self) -> str:
        if self.high == math.inf:
            return f"{'>' if self.open else '>='} {self.low:g}"
        return f"in {'(' if self.open else '['}{self.low:g}, {self.high:g}]"


Positive = Annotated[Scalar, Bounds(0, open=True)]
NonNegative = Annotated[Scalar, Bounds(0)]
Fraction = Annotated[Scalar, Bounds(0, 1)]
Degrees = Annotated[Scalar, Bounds(0, 180)]
Temperature = Annotated[Scalar, Bounds(0, open=True), "temperature"]  # or a rule, `weights.solve`
Natural = Annotated[int, Bounds(0)]
Count = Annotated[int, Bounds(1)]  # static, as Natural

COLLABORATORS = ("local", "server", "model", "rounds", "data_dir")
"""Parameters that are not the user's: values that the program passes to a factory."""


class Hyperparameter(NamedTuple):
    """One parameter of a factory."""

    name: str
    default: Any  # inspect.Parameter.empty: none
    traced: bool
    kind: Any  # float for traced ones; otherwise int, float, bool or str; object where the annotation says no more
    optional: bool  # whether None is a value
    bounds: Bounds | None = None
    choices: tuple[Any, ...] = ()
    rule: str | None = None  # the kind of rules (`weights.RULES`) that may stand for the number

    @property
    def required(self) -> bool:
        return self.default is inspect.Parameter.empty


def hyperparameters(factory: Callable[..., Any]) -> dict[str, Hyperparameter]:
    """The parameters of a factory, by name, in order."""
    parameters = inspect.signature(factory).parameters.values()
    return {p.name: _read(p) for p in parameters if p.name not in COLLABORATORS}


def collaborators(factory: Callable[..., Any]) -> set[str]:
    """Names of the collaborators that a factory takes."""
    return inspect.signature(factory).parameters.keys() & COLLABORATORS


def check(name: str, value: Any, valid: Any) -> None:
    """An error for a value that a Literal type does not have; factories call it before anything is traced."""
    if value not in get_args(valid):
        raise ValueError(f"{name}={value!r} is not one of {', '.join(map(str, get_args(valid)))}")


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
