"""From what flags ask for to runs: a grid, a random sample of one, or a list; times algorithms, times seeds."""

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from experiments.command import calls, compatibility, hparams, tasks
from experiments.command.runs import Run
from experiments.command.tasks import Task
from experiments.command.values import shown

Assignment = dict[str, str]  # name -> text of its value
RANGE = ".."
MOST_RUNS = 10_000  # unless --max_runs says otherwise


def parse_axis(text: str) -> tuple[str, list[str]]:
    """ "tau=0.1,1" as a name and texts of values; a range is written 0.01..10, or 0.01..10:log."""
    name, equals, values = (part.strip() for part in text.partition("="))
    texts = calls.split(values)
    if not equals or not name or not all(texts):
        raise ValueError(f"--grid={shown(text)} is not NAME=VALUE,VALUE,...; for example --grid=tau=0.1,1")
    if len(set(texts)) < len(texts):
        raise ValueError(f"--grid={shown(text)} names a value twice; give each once")
    return name, texts


def check_count(count: int, most: int, what: str) -> None:
    """An error if something, so called, would be too many runs; asked before they are made."""
    if count > most:
        raise ValueError(f"{what} makes {count} runs, more than --max_runs={most}; give fewer, or raise --max_runs")


def grid(axes: Sequence[tuple[str, list[str]]], most: int = MOST_RUNS) -> list[Assignment]:
    """Every combination."""
    _distinct([name for name, _ in axes])
    for name, texts in axes:
        if any(map(_is_range, texts)):
            raise ValueError(f"--grid={shown(_written(name, texts))} is a range; ranges need --random=NUMBER_OF_POINTS")
    check_count(math.prod(len(texts) for _, texts in axes), most, "--grid")
    return [dict(zip([n for n, _ in axes], values, strict=True)) for values in itertools.product(*(v for _, v in axes))]


def sampled(
    axes: Sequence[tuple[str, list[str]]], count: int, seed: int | Sequence[int], most: int = MOST_RUNS
) -> list[Assignment]:
    """`count` random combinations: of lists uniformly, of ranges uniformly or (":log") log-uniformly."""
    _distinct([name for name, _ in axes])
    if not axes:
        raise ValueError(f"--random={count} has nothing to draw from; give --grid=NAME=LOW..HIGH, or a list of values")
    check_count(count, most, f"--random={count}")
    rng = np.random.default_rng(seed)
    return [{name: _draw(name, texts, rng) for name, texts in axes} for _ in range(count)]


def listed(texts: Sequence[str]) -> list[Assignment]:
    """--point=tau=0.1,alpha=0.9 each."""
    for text in texts:
        if not all(calls.split(text)):
            raise ValueError(f"--point={shown(text)} is not NAME=VALUE,NAME=VALUE,...; give a value for each name")
    return [hparams.pairs(text, flag=f"--point={shown(text)}") for text in texts]


def make(
    algorithms: Sequence[str],
    assignments: Sequence[Assignment],
    *,
    task_name: str,
    changes: dict[str, Any],
    seeds: Sequence[int],
    flag: str = "--grid",
    most: int = MOST_RUNS,
    **others: Any,
) -> list[Run]:
    """All runs, seeds innermost. A name that only some algorithms take is left out for the others.

    Args:
      algorithms: their names.
      assignments: texts of hyper-parameters and fields of the task.
      task_name: of the task.
      changes: fields of the task that differ from it in every run.
      seeds: one run for each.
      flag: where the assignments come from, for errors.
      most: runs that there may be.
      **others: further fields of `Run`.
    """
    known = {algorithm: hparams.known(algorithm) for algorithm in algorithms}
    if len(known) < len(algorithms) or not known:
        raise ValueError(f"--algorithm={','.join(algorithms)} must name different algorithms; give each once")
    what = f"{len(known)} algorithms x {len(assignments)} points x {len(seeds)} seeds"
    check_count(len(known) * len(assignments) * len(seeds), most, what)
    tasks.resolve(task_name, changes)
    for name in {name for assignment in assignments for name in assignment}:
        if name not in tasks.FIELDS and not any(name in k for k in known.values()):
            takes = "; ".join(f"{algorithm} takes {hparams.describe(algorithm)}" for algorithm in algorithms)
            fields = ", ".join(tasks.FIELDS)
            raise ValueError(f"{flag}: nothing is called {shown(name)!r}; {takes}; fields of the task: {fields}")
    runs: dict[str, Run] = {}
    for algorithm in algorithms:
        for assignment in assignments:
            own = {name: text for name, text in assignment.items() if name in known[algorithm]}
            of_task = {name: text for name, text in assignment.items() if name in tasks.FIELDS and name not in own}
            values = hparams.read(algorithm, own, flag=flag)
            task = _task(algorithm, values, tasks.resolve(task_name, changes | of_task))
            for seed in seeds:
                run = Run(algorithm, values, task_name, task, seed, **others)
                runs.setdefault(run.id, run)
    return list(runs.values())


def _task(algorithm: str, values: dict[str, Any], task: Task) -> Task:
    """The task as the algorithm takes it; an error if it does not."""
    task = compatibility.everybody(algorithm, values, task)
    compatibility.check(algorithm, values, task)
    return task


def _distinct(names: Sequence[str]) -> None:
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"--grid={shown(name)}=... is given twice; give all its values in one --grid")


def _is_range(text: str) -> bool:
    return RANGE in text and not calls.is_call(text)  # a call may have a path in it


def _written(name: str, texts: list[str]) -> str:
    return f"{name}={','.join(texts)}"


def _draw(name: str, texts: list[str], rng: np.random.Generator) -> str:
    if not any(map(_is_range, texts)):
        return texts[rng.integers(len(texts))]
    span, _, scale = texts[0].partition(":")
    try:
        low, high = (float(part) for part in span.split(RANGE))
    except ValueError:
        low, high = math.nan, math.nan
    finite = math.isfinite(low) and math.isfinite(high) and math.isfinite(high - low)
    if len(texts) > 1 or scale not in ("", "log") or not finite or not low < high or (scale == "log" and low <= 0):
        raise ValueError(f"--grid={shown(_written(name, texts))} is not a range; write LOW..HIGH or LOW..HIGH:log")
    value = math.exp(rng.uniform(math.log(low), math.log(high))) if scale else rng.uniform(low, high)
    return f"{value:.6g}"
