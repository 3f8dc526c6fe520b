"""What a person sees while runs are trained: a bar and the best runs so far on a terminal, lines elsewhere.

Without a terminal (nohup, a batch queue) a line is printed after a chunk of rounds, and at least every 30 seconds also
while one chunk, or its compilation, takes longer.
"""

import threading
import time
from collections.abc import Callable
from typing import Any, Self

import numpy as np
from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table

from experiments.command.runs import Run, varying
from experiments.execution.folder import shown
from experiments.execution.runner import Chunk, Plan
from fedeba_jax.metrics import MEASURES, SHOWN

QUIET = 30.0  # seconds without a line at most
OFTEN = 2.0  # seconds between lines at least
MOST = 8  # runs in the table
console = Console(stderr=False, highlight=False)


class Lines:
    """Prints what `status` says when `tell` is called, but not too often; after a long silence, a thread prints it."""

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


class Progress:
    """Rounds done, rounds/s, time left, and figures: of the one setting that is trained, or of the best of several.

    It is called with what the runner tells, the plan first and then each chunk of rounds.

    Args:
      split: the data that figures are of.
      metric: what the best runs are chosen by.
    """

    def __init__(self, split: str = "test", metric: str = "mean") -> None:
        self._split, self._metric = split, metric
        self._names: list[str] = []
        self._several = False  # whether there are several settings, or one with several seeds
        self._total = self._left = self._timed_rounds = 0
        self._timed_seconds, self._began = 0.0, time.monotonic()
        self._latest: dict[str, tuple[Run, dict[str, Any]]] = {}  # by run, its latest row
        self._diverged: set[str] = set()
        self._begun: set[str] = set()  # the first run of each batch
        self._live = Live(console=console, auto_refresh=False) if console.is_terminal else None
        self._lines = None if console.is_terminal else Lines(self.status)

    def __enter__(self) -> Self:
        (self._live or self._lines).start()  # type: ignore[union-attr]
        return self

    def __exit__(self, *_: object) -> None:
        (self._live or self._lines).stop()  # type: ignore[union-attr]

    def __call__(self, event: Plan | Chunk) -> None:
        """Take in what the runner tells, and show it."""
        self._began = time.monotonic()
        if isinstance(event, Plan):
            self._total = self._left = sum(run.task.rounds for run in event.missing)
            self._names = varying(event.runs)
            self._several = len({run.label(self._names) for run in event.runs}) > 1
            return
        over = self._take(event)
        if self._live:
            self._live.update(self._view(), refresh=True)
        if self._lines:
            self._lines.tell(now=over)

    def status(self) -> str:
        """How it stands, in one line."""
        rate = self._timed_rounds / self._timed_seconds if self._timed_seconds else 0.0
        speed = f"{rate:.1f} rounds/s, {self._left / rate:.0f} s left" if rate else "compiling"
        waited = time.monotonic() - self._began
        more = f"; {waited:.0f} s into the next rounds" if waited > OFTEN and self._left else ""
        diverged = f"; {len(self._diverged)} diverged" if self._diverged else ""
        return f"round {self._total - self._left}/{self._total}  {speed}{self._figures()}{diverged}{more}"

    def _take(self, chunk: Chunk) -> bool:
        """Count a chunk and keep its rows; whether its batch is over."""
        over = bool(chunk.rows[-1]["final"])
        rounds = chunk.runs[0].task.rounds - chunk.start if over else chunk.rounds  # a diverged batch ends early
        if chunk.runs[0].id not in self._begun:  # a resumed batch had rounds before
            self._begun.add(chunk.runs[0].id)
            rounds += chunk.start
        self._left -= rounds * len(chunk.runs)
        if not chunk.compiled:
            self._timed_rounds += chunk.rounds * len(chunk.runs)
            self._timed_seconds += chunk.seconds
        runs, model = {run.id: run for run in chunk.runs}, shown({row["model"] for row in chunk.rows})
        for row in chunk.rows:
            if row["status"] == "diverged":
                self._diverged.add(row["run"])
                self._latest.pop(row["run"], None)
            elif (row["split"], row["model"]) == (self._split, model):
                self._latest[row["run"]] = (runs[row["run"]], row)
        return over

    def _figures(self) -> str:
        ranked = self._ranked()  # at once: the thread of `Lines` asks while rows come in
        if not ranked:
            return ""
        if self._several:
            return f"; best {self._split} {self._metric}: {self._label(*ranked[0])}"
        rows = [row for _, row in ranked]
        mean, variance = (np.mean([row[name] for row in rows]) for name in ("mean", "variance"))
        whose = "" if rows[0]["model"] == "global" else f"{rows[0]['model']} "
        return f"  {whose}acc {mean:.2f} %  var {variance:.1f}"

    def _ranked(self) -> list[tuple[Run, dict[str, Any]]]:
        sign = -1 if MEASURES[self._metric].higher_is_better else 1
        return sorted(self._latest.values(), key=lambda item: sign * item[1][self._metric])

    def _label(self, run: Run, row: dict[str, Any]) -> str:
        whose = "" if row["model"] == "global" else f" ({row['model']})"
        return f"{run.label(self._names)} seed={run.seed}{whose}"

    def _view(self) -> Group:
        bar = ProgressBar(total=self._total, completed=self._total - self._left, width=60)
        if not self._several:
            return Group(bar, self.status())
        table = Table(title=f"best runs so far, by {self._split} {self._metric}", title_justify="left")
        for name in ("run", "round", *(MEASURES[key].title for key in SHOWN)):
            table.add_column(name, justify="left" if name == "run" else "right")
        for run, row in self._ranked()[:MOST]:
            figures = (f"{row[key]:.{MEASURES[key].digits}f}" for key in SHOWN)
            table.add_row(self._label(run, row), str(row["round"]), *figures)
        return Group(table, bar, self.status())
