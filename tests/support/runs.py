"""Small runs on the embedded images, and what executes them: in this process, or as a binary in one of its own."""

import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import jax

from experiments.command import grids, hparams
from experiments.command.runs import Run
from experiments.command.tasks import FIELDS
from experiments.execution import folder, runner
from experiments.execution.batches import How
from experiments.execution.runner import Chunk, Plan

ROOT = Path(__file__).parent.parent.parent
MINI = "fashion_mnist_mini_mlp"
TINY = {
    "model": "logistic",
    "clients": 10,
    "cohort_size": 3,
    "steps": 2,
    "batch_size": 10,
    "rounds": 2,
    "eval_every": 1,
}
TINY_FLAGS = [f"--task={MINI}", *(f"--{name}={value}" for name, value in TINY.items())]


def make(
    algorithms: str | Sequence[str] = "fedeba_plus",
    text: str = "",
    *,
    grid: Sequence[str] = (),
    seeds: Sequence[int] = (0,),
    task_name: str = MINI,
    **changes: Any,
) -> list[Run]:
    """Runs of the tiny task: hyper-parameters as text, or a grid; other fields of the task, and of the run."""
    fields = {name: changes.pop(name) for name in list(changes) if name in FIELDS}
    assignments = grids.grid([grids.parse_axis(axis) for axis in grid])
    given = hparams.pairs(text)
    return grids.make(
        [algorithms] if isinstance(algorithms, str) else algorithms,
        [assignment | given for assignment in assignments],
        task_name=task_name,
        changes=TINY | fields,
        seeds=seeds,
        **changes,
    )


def execute(
    runs: Sequence[Run],
    out: Path,
    tell: Callable[[Chunk], None] | None = None,
    *,
    client_map: str = "auto",
    run_map: str = "auto",
    batch_runs: int = 0,
    data_budget: float | None = None,
    **options: Any,
) -> list[dict[str, Any]]:
    """Run what is missing; the rows of the folder. `tell` is told the chunks, not the plan."""

    def chunks_only(event: Plan | Chunk) -> None:
        if tell and isinstance(event, Chunk):
            tell(event)

    runner.execute(runs, out, chunks_only, how=How(client_map, run_map, batch_runs, data_budget), **options)
    return folder.read_rows(out / folder.RESULTS)


def final_rows(rows: Sequence[dict[str, Any]], split: str = "test", model: str = "global") -> list[dict[str, Any]]:
    """The last row of each run."""
    return [row for row in rows if row["final"] and (row["split"], row["model"]) == (split, model)]


class Killed(Exception):
    """What ends a run in the middle."""


def kill_after(chunks: int) -> Callable[[Chunk], None]:
    """A `tell` that raises when it is told of so many chunks."""
    told: list[Chunk] = []

    def tell(chunk: Chunk) -> None:
        told.append(chunk)
        if len(told) == chunks:
            raise Killed

    return tell


@contextlib.contextmanager
def compilations() -> Iterator[list[str]]:
    """The chunk programs that are compiled inside."""
    compiled: list[str] = []

    def listener(event: str, _: float, **context: Any) -> None:
        name = str(context.get("fun_name"))
        if event == "/jax/core/compile/backend_compile_duration" and "train_chunk" in name:
            compiled.append(name)

    jax.monitoring.register_event_duration_secs_listener(listener)
    try:
        yield compiled
    finally:
        jax.monitoring.unregister_event_duration_listener(listener)


def start(module: str, *arguments: str, **options: Any) -> subprocess.Popen[str]:
    """A binary in a process of its own, with its output in pipes.

    It sees no checkout: rows name the commit they come from, and files may change while tests run.
    """
    environment = os.environ | {"PYTHONPATH": str(ROOT), "JAX_PLATFORMS": "cpu", "GIT_DIR": os.devnull}
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    command = [sys.executable, "-m", module, *arguments]
    before = signal.signal(signal.SIGINT, signal.SIG_DFL)  # a shell's background jobs, and what they start, ignore it
    try:
        return subprocess.Popen(command, cwd=ROOT, env=environment, **(pipes | options))
    finally:
        signal.signal(signal.SIGINT, before)


def binary(module: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """A binary, run to its end."""
    process = start(module, *arguments)
    stdout, stderr = process.communicate(timeout=300)
    return subprocess.CompletedProcess(process.args, process.returncode, stdout, stderr)


def kill_at_random(begin: Callable[[Path], subprocess.Popen[str]], folder: Path, kills: int, seed: Any) -> list[Path]:
    """kill -9 processes, so many, at moments drawn over the length of a run; the folders, each resumed to its end.

    `begin` starts a process that fills a folder. The first two folders are of runs that were left alone.
    """
    whole, timed = folder / "whole", folder / "timed"
    assert begin(whole).wait() == 0  # compiles
    begun = time.monotonic()
    assert begin(timed).wait() == 0
    duration, killed, rng, outs = time.monotonic() - begun, 0, random.Random(seed), [whole, timed]
    while killed < kills:
        outs.append(folder / f"killed{len(outs)}")
        for _ in range(5):
            process = begin(outs[-1])
            time.sleep(rng.uniform(0.1, 0.9) * duration)
            if process.poll() is not None:  # the machine is faster now: this one came to its end
                break
            process.send_signal(signal.SIGKILL)
            process.wait()
            killed += 1
        assert begin(outs[-1]).wait() == 0
    return outs
