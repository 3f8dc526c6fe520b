"""Settings as values: numbers that a program may trace, everything else static, and calls of named functions.

Text becomes such values once, where it enters (`calls`, `hparams`, `tasks`), and text again once, when it is written to
JSON. `split` takes the numbers out, so that settings which differ in numbers alone share a compilation; `join` puts
them, or tracers in their place, back.
"""

import dataclasses
import enum
from collections.abc import Callable
from typing import Any, NamedTuple

import jax

from fedeba_jax.hyperparameters import hyperparameters


class Traced(float):
    """A number of the program: settings that differ in it alone share a compilation."""


@dataclasses.dataclass(frozen=True)
class Call:
    """A function by name with values of all its parameters: anneal(0.5, kappa=0.01), sgd(1.0)."""

    name: str
    function: Callable[..., Any]
    arguments: dict[str, Any]

    def make(self, **collaborators: Any) -> Any:
        """What the function makes of the arguments."""
        arguments = {name: value.make() if isinstance(value, Call) else value for name, value in self.arguments.items()}
        return self.function(**collaborators, **arguments)

    def __str__(self) -> str:
        """The shortest text: what has no default by place, the rest by name if it is not the default."""
        known = hyperparameters(self.function)
        required = [text(self.arguments[name]) for name, h in known.items() if h.required]
        changed = [
            f"{name}={text(self.arguments[name])}"
            for name, h in known.items()
            if not h.required and _differs(self.arguments[name], h.default)
        ]
        given = ", ".join([*required, *changed])
        return f"{self.name}({given})" if given else self.name


jax.tree_util.register_dataclass(Call, data_fields=["arguments"], meta_fields=["name", "function"])


def _differs(value: Any, default: Any) -> bool:
    """Whether a value is another than the default, which for calls is what they would make."""
    return str(value) != str(default) if isinstance(value, Call) else value != default


class Static(NamedTuple):
    """Settings with holes where their numbers were; equal for settings that share a compilation."""

    structure: Any
    leaves: tuple[Any, ...]


class Hole(enum.Enum):
    """Where a number was: one thing, also in another process."""

    NUMBER = enum.auto()


MOST_SHOWN = 200  # letters


def split(settings: Any) -> tuple[list[Traced], Static]:
    """Settings (a tree of dicts, tuples, calls and tasks) apart: their traced numbers, and all else."""
    leaves, structure = jax.tree.flatten(settings, is_leaf=lambda leaf: leaf is None)
    numbers = [leaf for leaf in leaves if isinstance(leaf, Traced)]
    return numbers, Static(structure, tuple(Hole.NUMBER if isinstance(leaf, Traced) else leaf for leaf in leaves))


def join(numbers: Any, static: Static) -> Any:
    """What `split` took apart, with these numbers, or tracers, in place of its own."""
    given = iter(numbers)
    return jax.tree.unflatten(
        static.structure, [next(given) if leaf is Hole.NUMBER else leaf for leaf in static.leaves]
    )


def plain(settings: Any) -> Any:
    """Settings as JSON has them: calls as texts, tasks as dicts."""
    if isinstance(settings, Call):
        return str(settings)
    if isinstance(settings, dict):
        return {name: plain(value) for name, value in settings.items()}
    if dataclasses.is_dataclass(settings) and not isinstance(settings, type):
        return {field.name: plain(getattr(settings, field.name)) for field in dataclasses.fields(settings)}
    return float(settings) if isinstance(settings, Traced) else settings


def text(value: Any) -> str:
    """A value as it is written on the command line."""
    return str(value).lower() if value is None or isinstance(value, bool) else str(value)


def shown(written: str) -> str:
    """A text as an error names it: in one line, and not too long."""
    line = " ".join(written.split())
    return line if len(line) <= MOST_SHOWN else f"{line[: MOST_SHOWN // 2]} ... {line[-MOST_SHOWN // 2 :]}"


def short(value: Any) -> str:
    """The same for tables, with numbers in few digits."""
    return f"{value:g}" if isinstance(value, float) else text(value)
