"""Texts of values and calls, tau=0.1 and anneal(0.5, kappa=0.01, shape=convex), checked against signatures."""

import ast
import inspect
from collections.abc import Callable, Mapping
from typing import Any

from experiments.command.values import Call, Traced, shown, text
from fedeba_jax.aggregation import FIRSTS
from fedeba_jax.hyperparameters import Hyperparameter, caveat, hyperparameters, is_valid
from fedeba_jax.lies import LIES

Table = Mapping[str, Callable[..., Any]]
NESTED: dict[str, Table] = {"lie": LIES, "first": FIRSTS}
"""The functions that a parameter may call, as in loss=inflate(100), by the kind of rule that its annotation names."""
_OPEN, _CLOSE = "([{", ")]}"
_BOOLS = {"true": True, "1": True, "false": False, "0": False}


def split(written: str, separator: str = ",") -> list[str]:
    """The parts of a text at separators outside all parentheses, stripped."""
    parts, depth, begin = [], 0, 0
    for position, letter in enumerate(written):
        depth += (letter in _OPEN) - (letter in _CLOSE)
        if letter == separator and depth == 0:
            parts.append(written[begin:position])
            begin = position + 1
    return [part.strip() for part in [*parts, written[begin:]]]


def is_call(written: str) -> bool:
    """Whether a text is a name with arguments in parentheses."""
    return written.endswith(")") and "(" in written


def parse(table: Table, written: str, place: str) -> Call:
    """A text as a call of one of the table's functions; errors begin with the place, as --hparams: tau."""
    name, parenthesis, inside = written.strip().partition("(")
    name, place = name.strip(), f"{place}={shown(written)}"
    if name not in table or bool(parenthesis) != written.strip().endswith(")"):
        raise ValueError(f"{place} is not known; give {describe_all(table)}")
    known = hyperparameters(table[name])
    items = split(inside.strip()[:-1])
    items = [] if items == [""] else items
    given: dict[str, Any] = {}
    for position, item in enumerate(items):
        key, equals, value = (part.strip() for part in item.partition("="))
        if not equals or "(" in key:  # by place; an = may be in a call
            positional = list(known)[position : position + 1]
            key, value = (positional or [""])[0], item
        if key not in known or key in given:
            raise ValueError(f"{place}: {name} takes no {shown(item)!r} there; give {describe(name, known)}")
        given[key] = read(known[key], value, place=place, owner=name)
    for key, h in known.items():
        if key not in given and h.required:
            raise ValueError(f"{place} lacks {key}; give {describe(name, known)}")
    return Call(name, table[name], {key: given.get(key, default(h)) for key, h in known.items()})


def read(h: Hyperparameter, written: str, *, place: str, owner: str) -> Any:
    """The value of a parameter from its text, checked against its kind, bounds and choices."""
    if h.optional and written.lower() == "none":
        return None
    if h.rule in NESTED:
        return parse(NESTED[h.rule], written, f"{place}: {h.name}")
    try:
        value = _of_kind(h.kind, written)
    except (ValueError, KeyError, SyntaxError, RecursionError, MemoryError):  # Python's errors on deep nesting
        value = None
    if value is None or not is_valid(h, value) or (h.choices and value not in h.choices):
        told = f"{h.name}={shown(written)}{caveat(h, value)} is not valid for {owner}"
        raise ValueError(f"{place}: {told}; give {describe_one(h)}")
    return Traced(value) if h.traced else value


def default(h: Hyperparameter) -> Any:
    """The default of a parameter, as `read` would give it."""
    if h.rule in NESTED:
        return parse(NESTED[h.rule], str(h.default), h.name)
    return Traced(h.default) if h.traced and isinstance(h.default, int | float) else h.default


def describe_one(h: Hyperparameter) -> str:
    """A parameter with its default and its valid values."""
    named = h.choices or NESTED.get(h.rule or "", ())
    valid = " | ".join(map(str, named)) if named else str(h.bounds) if h.bounds else _kind(h.kind)
    given = "" if h.default is inspect.Parameter.empty else f"={text(h.default)}"
    return f"{h.name}{given} ({valid}{' or none' if h.optional else ''})"


def describe(name: str, known: Mapping[str, Hyperparameter]) -> str:
    """A function with its parameters."""
    return f"{name}({', '.join(describe_one(h) for h in known.values())})" if known else name


def describe_all(table: Table) -> str:
    """The functions of a table with the names of their parameters."""
    return "one of " + ", ".join(f"{n}({', '.join(hyperparameters(f))})" for n, f in table.items())


def _of_kind(kind: Any, written: str) -> Any:
    """A text as a value of a kind; of functions that are not ours, which say little: any Python literal, or a word."""
    if kind is bool:
        return _BOOLS[written.lower()]
    if kind is not object:
        return kind(written)
    try:
        return ast.literal_eval(written)
    except (ValueError, SyntaxError):
        if not written.isidentifier():
            raise
        return written


def _kind(kind: Any) -> str:
    return "value" if kind is object else kind.__name__
