"""Recorded runs, run again: whether they give the same numbers.

On the same kind of machine, with the same versions, all rows are equal to the last digit that is kept. Elsewhere sums
are rounded differently, and training amplifies that within some twenty rounds: the run is then like one with another
seed. So it passes if its last figures lie within `TOLERANCE` standard deviations over seeds of what was recorded.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from experiments.command import grids
from experiments.command.runs import Run
from experiments.command.tasks import FIELDS
from experiments.command.values import text
from experiments.execution import folder

TOLERANCE = 3.0
FIGURES = ("mean", "variance")
Rows = list[dict[str, Any]]


class Difference(NamedTuple):
    """What came out differently."""

    rows: int  # that were compared
    different: int  # of them
    last: dict[str, tuple[float, float, float]]  # figure -> recorded, again, std over seeds, by the last evaluations

    @property
    def passes(self) -> bool:
        return not self.different or all(abs(a - b) <= TOLERANCE * std for a, b, std in self.last.values())


def recorded(path: Path) -> dict[str, Rows]:
    """The rows of the finished runs of a folder."""
    rows = folder.read_rows(path / folder.RESULTS)
    done = folder.finished(rows)
    return {run: [row for row in rows if row["run"] == run] for run in sorted(done)}


def as_run(row: dict[str, Any], task_name: str) -> Run:
    """The run that a row was made by."""
    settings = row["settings"]
    (made,) = grids.make(
        [row["algorithm"]],
        [{name: text(value) for name, value in row["hparams"].items()}],
        task_name=task_name,
        changes={name: value for name, value in settings.items() if name in FIELDS},
        seeds=[row["seed"]],
        flag="the recorded run",
        **{name: value for name, value in settings.items() if name not in FIELDS},
    )
    return made


def made_on(path: Path, rows: Rows) -> str:
    """The machine that wrote the last of these rows of a folder, in words."""
    return folder.told_machine(folder.description(path)["origins"][rows[-1]["origin"]])


def companions(runs: dict[str, Rows], chosen: str, count: int = 2) -> list[str]:
    """The chosen run, and others of its setting: as many as share the devices in the way that a sweep does."""
    own = _setting(runs[chosen])
    others = [run for run, rows in runs.items() if run != chosen and _setting(rows) == own]
    return [chosen, *others][:count]


def compare(before: Rows, now: Rows, every: Sequence[Rows]) -> Difference:
    """Two recordings of a run; `every` is all recorded runs of its setting."""
    names = [name for name in before[0] if isinstance(before[0][name], int | float) and name != "origin"]
    by_place = {_place(row): row for row in now}
    pairs = [(row, by_place.get(_place(row), {})) for row in before]
    different = [(a, b) for a, b in pairs if any(a[name] != b.get(name) for name in names)]
    last = {}
    for name in FIGURES:
        std = float(np.std([_last(rows, name) for rows in every]))
        last[name] = (_last(before, name), _last(now, name), std)
    return Difference(len(pairs), len(different), last)


def _setting(rows: Rows) -> tuple[Any, ...]:
    return rows[0]["algorithm"], rows[0]["hparams"], rows[0]["settings"]


def _place(row: dict[str, Any]) -> tuple[Any, ...]:
    return row["round"], row["split"], row["model"]


def _number(row: dict[str, Any], name: str) -> float:
    value = row.get(name)
    return float("nan") if value is None else value


def _last(rows: Rows, name: str) -> float:
    """The figure of a run on test data."""
    shown = folder.shown({row["model"] for row in rows})
    return folder.figure([_number(row, name) for row in rows if (row["split"], row["model"]) == ("test", shown)])
