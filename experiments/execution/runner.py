"""Runs experiments, batch after batch, into one folder; stopped at any moment, the same call resumes them.

This is the one loop that `train`, `sweep`, `demo`, `compare`, `robustness`, `tune` and `reproduce` share.
"""

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from experiments.command.opening import opened
from experiments.command.runs import Run
from experiments.execution import folder, processes, recovery, rows
from experiments.execution.batches import Group, How, Kept, groups
from experiments.execution.judges import judges_of
from experiments.execution.program import round_number
from experiments.execution.recovery import Stopped
from experiments.privacy import statements
from fedeba_jax import checkpoint
from fedeba_jax.data.dealing import flipped
from fedeba_jax.data.sources import Dataset
from fedeba_jax.types import State


class Chunk(NamedTuple):
    """What the runner tells after each chunk of rounds of a batch."""

    runs: Sequence[Run]
    rows: list[dict[str, Any]]
    start: int  # rounds before it
    rounds: int
    seconds: float
    compiled: bool  # whether the seconds include compilation


class Plan(NamedTuple):
    """What is asked for, and what of it is left to do."""

    runs: Sequence[Run]
    groups: list[Group]
    datasets: dict[str, Dataset]

    @property
    def missing(self) -> list[Run]:
        return [run for group in self.groups for run in group.missing]


Tell = Callable[[Plan | Chunk], None]


def plan(
    runs: Sequence[Run],
    datasets: dict[str, Dataset],
    done: set[str],
    how: How,
    programs: dict[Any, Any] | None = None,
) -> Plan:
    """See what is left of opened runs, some of which are done; before any training, errors come from here."""
    planned = Plan(runs, groups(runs, done, datasets, how, {} if programs is None else programs), datasets)
    for group in planned.groups:
        for run in group.missing:  # what may not be claimed in the end is an error now
            counts = group.splits[run.seeds.data].train.counts
            statements.statement(run, rounds=run.task.rounds, counts=counts)
    return planned


def done_in(out: Path) -> set[str]:
    """The runs of a folder that need no more work."""
    return set() if folder.is_new(out) else folder.finished(folder.read_rows(out / folder.RESULTS))


def execute(
    runs: Sequence[Run],
    out: Path,
    tell: Tell,
    *,
    how: How = How(),  # noqa: B008  (a named tuple of constants)
    data_dir: str | None = None,
    log_rounds: bool = False,
    only_these: bool = False,
    overwrite: bool = False,
    checkpoint_every: int = 1,
    kept: Kept | None = None,
    now: Callable[[Run], bool] = lambda _: True,
) -> None:
    """Run what is missing of these runs.

    Args:
      runs: what is asked for.
      out: the folder of the results.
      tell: called with the plan, then after each chunk of rounds.
      how: maps and batch size.
      data_dir: where data sets live.
      log_rounds: whether to write one row per round, too.
      only_these: refuse a folder that holds other runs.
      overwrite: remove the experiment that the folder holds first.
      checkpoint_every: chunks of rounds between checkpoints; there is also one when the process is told to end.
      kept: what earlier calls have left; this one adds to it.
      now: which of them to run in this call; the folder is described with all.
    """
    kept = kept or Kept()
    with contextlib.ExitStack() as held:
        processes.agreed(lambda: held.enter_context(owned(out)))
        runs, datasets = opened(runs, data_dir, kept.datasets)
        wanted = [run for run in runs if now(run)]
        processes.check_same(
            settings=str([*(run.id for run in wanted), how, log_rounds, only_these, overwrite]),
            data=str([data.md5 for data in datasets.values()]),
            versions=str([folder.packages(), folder.commit()]),
        )
        done, stopped = found(out, runs, datasets, only_these=only_these, overwrite=overwrite)
        planned = plan(wanted, datasets, done, how, kept.programs)
        origins = processes.agreed(lambda: described(out, planned._replace(runs=runs), overwrite))
        batches = [(group, batch) for group in planned.groups for batch in group.batches(stopped.batch)]
        batches.sort(key=lambda item: _ids(item[1]) != stopped.batch)  # the one that was stopped, first
        if batches and _ids(batches[0][1]) != stopped.batch and processes.is_first():
            recovery.start_over(out, stopped.batch, print)
        tell(planned)
        for group, batch in batches:
            kept.make_room()
            resumed = stopped if _ids(batch) == stopped.batch else None
            with _memory_errors(), processes.sharing_fate():
                _run_batch(group, batch, out, origins[group.task.dataset], resumed, tell, log_rounds, checkpoint_every)


@contextlib.contextmanager
def owned(out: Path) -> Iterator[None]:
    """A folder that is ours, or new, and that nobody else writes to meanwhile."""
    folder.is_new(out)  # nothing is written to a folder that is not ours, not even a lock
    if folder.is_packed(out):
        command = f"python -m experiments.archive unpack {out} FOLDER"
        raise ValueError(f"--out={out} is packed; unpack it into another folder (`{command}`), and give that")
    with folder.Lock(out):
        yield


def found(
    out: Path, runs: Sequence[Run], datasets: dict[str, Dataset], *, only_these: bool, overwrite: bool
) -> tuple[set[str], Stopped]:
    """What the folder holds, put in order: the runs that are done, and the batch that was stopped."""

    def look() -> tuple[dict[str, Any], list[np.ndarray]]:
        if overwrite:
            return {"done": [], "stopped": recovery.NOTHING._replace(leaves=[])}, []
        if not folder.is_new(out):
            _check_same_data(out, datasets)
            if only_these:
                folder.check_no_others(out, runs)
        stopped = recovery.recover(out, print)
        return {"done": sorted(done_in(out)), "stopped": stopped._replace(leaves=[])}, list(stopped.leaves)

    found, leaves = processes.told(look)
    return set(found["done"]), Stopped(*found["stopped"])._replace(leaves=leaves)


def described(out: Path, planned: Plan, overwrite: bool) -> dict[str, int]:
    """Begin, or extend, the description of the folder; where its rows come from, by data set."""
    if overwrite:
        folder.clear(out)
    return folder.describe(out, planned.runs, {name: _origin(data) for name, data in planned.datasets.items()})


@contextlib.contextmanager
def _memory_errors() -> Iterator[None]:
    """XLA's word for a full memory as Python's."""
    try:
        yield
    except jax.errors.JaxRuntimeError as error:
        if "RESOURCE_EXHAUSTED" in str(error):
            raise MemoryError(str(error).splitlines()[0]) from error
        raise


def _run_batch(
    group: Group,
    batch: list[Run],
    out: Path,
    origin: int,
    stopped: Stopped | None,
    tell: Tell,
    log_rounds: bool,
    checkpoint_every: int,
) -> None:
    runs, supply = group.placed(batch)
    counters = rows.no_counts(group.batch_runs, group.task.cohort_size, attacked=group.task.attack.name != "none")
    start: Any = counters, group.start(runs)
    state, judges = start[1], judges_of(batch, group.pools, supply.tables)
    targets = rows.judged_on(group.pools, supply.tables)
    done, written, records = 0, dict.fromkeys(folder.TABLES, 0), processes.is_first()
    if not stopped and records:
        recovery.save(out, Stopped(_ids(batch), done, written, over=False), None)  # rows before the next are its own
    elif stopped and stopped.done:
        try:
            counters, state = checkpoint.restore(_padded(stopped.leaves, group, start), start)
            done, written = stopped.done, stopped.rows
        except ValueError as error:
            print(f"{out / folder.CHECKPOINT}: {error}; its runs start over")
            if records:
                recovery.start_over(out, stopped.batch, print)
    over, data, unsaved = False, supply.feed(done, group.chunk_after(done)), []
    try:
        while not over:
            first, rounds = done, group.chunk_after(done)
            arguments = (runs, state, round_number(first), data)
            compiles, begun = not group.is_compiled(rounds, *arguments), time.perf_counter()
            running = group.chunk(rounds, *arguments)(*arguments)
            if more := group.chunk_after(first + rounds):
                data = supply.feed(first + rounds, more)  # while the chunk runs
            state, info, scores = jax.block_until_ready(running)
            scores = scores or jax.block_until_ready(supply.score(runs, state))
            seconds = time.perf_counter() - begun
            info, scores = rows.on_host((info, scores))
            before, counters = counters, rows.add(counters, info, first, group.task.cohort_size)
            done += rounds
            over = done >= group.task.rounds or bool(counters.diverged_round[: len(batch)].all())
            wrong = flipped(group.pools, supply.tables) if over else None
            saved = None if over else _unpadded((counters, state), group, len(batch))
            if not records:
                continue
            of_batch = batch, supply.tables, targets, scores, counters, done
            evaluated = rows.of_evaluation(*of_batch, over=over, origin=origin, flipped=wrong, judges=judges)
            new = {folder.RESULTS: evaluated}
            if log_rounds:
                new[folder.ROUNDS] = rows.of_rounds(batch, info, before.diverged_round, first)
            for name, table in new.items():
                folder.append_rows(out / name, table)
            written = {name: count + len(new.get(name, ())) for name, count in written.items()}
            here = Stopped(_ids(batch), done, written, over), saved
            unsaved.append(here)
            if over or len(unsaved) >= checkpoint_every:
                recovery.save(out, *here)
                unsaved.clear()
            timing = {"runs": _ids(batch), "rounds": rounds, "seconds": seconds, "compiled": compiles}
            folder.append_rows(out / folder.TIMINGS, [timing])
            tell(Chunk(batch, evaluated, first, rounds, seconds, compiles))
    except KeyboardInterrupt:
        if unsaved:
            recovery.save(out, *unsaved[-1])
        raise


def _unpadded(arrays: tuple[Any, State], group: Group, count: int) -> Any:
    """Copies on the host of what belongs to so many runs, and of rows to clients: they depend on no devices."""
    counters, state = jax.tree.map(lambda leaf: processes.whole(leaf)[:count], arrays)
    shapes = group.program.state_shapes()
    state = jax.tree.map(lambda leaf, one: leaf[:, : one.shape[0]] if one.ndim else leaf, state, shapes)
    return jax.tree.map(np.array, (counters, state))


def _padded(leaves: Sequence[np.ndarray], group: Group, like: tuple[Any, State]) -> list[np.ndarray]:
    """Arrays of a full batch, where the last run is repeated, with as many rows as fill the devices."""
    full = [leaf[np.minimum(np.arange(group.batch_runs), len(leaf) - 1)] for leaf in leaves]
    shapes = [*[None] * len(jax.tree.leaves(like[0])), *jax.tree.leaves(group.program.state_shapes())]
    references = jax.tree.leaves(like)
    if len(full) != len(references):
        return full  # of another program

    def filled(leaf: np.ndarray, one: Any, reference: Any) -> np.ndarray:
        if one is None or leaf.shape[1:] != one.shape or leaf.shape == reference.shape:
            return leaf
        nobody = np.zeros((len(leaf), reference.shape[1] - leaf.shape[1], *leaf.shape[2:]), leaf.dtype)
        return np.concatenate([leaf, nobody], axis=1)

    return [filled(*parts) for parts in zip(full, shapes, references, strict=True)]


def _ids(batch: Sequence[Run]) -> list[str]:
    return [run.id for run in batch]


def _check_same_data(out: Path, datasets: dict[str, Dataset]) -> None:
    """An error if rows of the folder were made with other data of the same name."""
    for origin in folder.description(out)["origins"]:
        name, md5 = origin["data"]["name"], origin["data"]["md5"]
        now = next((data.md5 for data in datasets.values() if data.name == name), md5)
        if changed := [array for array in now if now[array] != md5.get(array)]:
            raise ValueError(
                f"--out={out} holds rows of another {name} ({changed[0]}: md5 {md5.get(changed[0])} there, "
                f"{now[changed[0]]} now); restore the data, or give another folder"
            )


def _origin(dataset: Dataset) -> dict[str, Any]:
    """Where rows come from."""
    data = {"name": dataset.name, "source": dataset.source, "md5": dataset.md5}
    return {"data": data, **folder.environment()}
