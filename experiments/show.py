"""What a person sees in the terminal: a progress bar while it runs, and tables of results."""

import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
from rich.console import Console
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from experiments import run_folder

T = TypeVar("T")
console = Console(stderr=False, highlight=False)

METRICS = {  # key of a summary -> column, digits
    "mean": ("global acc. %", 2),
    "variance": ("variance", 2),
    "worst5": ("worst 5 %", 2),
    "best5": ("best 5 %", 2),
    "cv": ("C_V", 4),
    "angle": ("angle °", 2),
}

HIGHER_IS_BETTER = ("mean", "worst5", "best5")


class Bar:
    """Rounds done, rounds/s, accuracy and variance so far, time left. Plain lines where there is no terminal."""

    def __init__(self, label: str, rounds: int) -> None:
        self._label, self._rounds = label, rounds
        self._started: float | None = None
        self._first_rounds = 0
        self._live = console.is_terminal
        self._progress = Progress(
            TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[status]}"),
            TimeRemainingColumn(), console=console, disable=not self._live,
        )  # fmt: skip
        self._task = self._progress.add_task(label, total=rounds, status="compiling")
        self._last_line = -1.0

    def __enter__(self) -> "Bar":
        self._progress.start()
        return self

    def __exit__(self, *_: Any) -> None:
        self._progress.stop()

    def update(self, done: int, model: str, accuracy: float, variance: float) -> None:
        now = time.perf_counter()
        if self._started is None:  # the first chunk was mostly compilation
            self._started, self._first_rounds = now, done
        rate = (done - self._first_rounds) / max(now - self._started, 1e-9)
        whose = "" if model == "global" else f"{model} "
        status = (f"{rate:.1f} rounds/s  " if rate else "") + f"{whose}acc {accuracy:.2f} %  var {variance:.1f}"
        self._progress.update(self._task, completed=done, status=status)
        tenth = done * 10 // self._rounds
        if not self._live and tenth > self._last_line:
            self._last_line = tenth
            left = f"  {(self._rounds - done) / rate:.0f} s left" if rate else ""
            print(f"{self._label}: round {done}/{self._rounds}  {status}{left}", flush=True)


def both_ways(label: str, models: Mapping[str, T]) -> dict[str, T]:
    """What is known of a method's global model and of its personal predictions, by label."""
    return {
        label if model == "global" else f"{label} ({model})": models[model]
        for model in ("global", "personal")
        if model in models
    }


def full_cohorts(algorithm: str, clients: int) -> str:
    """The line that says why a cohort is not as large as was asked for."""
    return f"{algorithm} as asked for uses every client in every round: cohort_size={clients}"


def mean_and_spread(values: Sequence[float], digits: int) -> str:
    """The mean, and the population std over several seeds."""
    spread = f" ± {np.std(values):.{digits}f}" if len(values) > 1 else ""
    return f"{np.mean(values):.{digits}f}{spread}"


def results_table(rows: dict[str, dict[str, Sequence[float]]], title: str) -> None:
    """A row a method, mean (and population std over several seeds) of each metric; best in bold."""
    table = Table(title=title, title_justify="left")
    table.add_column("method")
    for name, _ in METRICS.values():
        table.add_column(name, justify="right")
    best = {
        key: (max if key in HIGHER_IS_BETTER else min)(np.mean(row[key]) for row in rows.values()) for key in METRICS
    }
    for method, row in rows.items():
        cells = []
        for key, (_, digits) in METRICS.items():
            cell = mean_and_spread(row[key], digits)
            cells.append(f"[bold]{cell}[/bold]" if len(rows) > 1 and np.mean(row[key]) == best[key] else cell)
        table.add_row(method, *cells)
    (console if console.is_terminal else Console(width=120, file=sys.stdout)).print(table)


class Best:
    """The best points of a sweep so far, rounds/s and time left: a live table, or a line a batch without a terminal."""

    def __init__(self, names: Sequence[str], missing: Sequence[Any], split: str, metric: str, most: int = 8) -> None:
        self._names, self._split, self._metric, self._most = names, split, metric, most
        self._left = sum(point.task.rounds for point in missing)
        self._latest: dict[str, tuple[str, dict[str, Any]]] = {}  # point -> label, its latest row
        self._diverged: set[str] = set()
        self._timed_rounds, self._timed_seconds = 0, 0.0
        self._live = Live(console=console, auto_refresh=False) if console.is_terminal else None

    def __enter__(self) -> "Best":
        if self._live:
            self._live.start()
        return self

    def __exit__(self, *_: Any) -> None:
        if self._live:
            self._live.stop()

    def tell(self, chunk: Any) -> None:
        """Take in the rows of a chunk (`sweep_run.Chunk`) and show them."""
        model = run_folder.shown({row["model"] for row in chunk.rows})
        whose = "" if model == "global" else f" ({model})"
        labels = {point.id: f"{point.label(self._names)} seed={point.seed}{whose}" for point in chunk.points}
        for row in chunk.rows:
            if row["status"] == "diverged":
                self._diverged.add(row["point"])
                self._latest.pop(row["point"], None)
            elif (row["split"], row["model"]) == (self._split, model):
                self._latest[row["point"]] = (labels[row["point"]], row)
        self._left -= chunk.rounds * len(chunk.points)
        if chunk.seconds:
            self._timed_rounds += chunk.rounds * len(chunk.points)
            self._timed_seconds += chunk.seconds
        if self._live:
            self._live.update(self._table(), refresh=True)
        elif chunk.rows[-1]["final"]:
            print(self._status(), flush=True)

    def _ranked(self) -> list[tuple[str, dict[str, Any]]]:
        sign = -1 if self._metric in HIGHER_IS_BETTER else 1
        return sorted(self._latest.values(), key=lambda item: sign * item[1][self._metric])[: self._most]

    def _status(self) -> str:
        rate = self._timed_rounds / self._timed_seconds if self._timed_seconds else None
        speed = f"{rate:.1f} rounds/s, {self._left / rate:.0f} s left" if rate else "compiled"
        best = f"; best {self._split} {self._metric}: {self._ranked()[0][0]}" if self._latest else ""
        diverged = f"; {len(self._diverged)} diverged" if self._diverged else ""
        return f"{self._left} rounds left, {speed}{diverged}{best}"

    def _table(self) -> Table:
        table = Table(title=f"best points so far, by {self._split} {self._metric}", caption=self._status())
        for name in ("point", "round", *(name for name, _ in METRICS.values())):
            table.add_column(name, justify="left" if name == "point" else "right")
        for label, row in self._ranked():
            table.add_row(label, str(row["round"]), *(f"{row[k]:.{digits}f}" for k, (_, digits) in METRICS.items()))
        return table
