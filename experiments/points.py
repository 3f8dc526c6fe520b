"""The points of a sweep: which hyper-parameters, task fields, algorithms and seeds, and how they group.

A sweep is a grid, a random sample of one, or a list of points, times algorithms, times seeds. Points that
differ in traced numbers and seeds only share a compilation and form a group.
"""

import dataclasses
import hashlib
import itertools
import json
import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from experiments import calls, hparams, options
from experiments.common_flags import checked_task
from experiments.program import Seeds
from experiments.tasks import Task
from experiments.tasks import traced as traced_fields
from fedeba_jax import ALGORITHMS
from fedeba_jax.algorithms.signature import hyperparameters

Assignment = dict[str, str]  # name -> text of its value
RANGE = ".."


@dataclasses.dataclass(frozen=True)
class Point:
    """One run of a sweep."""

    algorithm: str
    hparams: dict[str, Any]
    task_name: str
    task: Task
    seed: int
    seeds: Seeds
    validation: float
    state_dtype: str = "float32"

    @property
    def id(self) -> str:
        """Names everything the result depends on: a point is the same in whichever sweep it stands."""
        content = dataclasses.asdict(self)
        if self.state_dtype == "float32":  # points had no such field at first
            del content["state_dtype"]
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:12]

    @property
    def settings(self) -> dict[str, Any]:
        """What a row of the results says beside the algorithm."""
        changed = {} if self.state_dtype == "float32" else {"state_dtype": self.state_dtype}
        return dataclasses.asdict(self.task) | changed

    @property
    def group(self) -> str:
        """Equal for points that share a compilation."""
        task = traced_fields(self.task)[1]
        numbers, static = hparams.traced(self.algorithm, self.hparams)
        fixed = [self.algorithm, static, sorted(numbers), task, self.validation, self.state_dtype]
        return json.dumps(fixed, sort_keys=True)

    def label(self, names: Iterable[str]) -> str:
        """The point by what varies."""
        values = {**dataclasses.asdict(self.task), **self.hparams}
        return " ".join([self.algorithm, *(f"{name}={_short(values[name])}" for name in names if name in values)])


def grouped(points: Sequence[Point]) -> list[list[Point]]:
    """Points by compilation, in the order of their first appearance."""
    groups: dict[str, list[Point]] = {}
    for point in points:
        groups.setdefault(point.group, []).append(point)
    return list(groups.values())


def parse_axis(text: str) -> tuple[str, list[str]]:
    """ "tau=0.1,1" as a name and texts of values; a range is written 0.01..10, or 0.01..10:log."""
    name, equals, values = (part.strip() for part in text.partition("="))
    texts = calls.split(values)
    if not equals or not name or not all(texts):
        raise ValueError(f"--grid={text} is not NAME=VALUE,VALUE,...; for example --grid=tau=0.1,1")
    if len(set(texts)) < len(texts):
        raise ValueError(f"--grid={text} names a value twice; give each once")
    return name, texts


def grid(axes: Sequence[tuple[str, list[str]]]) -> list[Assignment]:
    """Every combination."""
    _distinct([name for name, _ in axes])
    for name, texts in axes:
        if any(RANGE in text for text in texts):
            raise ValueError(f"--grid={name}={','.join(texts)} is a range; ranges need --random=NUMBER_OF_POINTS")
    return [dict(zip([n for n, _ in axes], values, strict=True)) for values in itertools.product(*(v for _, v in axes))]


def sampled(axes: Sequence[tuple[str, list[str]]], count: int, seed: int) -> list[Assignment]:
    """`count` random combinations: of lists uniformly, of ranges uniformly or (":log") log-uniformly."""
    _distinct([name for name, _ in axes])
    rng = np.random.default_rng(seed)
    return [{name: _draw(name, texts, rng) for name, texts in axes} for _ in range(count)]


def listed(texts: Sequence[str]) -> list[Assignment]:
    """--point=tau=0.1,alpha=0.9 each."""
    assignments = []
    for text in texts:
        pairs = [item.partition("=") for item in calls.split(text)]
        if not all(name.strip() and equals and value.strip() for name, equals, value in pairs):
            raise ValueError(f"--point={text} is not NAME=VALUE,NAME=VALUE,...")
        assignments.append({name.strip(): value.strip() for name, _, value in pairs})
    return assignments


def make(
    algorithms: Sequence[str],
    assignments: Sequence[Assignment],
    *,
    task_name: str,
    task: Task,
    seeds: Sequence[int],
    seeds_of: Any,
    validation: float,
    state_dtype: str = "float32",
) -> list[Point]:
    """All points, seeds innermost. A name that only some algorithms take is left out for the others."""
    for algorithm in algorithms:
        hparams.parse(algorithm, "")  # the name is known
    known = {algorithm: hyperparameters(ALGORITHMS[algorithm]) for algorithm in algorithms}
    fields = {field.name: field.type for field in dataclasses.fields(Task)}
    for name in {name for assignment in assignments for name in assignment}:
        if name not in fields and not any(name in k for k in known.values()):
            takes = "; ".join(f"{algorithm} takes {hparams.describe(algorithm)}" for algorithm in algorithms)
            raise ValueError(f"--grid: nothing is called {name!r}; {takes}; fields of the task: {', '.join(fields)}")
    points: dict[str, Point] = {}
    for algorithm in algorithms:
        for assignment in assignments:
            own = ",".join(f"{k}={v}" for k, v in assignment.items() if k in known[algorithm])
            of_task = [k for k in assignment if k in fields and k not in known[algorithm]]
            changes = {k: _field(k, assignment[k], fields[k]) for k in of_task}
            changed = checked_task(task_name, dataclasses.asdict(task) | changes)
            values = hparams.parse(algorithm, own, flag="--grid")
            changed = hparams.everybody(algorithm, values, changed)
            options.check(algorithm, values, changed)
            for seed in seeds:
                point = Point(algorithm, values, task_name, changed, seed, seeds_of(seed), validation, state_dtype)
                points.setdefault(point.id, point)
    return list(points.values())


def varying(points: Sequence[Point]) -> list[str]:
    """Names of hyper-parameters and task fields that differ between points of one algorithm."""
    names: dict[str, None] = {}
    for algorithm in {point.algorithm: None for point in points}:
        rows = [{**dataclasses.asdict(p.task), **p.hparams} for p in points if p.algorithm == algorithm]
        names |= {name: None for name in rows[0] if any(row[name] != rows[0][name] for row in rows)}
    return list(names)


def _distinct(names: Sequence[str]) -> None:
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"--grid={name}=... is given twice; give all its values in one --grid")


def _draw(name: str, texts: list[str], rng: np.random.Generator) -> str:
    if RANGE not in texts[0]:
        return texts[rng.integers(len(texts))]
    span, _, scale = texts[0].partition(":")
    try:
        low, high = (float(part) for part in span.split(RANGE))
    except ValueError:
        low, high = math.nan, math.nan
    if len(texts) > 1 or scale not in ("", "log") or not low < high or (scale == "log" and low <= 0):
        raise ValueError(f"--grid={name}={','.join(texts)} is not a range; write LOW..HIGH or LOW..HIGH:log")
    value = math.exp(rng.uniform(math.log(low), math.log(high))) if scale else rng.uniform(low, high)
    return f"{value:.6g}"


def _field(name: str, text: str, kind: Any) -> Any:
    try:
        return kind(text)
    except ValueError:
        raise ValueError(f"--grid={name}={text} is not valid; {name} takes {kind.__name__} values") from None


def _short(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value).lower()
