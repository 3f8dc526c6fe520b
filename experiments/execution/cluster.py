"""Sweeps over a cluster: Ray runs the batches, and what they leave becomes the one table that a plain sweep writes.

A task is a batch of runs that share a compilation. The one runner executes it into a part folder, OUT/parts/NAME, with
a checkpoint of its own: a task whose worker or node died is resumed from there, on another one if the folder is on a
disk that both see. Finished parts are merged in the order of the plan, so the table has the bytes of the plain sweep's.
"""

import contextlib
import functools
import hashlib
import os
import socket
import threading
import time
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from experiments.command.opening import opened, settled
from experiments.command.runs import Run
from experiments.execution import devices, folder, processes, recovery, runner
from experiments.execution.batches import How, Kept
from experiments.execution.recovery import Stopped
from experiments.execution.runner import Chunk, Tell

RETRIES = 5  # of a task whose worker died; an error of the task itself is not tried again
POLL = 0.5  # seconds between two looks at the parts
LOCKED = 60.0  # seconds that a part may still be held by a worker that is about to die
ANSWER = 5.0  # seconds in which a machine must answer
JOIN = 60.0  # seconds in which a cluster must be joined; Ray itself would try for a quarter of an hour
QUIET = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0", "RAY_DEDUP_LOGS": "0"}


class Resources(NamedTuple):
    """What a task takes."""

    cpus: int
    gpus: float
    address: str  # of a cluster; "" for one of our own, on this machine
    cache: str | None  # of compiled programs


class Part(NamedTuple):
    """One task: some of the runs, and their folder."""

    asked: list[Run]  # as they were asked for
    runs: list[Run]  # as they are run
    out: Path


def execute(
    asked: Sequence[Run],
    out: Path,
    tell: Tell,
    *,
    how: How,
    data_dir: str | None,
    overwrite: bool,
    checkpoint_every: int,
    resources: Resources,
) -> None:
    """Run what is missing of these runs over a cluster; the arguments are those of `runner.execute`."""
    ray = _ray()
    _check_address(resources.address)
    with runner.owned(out):
        runs, datasets = opened(asked, data_dir)
        done, stopped = runner.found(out, runs, datasets, only_these=False, overwrite=overwrite)
        planned = runner.plan(runs, datasets, done, how)
        origins = runner.described(out, planned, overwrite)
        if stopped.batch:
            recovery.start_over(out, stopped.batch, print)
        tell(planned)
        given = {settled(run, datasets[run.task.dataset]).id: run for run in asked}  # several may settle to one
        parts, sizes = [], {}
        for group in planned.groups:
            for batch in group.batches():
                parts.append(_part(out, [given[run.id] for run in batch], batch))
                sizes[parts[-1].out] = how._replace(batch_runs=group.batch_runs)
        if overwrite:
            for part in parts:
                _remove(part.out)
        _connect(ray, resources)
        try:
            task = ray.remote(
                num_cpus=resources.cpus, num_gpus=resources.gpus, max_retries=RETRIES, max_calls=0,
                scheduling_strategy="SPREAD",
            )(_task)  # fmt: skip
            options = {"data_dir": data_dir, "checkpoint_every": checkpoint_every}
            pending = {
                task.remote(part.asked, str(part.out.resolve()), sizes[part.out], options, resources): part
                for part in parts
            }
            _merge_as_they_come(ray, pending, parts, out, origins, tell)
        finally:
            ray.shutdown()


def _merge_as_they_come(
    ray: Any, pending: dict[Any, Part], parts: list[Part], out: Path, origins: dict[str, int], tell: Tell
) -> None:
    finished: set[Path] = set()
    waiting, seen = list(parts), {part.out: 0 for part in parts}
    while waiting:
        ready, _ = ray.wait(list(pending), num_returns=len(pending), timeout=POLL) if pending else ([], [])
        for part in parts:
            for chunk in _news(part, seen[part.out]) if part.out not in finished else ():
                seen[part.out] += 1
                tell(chunk)
        for reference in ready:
            part = pending.pop(reference)
            _result(ray, reference)
            for chunk in _news(part, seen[part.out]):
                tell(chunk)
            finished.add(part.out)
        while waiting and waiting[0].out in finished:
            part = waiting.pop(0)
            _merge(part, out, origins[part.runs[0].task.dataset])


def _task(asked: list[Run], out: str, how: How, options: dict[str, Any], resources: Resources) -> None:
    """In a worker: the one runner, into the part's folder."""
    _set_up(resources)
    begun = time.monotonic()
    while True:
        try:
            return runner.execute(asked, Path(out), lambda event: None, how=how, kept=_kept(), **options)
        except ValueError as error:
            if "another process is writing" not in str(error) or time.monotonic() - begun > LOCKED:
                raise
            time.sleep(1)


@functools.cache
def _set_up(resources: Resources) -> None:
    """The devices of a worker, before its first task."""
    devices.set_up(host_devices=resources.cpus, cache=resources.cache)


@functools.cache
def _kept() -> Kept:
    """What the tasks of a worker share, so that one after the other costs what batches of a plain sweep do."""
    return Kept()


def _part(out: Path, asked: list[Run], runs: list[Run]) -> Part:
    name = hashlib.sha256(" ".join(run.id for run in runs).encode()).hexdigest()[:12]
    return Part(asked, runs, out / "parts" / name)


def _news(part: Part, known: int) -> Iterator[Chunk]:
    """The chunks of rounds that a part has done beyond those that are known."""
    timings = folder.whole_rows(part.out / folder.TIMINGS)[known:]
    if not timings:
        return
    rows = folder.whole_rows(part.out / folder.RESULTS)
    ends = sorted({row["round"] for row in rows})
    for number, timing in enumerate(timings, known):
        if number >= len(ends):
            return
        own = [row for row in rows if row["round"] == ends[number]]
        yield Chunk(
            part.runs, own, ends[number] - timing["rounds"], timing["rounds"], timing["seconds"], timing["compiled"]
        )


def _merge(part: Part, out: Path, origin: int) -> None:
    """A finished part becomes a part of the table; killed in between, it comes again."""
    ids = [run.id for run in part.runs]
    none = dict.fromkeys(folder.TABLES, 0)
    recovery.save(out, Stopped(ids, 0, none, over=False), None)
    rows = [row | {"origin": origin} for row in folder.read_rows(part.out / folder.RESULTS)]
    folder.append_rows(out / folder.RESULTS, rows)
    recovery.save(out, Stopped(ids, part.runs[0].task.rounds, none | {folder.RESULTS: len(rows)}, over=True), None)
    folder.append_rows(out / folder.TIMINGS, folder.read_rows(part.out / folder.TIMINGS))
    _remove(part.out)


def _remove(part: Path) -> None:
    """A part that is merged; nothing but its own files."""
    if not part.exists():
        return
    folder.clear(part)
    for path in (part / folder.LOCK, part, part.parent):
        try:
            path.unlink() if path.is_file() else path.rmdir()
        except OSError:  # other parts are there
            return


def _ray() -> Any:
    os.environ.update({name: os.environ.get(name, value) for name, value in QUIET.items()})
    warnings.filterwarnings("ignore", message="os.fork")  # Ray starts programs, which share nothing with JAX
    try:
        import ray
    except ImportError:
        raise ValueError("--ray needs Ray; install the extra: pip install -e '.[ray]'") from None
    return ray


def _check_address(address: str) -> None:
    """An error if nobody listens at an address HOST:PORT."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not host or not port.isdecimal():
        return  # Ray knows other forms, "auto" among them
    try:
        socket.create_connection((host, int(port)), ANSWER).close()
    except (OSError, OverflowError) as error:
        raise _no_cluster(address, str(error)) from None


def _no_cluster(address: str, reason: str) -> ValueError:
    return ValueError(f"--ray_address={address}: no cluster there ({reason}); start one there, or check the address")


@contextlib.contextmanager
def _patient(address: str) -> Iterator[None]:
    """Limits the time to join a cluster. When it is over, this process ends with one line.

    A call that hangs in Ray cannot be interrupted in another way.
    """
    stderr = os.dup(2)

    def end() -> None:
        os.write(stderr, f"error: {_no_cluster(address, f'no answer within {JOIN:.0f} s')}\n".encode())
        os._exit(2)

    timer = threading.Timer(JOIN, end)
    timer.daemon = True
    timer.start()
    try:
        with processes.quiet(2):
            yield
    finally:
        timer.cancel()
        os.close(stderr)


def _connect(ray: Any, resources: Resources) -> None:
    known = {name: os.environ[name] for name in ("XLA_FLAGS", "JAX_PLATFORMS", "GIT_DIR") if name in os.environ}
    environment = {"env_vars": known | {"PYTHONPATH": str(Path(__file__).parents[2])}}
    common = {"runtime_env": environment, "log_to_driver": False, "logging_level": "error"}
    if not resources.address:
        ray.init(include_dashboard=False, **common)
        return
    try:
        with _patient(resources.address):
            ray.init(resources.address, **common)
    except (ConnectionError, ValueError, RuntimeError) as error:
        raise _no_cluster(resources.address, str(error).strip().splitlines()[0]) from None


def _result(ray: Any, reference: Any) -> None:
    """Wait for a task; what went wrong in it, as it was raised there."""
    try:
        ray.get(reference)
    except ray.exceptions.RayTaskError as error:
        raise error.cause or error from None
    except ray.exceptions.RayError as error:
        raise OSError(
            f"a task was lost {RETRIES} times ({str(error).splitlines()[0]}); the same command resumes"
        ) from None
