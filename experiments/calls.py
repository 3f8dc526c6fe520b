"""Names with arguments on the command line: anneal(0.5, kappa=0.01, shape=convex), sgd(1.0).

Such a text is checked against the signature of the function that it names. Its numbers that may be traced
stay numbers of the program, so texts that differ in them only share a compilation.
"""

import ast
import inspect
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from fedeba_jax.algorithms.signature import Hyperparameter, hyperparameters

Table = Mapping[str, Callable[..., Any]]
_OPEN, _CLOSE = "([{", ")]}"


class Call(NamedTuple):
    """A name and values of all parameters of the function that it stands for."""

    name: str
    arguments: dict[str, Any]


def split(text: str, separator: str = ",") -> list[str]:
    """The parts of a text at separators outside all parentheses, stripped."""
    parts, depth, begin = [], 0, 0
    for position, letter in enumerate(text):
        depth += (letter in _OPEN) - (letter in _CLOSE)
        if letter == separator and depth == 0:
            parts.append(text[begin:position])
            begin = position + 1
    return [part.strip() for part in [*parts, text[begin:]]]


def is_call(text: str) -> bool:
    return text.endswith(")") and "(" in text


def parse(table: Table, text: str, place: str) -> Call:
    """A text as a call of one of the table's functions; errors begin with the place, as --hparams: tau."""
    name, parenthesis, inside = text.strip().partition("(")
    name = name.strip()
    if name not in table or bool(parenthesis) != text.strip().endswith(")"):
        raise ValueError(f"{place}={text} is not known; give {describe_all(table)}")
    known = hyperparameters(table[name])
    items = [item for item in split(inside.strip()[:-1]) if item]
    values: dict[str, Any] = {}
    for position, item in enumerate(items):
        key, equals, value = (part.strip() for part in item.partition("="))
        if not equals:
            positional = list(known)[position : position + 1]
            key, value = (positional or [""])[0], item
        if key not in known or key in values:
            raise ValueError(f"{place}={text}: {name} takes no {item!r} there; give {describe(name, known)}")
        values[key] = read(known[key], value, place=f"{place}={text}", owner=name)
    for key, h in known.items():
        if key not in values and h.default is inspect.Parameter.empty:
            raise ValueError(f"{place}={text} lacks {key}; give {describe(name, known)}")
    return Call(name, {key: values.get(key, h.default) for key, h in known.items()})


def write(table: Table, call: Call) -> str:
    """The shortest text of a call: what has no default by place, the rest by name if it is not the default."""
    known = hyperparameters(table[call.name])
    required = [_text(call.arguments[k]) for k, h in known.items() if h.default is inspect.Parameter.empty]
    changed = [
        f"{k}={_text(call.arguments[k])}"
        for k, h in known.items()
        if h.default is not inspect.Parameter.empty and call.arguments[k] != h.default
    ]
    given = ", ".join([*required, *changed])
    return f"{call.name}({given})" if given else call.name


def traced(table: Table, call: Call) -> tuple[dict[str, float], Call]:
    """A call apart: its numbers that may be traced, and the rest."""
    known = hyperparameters(table[call.name])
    numbers = {k: v for k, v in call.arguments.items() if known[k].traced and v is not None}
    return numbers, Call(call.name, {k: v for k, v in call.arguments.items() if k not in numbers})


def read(h: Hyperparameter, text: str, *, place: str, owner: str) -> Any:
    """The value of a parameter from its text, checked against its kind, bounds and choices."""
    if h.optional and text.lower() == "none":
        return None
    value: Any
    try:
        value = _BOOLS[text.lower()] if h.kind is bool else _literal(text) if h.kind is object else h.kind(text)
    except (ValueError, KeyError, SyntaxError):
        value = None
    valid = value is not None and (not h.bounds or value in h.bounds) and (not h.choices or value in h.choices)
    if not valid:
        raise ValueError(f"{place}: {h.name}={text} is not valid for {owner}; give {describe_one(h)}")
    return value


def describe_one(h: Hyperparameter) -> str:
    valid = " | ".join(map(str, h.choices)) if h.choices else str(h.bounds) if h.bounds else _kind(h.kind)
    default = "" if h.default is inspect.Parameter.empty else f"={_text(h.default)}"
    return f"{h.name}{default} ({valid}{' or none' if h.optional else ''})"


def describe(name: str, known: Mapping[str, Hyperparameter]) -> str:
    return f"{name}({', '.join(describe_one(h) for h in known.values())})" if known else name


def describe_all(table: Table) -> str:
    return "one of " + ", ".join(f"{n}({', '.join(hyperparameters(f))})" for n, f in table.items())


def _literal(text: str) -> Any:
    """Of functions that are not ours, whose annotations say little: any Python literal, else a word."""
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        if not text.isidentifier():
            raise
        return text


def _kind(kind: Any) -> str:
    return "value" if kind is object else kind.__name__


def _text(value: Any) -> str:
    return str(value).lower() if value is None or isinstance(value, bool) else str(value)


_BOOLS = {"true": True, "1": True, "false": False, "0": False}
