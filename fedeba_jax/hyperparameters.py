"""Hyper-parameters: the types that factories annotate them with, and how these are read off a signature.

What is annotated `Scalar`, or one of its bounded forms such as `Positive`, is traced: any number of values share one
compilation. Everything else is static.
"""

import functools
import inspect
import math
import operator
import types
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Literal, NamedTuple, ParamSpec, TypeVar, Union, get_args, get_origin

import jax
import jax.numpy as jnp
import numpy as np

from fedeba_jax.types import Scalar

P = ParamSpec("P")
Made = TypeVar("Made")


class Bounds(NamedTuple):
    """The valid values of a number; checked at the edge, where it is not traced yet."""

    low: float
    high: float = math.inf
    open: bool = False  # whether `low` itself is excluded
    unlimited: bool = False  # whether infinity is a value too: a clip that clips nothing

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
INT32 = Bounds(-(2**31), 2**31 - 1)
"""Whole numbers that programs can hold."""
Natural = Annotated[int, Bounds(0)]
Count = Annotated[int, Bounds(1)]  # static, as Natural


class Range(NamedTuple):
    """Where a search for good values of a number looks: from `low` to `high`, evenly in its logarithm or in itself."""

    low: float
    high: float
    log: bool = True

    def __str__(self) -> str:
        return f"{self.low:g}..{self.high:g}{':log' * self.log}"


COLLABORATORS = ("local", "server", "model", "rounds", "data_dir", "num_classes", "aggregator")
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
    rule: str | None = None  # the kind of rules that may stand for the number (`weights.RULES`), or that it is one of

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


def checked(factory: Callable[P, Made]) -> Callable[P, Made]:
    """The factory, with an error for arguments that are not valid (`check_value`)."""

    @functools.wraps(factory)
    def function(*args: P.args, **kwargs: P.kwargs) -> Made:
        check_values(factory, inspect.signature(factory).bind(*args, **kwargs).arguments)
        return factory(*args, **kwargs)

    return function


def check_values(factory: Callable[..., Any], arguments: Mapping[str, Any]) -> None:
    """An error for the first argument of a factory that is not valid (`check_value`)."""
    for name, h in hyperparameters(factory).items():
        if name in arguments:
            check_value(factory.__name__, h, arguments[name])


def check_value(owner: str, h: Hyperparameter, value: Any) -> None:
    """An error for a number that a hyper-parameter of this owner cannot have; tracers, schedules and rules pass."""
    is_rule = h.rule is not None and hasattr(value, h.rule)
    if isinstance(value, jax.core.Tracer) or callable(value) or is_rule or (value is None and h.optional):
        return
    if not is_valid(h, value):
        wanted = {bool: "True or False", int: "a whole number"}.get(h.kind, "a finite number")
        inside = "" if h.bounds is None else f" {h.bounds}"
        raise ValueError(f"{owner}: {h.name}={shown(value)}{caveat(h, value)} is not valid; give {wanted}{inside}")


def is_valid(h: Hyperparameter, value: Any) -> bool:
    """Whether a concrete value is of the parameter's kind and within its bounds.

    A number counts as the program takes it: in float32, 1e-50 is 0 and 1e50 is infinite.
    """
    if h.kind is bool:
        return isinstance(value, bool | np.bool_)
    if h.kind is int:
        return is_whole(value) and int(value) in INT32 and (h.bounds is None or int(value) in h.bounds)
    return h.kind is not float or is_finite(value, h.bounds)


def is_finite(value: Any, bounds: Bounds | None = None) -> bool:
    """Whether a value is one concrete number, finite (or unlimited) and within the bounds as programs take it."""
    if not is_number(value):
        return False
    taken, unlimited = as_taken(value), bounds is not None and bounds.unlimited and value == math.inf
    return (math.isfinite(taken) or unlimited) and (bounds is None or taken in bounds)


def caveat(h: Hyperparameter, value: Any) -> str:
    """Why a number that looks valid is not: programs cannot hold it. "" for all others."""
    if h.kind is int and is_whole(value):
        return "" if int(value) in INT32 else " (beyond int32)"
    if h.kind is not float or not is_number(value) or not value:
        return ""
    return {math.inf: " (not finite in programs)", 0.0: " (0 in programs)"}.get(abs(as_taken(value)), "")


def shown(value: Any) -> str:
    """A value as an error names it: numbers of NumPy and JAX without their types."""
    return str(value) if is_number(value) else repr(value)


def is_number(value: Any) -> bool:
    """Whether a value is one concrete real number: of Python, NumPy or JAX."""
    if isinstance(value, bool | np.bool_ | jax.core.Tracer):
        return False
    if isinstance(value, np.ndarray | jax.Array):
        return value.ndim == 0 and (
            jnp.issubdtype(value.dtype, jnp.floating) or jnp.issubdtype(value.dtype, jnp.integer)
        )
    return isinstance(value, int | float | np.floating | np.integer)


def is_whole(value: Any) -> bool:
    """Whether a value is a whole number by its type; 3.0 is not."""
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


def as_taken(number: Any) -> float:
    """A number as programs take it, in their floating type."""
    with np.errstate(all="ignore"):
        try:
            return float(np.asarray(number).astype(jnp.result_type(float)))
        except (OverflowError, TypeError):  # an integer beyond all floats
            return math.inf


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
