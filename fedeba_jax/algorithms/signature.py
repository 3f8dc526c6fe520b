"""Hyper-parameters of an algorithm, read off its factory's signature.

What is annotated `Scalar` (or one of its bounded forms) is traced: any number of values share one
compilation. Everything else is static.
"""

import inspect
import types
from collections.abc import Callable
from typing import Annotated, Any, Literal, NamedTuple, Union, get_args, get_origin

from fedeba_jax.types import Bounds, Scalar


class Hyperparameter(NamedTuple):
    name: str
    default: Any
    traced: bool
    kind: Any  # float for traced ones; otherwise int, float, bool or str
    optional: bool  # whether None is a value
    bounds: Bounds | None = None
    choices: tuple[Any, ...] = ()


def hyperparameters(factory: Callable[..., Any]) -> dict[str, Hyperparameter]:
    """The keyword-only parameters of an algorithm's factory, by name."""
    parameters = inspect.signature(factory).parameters.values()
    return {p.name: _read(p) for p in parameters if p.kind is inspect.Parameter.KEYWORD_ONLY}


def _read(parameter: inspect.Parameter) -> Hyperparameter:
    kind, optional, bounds, choices = parameter.annotation, False, None, ()
    if kind != Scalar and get_origin(kind) in (types.UnionType, Union) and type(None) in get_args(kind):
        optional = True
        (kind,) = (a for a in get_args(kind) if a is not type(None))
    if get_origin(kind) is Annotated:
        kind, bounds = get_args(kind)
    if get_origin(kind) is Literal:
        choices, kind = get_args(kind), str
    traced = kind == Scalar
    return Hyperparameter(
        parameter.name, parameter.default, traced, float if traced else kind, optional, bounds, choices
    )
