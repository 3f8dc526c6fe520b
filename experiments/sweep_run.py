"""Runs the points of a sweep, batch after batch, into one table; stop and go at any moment.

    sweep.json       task, what varies, data, versions
    results.jsonl    a row a finished (point, evaluation, split, model)
    checkpoint.bin   the running batch: its state, and how much of the table belongs to it
    lock             held by the process that writes here

A checkpoint follows each chunk of rounds. On start the table is cut back to what the checkpoint vouches for,
so a killed sweep goes on exactly where it was and ends with the same bytes as one that was left alone.
"""

import dataclasses
import fcntl
import json
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from experiments import checkpoint, devices, federations, hparams, privacy, run_folder
from experiments.points import Point, grouped, varying
from experiments.program import Evaluation, Program, batch, first_round
from experiments.run import metrics_row, on_host
from fedeba_jax.data.sources import Dataset
from fedeba_jax.models import make_model
from fedeba_jax.simulate import sizes_from

BATCH_ON_CPU = 16  # runs at once: enough to fill the cores, few enough to stream and to bound the memory


class Counters(NamedTuple):
    """What adds up over the rounds of each run of a batch, [R]."""

    bytes_down: np.ndarray
    bytes_up: np.ndarray
    exchanges: np.ndarray
    gate_open: np.ndarray  # -1: the algorithm has no gate
    diverged_round: np.ndarray  # 0: not


class Chunk(NamedTuple):
    """What the sweep tells while it runs: after each chunk of a batch."""

    points: Sequence[Point]
    rows: list[dict[str, Any]]
    rounds: int
    seconds: float  # of training; 0 for the first chunk of a program, which compiles


@dataclasses.dataclass(frozen=True)
class Sweep:
    """A sweep with its data, ready to run."""

    points: list[Point]
    dataset: Dataset
    client_map: str
    run_map: str
    batch_runs: int  # 0: chosen

    def groups(self, done: set[str]) -> "list[Group]":
        """What is left to run, by compilation."""
        groups = [Group(self, members, [p for p in members if p.id not in done]) for members in grouped(self.points)]
        return [group for group in groups if group.missing]


class Group:
    """Points that share a compilation: one program, batches of equal size.

    Shapes and batches follow from all points, finished or not, so that a resumed sweep runs the same programs.
    """

    def __init__(self, sweep: Sweep, points: list[Point], missing: list[Point]) -> None:
        self.missing = missing
        first = points[0]
        self.task = first.task
        self._splits = {
            point.seeds.data: federations.split(
                sweep.dataset, self.task, seed=point.seeds.data, validation=first.validation
            )
            for point in points
        }
        self.pools = federations.pools(sweep.dataset, self.task)
        shape, classes = sweep.dataset.x_train.shape[1:], sweep.dataset.num_classes
        model = make_model(self.task.model, self.task.dataset, shape, classes)
        capacity = max(len(rows) for split in self._splits.values() for rows in split.train)
        sizes = sizes_from(model.init, self.task.clients, self.task.cohort_size, capacity)
        static = hparams.traced(first.algorithm, first.hparams)[1]

        def set_batch(runs: int) -> None:
            client_map, run_map = devices.choose(sweep.client_map, sweep.run_map, runs)
            self.batch_runs = runs
            self.program = Program(
                self.task, first.algorithm, static, model, sizes, client_map, run_map, first.state_dtype
            )
            self._compiled: dict[int, Any] = {}
            self._init: Any = None

        def memory_of(runs: int) -> int:
            set_batch(runs)
            return self.memory()

        chosen = not sweep.batch_runs and jax.default_backend() != "cpu"  # by the memory of an accelerator
        set_batch(1 if chosen else sweep.batch_runs or batch_size(len(points), jax.device_count()))
        self.program.check_memory(self.runs(points[: self.batch_runs]))
        if chosen:
            set_batch(fitting(len(points), memory_of, jax.devices()[0].memory_stats()["bytes_limit"]))

    def batches(self) -> list[list[Point]]:
        return [self.missing[i : i + self.batch_runs] for i in range(0, len(self.missing), self.batch_runs)]

    def runs(self, points: Sequence[Point]) -> Any:
        """The points as a batch of full size; a short one repeats its last point."""
        padded = [*points, *[points[-1]] * (self.batch_runs - len(points))]
        tables = federations.stack([self._splits[p.seeds.data] for p in padded], list(self._splits.values()))
        traced = [hparams.traced(p.algorithm, p.hparams)[0] for p in padded]
        return batch([(t, p.task, p.seeds) for t, p in zip(traced, padded, strict=True)], tables)

    def start(self, runs: Any) -> Any:
        self._init = self._init or self.program.init()
        return self._init(runs)

    def chunk(self, rounds: int, *arguments: Any) -> Any:
        """The compiled chunk of so many rounds; compiled at its first call."""
        if rounds not in self._compiled:
            self._compiled[rounds] = self.program.chunk(rounds).lower(*arguments).compile()
        return self._compiled[rounds]

    def memory(self) -> int:
        """Bytes of the chunk program, arguments included, by XLA's own account."""
        runs, pools = self.placed(self.missing[: self.batch_runs])
        compiled = self.chunk(self.task.eval_every, runs, self.start(runs), first_round(0), pools)
        analysis = compiled.memory_analysis()
        return analysis.temp_size_in_bytes + analysis.argument_size_in_bytes + analysis.output_size_in_bytes

    def placed(self, points: Sequence[Point]) -> tuple[Any, Any]:
        return jax.device_put((self.runs(points), self.pools), self.program.placement)


def batch_size(points: int, device_count: int) -> int:
    """Runs at once on a CPU: a multiple of the cores, at most 16 or so, that wastes least on the last batch."""
    if points <= device_count:
        return points
    sizes = range(device_count, max(BATCH_ON_CPU, device_count) + 1, device_count)
    return min(sizes, key=lambda size: (-(-points // size) * size, -size))


def fitting(points: int, memory_of: Callable[[int], int], limit: int) -> int:
    """Runs at once on an accelerator: all, halved until the program takes at most 80 % of the memory."""
    runs = points
    while runs > 1 and memory_of(runs) > 0.8 * limit:
        runs = -(-runs // 2)
    return runs


def estimate(group: Group) -> str:
    """Memory, and time from a timed first chunk (run after a warm-up that compiles it)."""
    task = group.task
    memory = group.memory()
    runs, pools = group.placed(group.missing[: group.batch_runs])
    seconds = []
    for _ in range(2):
        state = group.start(runs)
        begun = time.perf_counter()
        jax.block_until_ready(group.chunk(task.eval_every)(runs, state, first_round(0), pools))
        seconds.append(time.perf_counter() - begun)
    total = min(seconds) * task.rounds / task.eval_every * len(group.batches())
    return f"{memory / 2**20:.0f} MiB, about {total:.0f} s ({min(seconds):.2f} s a chunk of {task.eval_every} rounds)"


def execute(sweep: Sweep, folder: Path, tell: Callable[[Chunk], None]) -> None:
    """Run what is missing of a sweep."""
    folder.mkdir(parents=True, exist_ok=True)
    with locked(folder):
        table = folder / "results.jsonl"
        journal, leaves = recover(folder)
        done = finished(table)
        _describe(sweep, folder)
        for group in sweep.groups(done):
            for points in group.batches():
                resume = (journal, leaves) if journal.get("batch") == [p.id for p in points] else None
                _run_batch(group, points, folder, resume, tell)


def recover(folder: Path) -> tuple[dict[str, Any], list[np.ndarray]]:
    """Cut the table back to what the checkpoint vouches for; its journal and arrays."""
    table, path = folder / "results.jsonl", folder / "checkpoint.bin"
    journal, leaves = checkpoint.load(path) if path.exists() else ({"offset": 0}, [])
    if table.exists():
        if table.stat().st_size < journal["offset"]:
            raise ValueError(f"{table} is shorter than {path} says; restore it, or start in another folder")
        os.truncate(table, journal["offset"])
    return journal, leaves


def finished(table: Path) -> set[str]:
    """Points that need no more work."""
    rows = run_folder.read_rows(table) if table.exists() else []
    return {row["point"] for row in rows if row["final"]}


class locked:
    """Only one process writes to a folder; the system lets go of the lock when it dies."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "lock"

    def __enter__(self) -> None:
        self._file = open(self._path, "a")
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self._file.close()
            raise ValueError(f"--out={self._path.parent}: another sweep is running in this folder; "
                             "wait for it, or give another folder") from None  # fmt: skip

    def __exit__(self, *_: Any) -> None:
        self._file.close()


def _run_batch(
    group: Group,
    points: list[Point],
    folder: Path,
    resume: tuple[dict[str, Any], list[np.ndarray]] | None,
    tell: Callable[[Chunk], None],
) -> None:
    task, table = group.task, folder / "results.jsonl"
    runs, pools = group.placed(points)
    state, done = group.start(runs), 0
    counters = Counters(*(np.zeros(group.batch_runs, np.int64) for _ in Counters._fields))
    if resume:
        journal, leaves = resume
        split = len(Counters._fields)
        counters, done = Counters(*leaves[:split]), journal["done"]
        state = checkpoint.restore(leaves[split:], state)
    while done < task.rounds:
        rounds = min(task.eval_every, task.rounds - done)
        fresh = rounds not in group._compiled
        compiled = group.chunk(rounds, runs, state, first_round(done), pools)
        begun = time.perf_counter()
        state, info, scores = jax.block_until_ready(compiled(runs, state, first_round(done), pools))
        seconds = 0.0 if fresh else time.perf_counter() - begun
        info, scores = jax.tree.map(on_host, (info, scores))
        counters = _add(counters, info, done, task.cohort_size)
        done += rounds
        rows = _rows(points, runs, scores, counters, done)
        run_folder.append_rows(table, rows)
        over = done >= task.rounds
        journal = {"offset": table.stat().st_size, "batch": None if over else [p.id for p in points], "done": done}
        checkpoint.save(folder / "checkpoint.bin", journal, None if over else (tuple(counters), state))
        tell(Chunk(points, rows, rounds, seconds))


def _add(counters: Counters, info: dict[str, np.ndarray], start: int, cohort_size: int) -> Counters:
    first_bad = start + 1 + np.argmin(info["finite"], axis=1)
    bad_now = (counters.diverged_round == 0) & ~info["finite"].all(axis=1)
    gates = counters.gate_open + info["gate"].astype(np.int64).sum(axis=1) if "gate" in info else -1
    return Counters(
        counters.bytes_down + cohort_size * info["bytes_down"].astype(np.int64).sum(axis=1),
        counters.bytes_up + cohort_size * info["bytes_up"].astype(np.int64).sum(axis=1),
        counters.exchanges + info["exchanges"].astype(np.int64).sum(axis=1),
        np.broadcast_to(gates, first_bad.shape).astype(np.int64),
        np.where(bad_now, first_bad, counters.diverged_round),
    )


def _rows(
    points: Sequence[Point], runs: Any, scores: Evaluation, counters: Counters, done: int
) -> list[dict[str, Any]]:
    """Rows of the points (padding runs have none); metrics of a diverged one are null."""
    rows = []
    for i, point in enumerate(points):
        diverged = int(counters.diverged_round[i])
        common = {
            "point": point.id, "algorithm": point.algorithm, "hparams": point.hparams,
            "settings": point.settings, "seed": point.seed,
            "round": done, "rounds": point.task.rounds,
        }  # fmt: skip
        costs = {
            "gate_open": None if counters.gate_open[i] < 0 else int(counters.gate_open[i]),
            "exchanges": int(counters.exchanges[i]),
            "bytes_down": int(counters.bytes_down[i]), "bytes_up": int(counters.bytes_up[i]),
            "status": "diverged" if diverged else "ok", "diverged_round": diverged or None,
            "final": done >= point.task.rounds,
        }  # fmt: skip
        if costs["final"] and point.task.privacy != "none":
            costs["privacy"] = privacy.statement(
                point.algorithm, point.hparams, point.task, rounds=done,
                counts=np.asarray(runs.tables.train.count[i]), sample_seed=point.seeds.sample,
            )  # fmt: skip
        for split in ("test", "validation"):
            for model, score in (getattr(scores, split) or {}).items():
                count = np.asarray(getattr(runs.tables, split).count[i])
                measured = metrics_row(score.accuracy[i], score.loss[i], count)
                row = {**common, "split": split, "model": model, **measured, **costs}
                if diverged:
                    row |= {key: None for key in measured}
                elif costs["final"] and split == "test":
                    row["client_accuracy"] = score.accuracy[i]
                rows.append(row)
    return rows


def _describe(sweep: Sweep, folder: Path) -> None:
    """sweep.json, of all points that were ever run here."""
    path = folder / "sweep.json"
    before = json.loads(path.read_text()) if path.exists() else {"points": {}}
    first = sweep.points[0]
    new = {p.id: {"algorithm": p.algorithm, "hparams": p.hparams, "seed": p.seed} for p in sweep.points}
    run_folder.write_json(path, {
        "task": first.task_name, "settings": dataclasses.asdict(first.task), "validation": first.validation,
        "varies": sorted({*before.get("varies", []), *varying(sweep.points)}),
        "data": {"name": sweep.dataset.name, "source": sweep.dataset.source, "md5": sweep.dataset.md5},
        "environment": run_folder.environment(), "points": before["points"] | new,
    })  # fmt: skip
