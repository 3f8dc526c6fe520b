"""Runs experiments, batch after batch, into one folder; stopped at any moment, the same call resumes them.

This is the one loop that `train`, `sweep`, `demo` and `compare` share.
"""

import json
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from experiments.command.opening import opened
from experiments.command.runs import Run
from experiments.execution import folder, rows
from experiments.execution.batches import Group, How, groups
from experiments.execution.program import round_number
from experiments.privacy import statements
from fedeba_jax import checkpoint
from fedeba_jax.data.dealing import flipped
from fedeba_jax.data.sources import Dataset


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


def plan(runs: Sequence[Run], datasets: dict[str, Dataset], out: Path, how: How, *, anew: bool = False) -> Plan:
    """See what is left of opened runs (`anew`: everything is); before any training, errors come from here."""
    done = set() if folder.is_new(out) or anew else folder.finished(out)
    planned = Plan(runs, groups(runs, done, datasets, how), datasets)
    for group in planned.groups:
        for run in group.missing:  # what may not be claimed in the end is an error now
            counts = group.splits[run.seeds.data].train.counts
            statements.statement(run, rounds=run.task.rounds, counts=counts)
    return planned


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
    """
    folder.is_new(out)  # nothing is written to a folder that is not ours, not even a lock
    with folder.Lock(out):
        runs, datasets = opened(runs, data_dir)
        if not folder.is_new(out) and only_these and not overwrite:
            folder.check_no_others(out, runs)
        journal, leaves = ({}, []) if overwrite else recover(out)
        planned = plan(runs, datasets, out, how, anew=overwrite)
        if overwrite:
            folder.clear(out)
        origins = folder.describe(out, runs, {name: _origin(data) for name, data in planned.datasets.items()})
        batches = [(group, batch) for group in planned.groups for batch in group.batches()]
        stopped = journal.get("batch")
        batches.sort(key=lambda item: _ids(item[1]) != stopped)  # the one that was stopped, first
        if batches and _ids(batches[0][1]) != stopped:
            _keep_finished(out)
            _save(out, None, 0, None)
        tell(planned)
        for group, batch in batches:
            resume = (journal, leaves) if _ids(batch) == stopped else None
            _run_batch(group, batch, out, origins[group.task.dataset], resume, tell, log_rounds)


def recover(out: Path) -> tuple[dict[str, Any], list[np.ndarray]]:
    """Cut the tables back to what the checkpoint vouches for; its journal and arrays."""
    path = out / folder.CHECKPOINT
    if not path.exists():
        return {}, []
    journal, leaves = checkpoint.load(path)
    for name, size in journal["sizes"].items():
        table = out / name
        if (table.stat().st_size if table.exists() else 0) < size:
            raise ValueError(f"{table} is shorter than {path} says; restore it, or start in another folder")
        if table.exists():
            os.truncate(table, size)
    return journal, leaves


def _keep_finished(out: Path) -> None:
    """Move rows of runs aside that are not finished and cannot be resumed: their checkpoint is gone, or of others."""
    done = folder.finished(out)
    for name in folder.TABLES:
        table, aside = out / name, out / f"{name}.aside"
        kept = "".join(json.dumps(row) + "\n" for row in folder.read_rows(table) if row["run"] in done)
        if table.exists() and table.read_text() != kept:
            (out / folder.CHECKPOINT).unlink(missing_ok=True)  # it vouches for what is taken away
            os.replace(table, aside)
            table.write_text(kept)
            print(f"{out}: rows of runs that cannot be resumed (no checkpoint of theirs) were moved to {aside}")


def _run_batch(
    group: Group,
    batch: list[Run],
    out: Path,
    origin: int,
    resume: tuple[dict[str, Any], list[np.ndarray]] | None,
    tell: Tell,
    log_rounds: bool,
) -> None:
    runs, supply = group.placed(batch)
    state, done, counters = group.start(runs), 0, rows.no_counts(group.batch_runs)
    if resume:
        journal, leaves = resume
        counters, state = checkpoint.restore(leaves, (counters, state))
        done = journal["done"]
    over, data = False, supply.feed(done, group.chunk_after(done))
    while not over:
        start, rounds = done, group.chunk_after(done)
        compiles, begun = not group.is_compiled(rounds), time.perf_counter()
        program = group.chunk(rounds, runs, state, round_number(start), data)
        running = program(runs, state, round_number(start), data)
        if more := group.chunk_after(start + rounds):
            data = supply.feed(start + rounds, more)  # while the chunk runs
        state, info, scores = jax.block_until_ready(running)
        scores = scores or jax.block_until_ready(supply.score(runs, state))
        seconds = time.perf_counter() - begun
        info, scores = rows.on_host((info, scores))
        before, counters = counters, rows.add(counters, info, start, group.task.cohort_size)
        done += rounds
        over = done >= group.task.rounds or bool(counters.diverged_round[: len(batch)].all())
        wrong_labels = flipped(group.pools, supply.tables) if over else None
        evaluated = rows.of_evaluation(
            batch, supply.tables, scores, counters, done, over=over, origin=origin, flipped=wrong_labels
        )
        if log_rounds:
            folder.append_rows(out / folder.ROUNDS, rows.of_rounds(batch, info, before.diverged_round, start))
        folder.append_rows(out / folder.RESULTS, evaluated)
        _save(out, None if over else _ids(batch), done, None if over else (counters, state))
        chunk = Chunk(batch, evaluated, start, rounds, seconds, compiles)
        folder.append_rows(out / folder.TIMINGS, [_timing(chunk)])
        tell(chunk)


def _save(out: Path, batch: list[str] | None, done: int, arrays: Any) -> None:
    """A checkpoint: how long the tables are, and the state of the running batch (None: between batches)."""
    sizes = {name: (out / name).stat().st_size if (out / name).exists() else 0 for name in folder.TABLES}
    checkpoint.save(out / folder.CHECKPOINT, {"sizes": sizes, "batch": batch, "done": done}, arrays)


def _ids(batch: Sequence[Run]) -> list[str]:
    return [run.id for run in batch]


def _timing(chunk: Chunk) -> dict[str, Any]:
    ids = [run.id for run in chunk.runs]
    return {"runs": ids, "rounds": chunk.rounds, "seconds": chunk.seconds, "compiled": chunk.compiled}


def _origin(dataset: Dataset) -> dict[str, Any]:
    """Where rows come from."""
    data = {"name": dataset.name, "source": dataset.source, "md5": dataset.md5}
    return {"data": data, **folder.environment()}
