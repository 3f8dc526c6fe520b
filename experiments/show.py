"""What a person sees in the terminal: a progress bar while it runs, and tables of results."""

import sys
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

console = Console(stderr=False, highlight=False)

METRICS = {  # key of a summary -> column, digits
    "mean": ("global acc. %", 2),
    "variance": ("variance", 2),
    "worst5": ("worst 5 %", 2),
    "best5": ("best 5 %", 2),
    "cv": ("C_V", 4),
    "angle": ("angle °", 2),
}


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

    def update(self, done: int, accuracy: float, variance: float) -> None:
        now = time.perf_counter()
        if self._started is None:  # the first chunk was mostly compilation
            self._started, self._first_rounds = now, done
        rate = (done - self._first_rounds) / max(now - self._started, 1e-9)
        status = (f"{rate:.1f} rounds/s  " if rate else "") + f"acc {accuracy:.2f} %  var {variance:.1f}"
        self._progress.update(self._task, completed=done, status=status)
        tenth = done * 10 // self._rounds
        if not self._live and tenth > self._last_line:
            self._last_line = tenth
            left = f"  {(self._rounds - done) / rate:.0f} s left" if rate else ""
            print(f"{self._label}: round {done}/{self._rounds}  {status}{left}", flush=True)


def results_table(rows: dict[str, dict[str, Sequence[float]]], title: str) -> None:
    """A row a method, mean (and population std over several seeds) of each metric; best in bold."""
    table = Table(title=title, title_justify="left")
    table.add_column("method")
    for name, _ in METRICS.values():
        table.add_column(name, justify="right")
    best = {
        key: (max if key in ("mean", "worst5", "best5") else min)(np.mean(row[key]) for row in rows.values())
        for key in METRICS
    }
    for method, row in rows.items():
        cells = []
        for key, (_, digits) in METRICS.items():
            values = np.asarray(row[key], float)
            cell = f"{values.mean():.{digits}f}" + (f" ± {values.std():.{digits}f}" if len(values) > 1 else "")
            cells.append(f"[bold]{cell}[/bold]" if len(rows) > 1 and values.mean() == best[key] else cell)
        table.add_row(method, *cells)
    (console if console.is_terminal else Console(width=120, file=sys.stdout)).print(table)
