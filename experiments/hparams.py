"""Hyper-parameters on the command line, checked against the algorithm's signature."""

from typing import Any

from fedeba_jax import ALGORITHMS
from fedeba_jax.algorithms.signature import Hyperparameter, hyperparameters


def parse(algorithm: str, text: str, *, flag: str = "--hparams") -> dict[str, Any]:
    """"tau=0.1,alpha=0.9" as values by name, the rest at its defaults; errors name the flag."""
    if algorithm not in ALGORITHMS:
        raise ValueError(f"--algorithm={algorithm} is not known; choose one of {', '.join(ALGORITHMS)}")
    known = hyperparameters(ALGORITHMS[algorithm])
    values = {name: h.default for name, h in known.items()}
    seen: set[str] = set()
    for item in filter(None, (part.strip() for part in text.split(","))):
        name, equals, value = (part.strip() for part in item.partition("="))
        if not equals or name not in known:
            raise ValueError(f"{flag}: {algorithm} has no {item!r}; it takes {describe(algorithm)}")
        if name in seen:
            raise ValueError(f"{flag}: {name} is given twice; give it once")
        seen.add(name)
        values[name] = _value(algorithm, known[name], value, flag)
    return values


def describe(algorithm: str) -> str:
    """The valid hyper-parameters with their defaults."""
    known = hyperparameters(ALGORITHMS[algorithm]).values()
    return ", ".join(_describe(h) for h in known) or "none"


def _describe(h: Hyperparameter) -> str:
    valid = " | ".join(h.choices) if h.choices else str(h.bounds) if h.bounds else h.kind.__name__
    return f"{h.name}={str(h.default).lower()} ({valid}{' or none' if h.optional else ''})"


def _value(algorithm: str, h: Hyperparameter, text: str, flag: str) -> Any:
    if h.optional and text.lower() == "none":
        return None
    value: Any
    try:
        value = _BOOLS[text.lower()] if h.kind is bool else h.kind(text)
    except (ValueError, KeyError):
        value = None
    valid = value is not None and (not h.bounds or value in h.bounds) and (not h.choices or value in h.choices)
    if not valid:
        raise ValueError(f"{flag}: {h.name}={text} is not valid for {algorithm}; give {_describe(h)}")
    return value


_BOOLS = {"true": True, "1": True, "false": False, "0": False}
