"""What a person sees while runs go on: a bar or a live table on a terminal, lines elsewhere.

Without a terminal (nohup, a batch queue) a line is printed after a chunk of rounds, and at least every 30 seconds also
while one chunk, or its compilation, takes longer.
"""

import abc
import threading
import time
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, Self

import numpy as np
from rich.console import Console
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from experiments.execution.folder import shown
from experiments.execution.runner import Chunk, Plan
from fedeba_jax.metrics import MEASURES, SHOWN

QUIET = 30.0  # seconds without a line at most
OFTEN = 2.0  # seconds between lines at least
console = Console(stderr=False, highlight=False)


class Lines:
    """Prints what `status` says whenever it is told, not too often, and from a thread if it is not told for long."""

    def __init__(self, status: Callable[[], str], quiet: float = QUIET, often: float = OFTEN) -> None:
        self._status, self._quiet, self._often = status, quiet, often
        self._last = time.monotonic()
        self._over = threading.Event()
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._over.set()
        self._thread.join()

    def tell(self, *, now: bool = False) -> None:
        """Print a line, unless one was printed a moment ago and this one can wait."""
        with self._lock:
            if now or time.monotonic() - self._last >= self._often:
                self._last = time.monotonic()
                print(self._status(), flush=True)

    def _watch(self) -> None:
        while not self._over.wait(min(1.0, self._quiet / 4)):
            if time.monotonic() - self._last >= self._quiet:
                self.tell(now=True)


class Watch(abc.ABC):
    """Counts rounds and times of what the runner tells; `Bar` and `Best` say how it looks."""

    def __init__(self) -> None:
        self._left = self._total = 0
        self._timed_rounds, self._timed_seconds = 0, 0.0
        self._chunk_began = time.monotonic()
        self._lines = None if console.is_terminal else Lines(self._line)

    def __enter__(self) -> Self:
        if self._lines:
            self._lines.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        if self._lines:
            self._lines.stop()

    def __call__(self, event: Plan | Chunk) -> None:
        """Take in what the runner tells, and show it."""
        if isinstance(event, Plan):
            self._left = self._total = sum(run.task.rounds for run in event.missing)
            self._chunk_began = time.monotonic()
        else:
            self._chunk(event)

    def _chunk(self, chunk: Chunk) -> None:
        self._left -= chunk.rounds * len(chunk.runs)
        over = chunk.rows[-1]["final"]
        if over:  # a batch that diverged ends before its rounds are done
            self._left -= (chunk.runs[0].task.rounds - chunk.start - chunk.rounds) * len(chunk.runs)
        if not chunk.compiled:
            self._timed_rounds += chunk.rounds * len(chunk.runs)
            self._timed_seconds += chunk.seconds
        self._chunk_began = time.monotonic()
        self._take(chunk)
        if self._lines:
            self._lines.tell(now=over)

    @property
    def _rate(self) -> float | None:
        """Rounds per second, of all runs together."""
        return self._timed_rounds / self._timed_seconds if self._timed_seconds else None

    def _speed(self) -> str:
        if self._rate:
            return f"{self._rate:.1f} rounds/s, {self._left / self._rate:.0f} s left"
        return "compiling" if self._left == self._total else "compiled"

    def _line(self) -> str:
        waited = time.monotonic() - self._chunk_began
        return self._status() + (f"; {waited:.0f} s into the next rounds" if waited > OFTEN and self._left else "")

    @abc.abstractmethod
    def _take(self, chunk: Chunk) -> None:
        """Take in the rows of a chunk."""

    @abc.abstractmethod
    def _status(self) -> str:
        """How it stands, in one line."""


class Bar(Watch):
    """Rounds done, rounds/s, accuracy and variance so far, time left."""

    def __init__(self, label: str) -> None:
        super().__init__()
        self._label, self._figures = label, ""
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[status]}"),
            TimeRemainingColumn(),
            console=console,
            disable=not console.is_terminal,
        )
        self._task = self._progress.add_task(label, total=None, status="compiling")

    def __enter__(self) -> Self:
        self._progress.start()
        return super().__enter__()

    def __exit__(self, *error: Any) -> None:
        self._progress.stop()
        super().__exit__(*error)

    def _take(self, chunk: Chunk) -> None:
        tests = [row for row in chunk.rows if row["split"] == "test" and row["status"] == "ok"]
        model = shown({row["model"] for row in tests})
        own = [row for row in tests if row["model"] == model]
        if own:
            whose = "" if model == "global" else f"{model} "
            mean, variance = (float(np.mean([row[name] for row in own])) for name in ("mean", "variance"))
            self._figures = f"  {whose}acc {mean:.2f} %  var {variance:.1f}"
        self._label = chunk.runs[0].algorithm
        done, speed = self._total - self._left, f"{self._rate:.1f} rounds/s" if self._rate else ""
        status = (speed + self._figures).strip()
        self._progress.update(self._task, total=self._total, completed=done, description=self._label, status=status)

    def _status(self) -> str:
        return f"{self._label}: round {self._total - self._left}/{self._total}  {self._speed()}{self._figures}"


class Best(Watch):
    """The best runs of a sweep so far: a live table, or a line that names the best."""

    def __init__(self, names: Sequence[str], split: str, metric: str, most: int = 8) -> None:
        super().__init__()
        self._names, self._split, self._metric, self._most = names, split, metric, most
        self._latest: dict[str, tuple[str, dict[str, Any]]] = {}  # run -> label, its latest row
        self._diverged: set[str] = set()
        self._live = Live(console=console, auto_refresh=False) if console.is_terminal else None

    def __enter__(self) -> Self:
        if self._live:
            self._live.start()
        return super().__enter__()

    def __exit__(self, *error: Any) -> None:
        if self._live:
            self._live.stop()
        super().__exit__(*error)

    def _take(self, chunk: Chunk) -> None:
        model = shown({row["model"] for row in chunk.rows})
        whose = "" if model == "global" else f" ({model})"
        labels = {run.id: f"{run.label(self._names)} seed={run.seed}{whose}" for run in chunk.runs}
        for row in chunk.rows:
            if row["status"] == "diverged":
                self._diverged.add(row["run"])
                self._latest.pop(row["run"], None)
            elif (row["split"], row["model"]) == (self._split, model):
                self._latest[row["run"]] = (labels[row["run"]], row)
        if self._live:
            self._live.update(self._table(), refresh=True)

    def _ranked(self) -> list[tuple[str, dict[str, Any]]]:
        sign = -1 if MEASURES[self._metric].higher_is_better else 1
        return sorted(self._latest.values(), key=lambda item: sign * item[1][self._metric])[: self._most]

    def _status(self) -> str:
        ranked = self._ranked()
        best = f"; best {self._split} {self._metric}: {ranked[0][0]}" if ranked else ""
        diverged = f"; {len(self._diverged)} diverged" if self._diverged else ""
        return f"{self._left} rounds left, {self._speed()}{diverged}{best}"

    def _table(self) -> Table:
        table = Table(title=f"best runs so far, by {self._split} {self._metric}", caption=self._status())
        for name in ("run", "round", *(MEASURES[key].title for key in SHOWN)):
            table.add_column(name, justify="left" if name == "run" else "right")
        for label, row in self._ranked():
            table.add_row(label, str(row["round"]), *(f"{row[key]:.{MEASURES[key].digits}f}" for key in SHOWN))
        return table
