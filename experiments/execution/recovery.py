"""What a process that died, or a fault of the disk, left in a folder, put in order before more is written to it.

A checkpoint names the batch of runs that was running and counts its rows in each table. On start

    rows of that batch      stay as far as the checkpoint counts them; later ones come again when it is resumed
    rows of finished runs   stay, whatever else is missing
    other rows              of runs that nobody can continue, and damaged lines: moved to TABLE.aside

A run is finished if all its rows are there: a run that lost one is run again. The last two checkpoints are kept; one
that is damaged, or counts rows that are gone, is passed over. Everything but a line that was half written when its
process died is told.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from experiments.execution import folder
from experiments.execution.folder import Line
from fedeba_jax import checkpoint
from fedeba_jax.files import replacing

Say = Callable[[str], None]


class Stopped(NamedTuple):
    """The batch that was running when the process before this one ended."""

    batch: list[str]  # ids of its runs
    done: int  # rounds
    rows: dict[str, int]  # of these runs, by table
    over: bool  # whether these are all its rounds
    leaves: Sequence[np.ndarray] = ()  # its state

    def counts(self, row: dict[str, Any]) -> bool:
        """Whether a row was written before the checkpoint; rows after it come again."""
        return row["run"] in self.batch and row["round"] <= self.done


NOTHING = Stopped([], 0, {}, over=True)


def save(out: Path, stopped: Stopped, state: Any) -> None:
    """Write a checkpoint."""
    journal = stopped._asdict()
    del journal["leaves"]
    checkpoint.save(out / folder.CHECKPOINT, journal, state)


def recover(out: Path, say: Say) -> Stopped:
    """Put the tables in order; what can be resumed."""
    tables = {name: folder.lines(out / name) for name in folder.TABLES}
    done = folder.finished([line.row for line in tables[folder.RESULTS] if line.row])
    last, earlier = (_usable(path, tables, say) for path in _both(out))
    stopped = last or earlier or NOTHING
    finished = done & set(stopped.batch)
    if stopped.over or len(finished) == len(stopped.batch) or (finished and not last):
        stopped = NOTHING  # a run that is finished is not taken up again because the last checkpoint is gone
    for name, found in tables.items():
        _put_in_order(out / name, found, done, stopped, say)
    _put_in_order(out / folder.TIMINGS, folder.lines(out / folder.TIMINGS), None, NOTHING, say)
    return stopped


def start_over(out: Path, batch: Sequence[str], say: Say) -> None:
    """Move the rows of a batch aside that cannot be resumed."""
    for name in folder.TABLES:
        found = folder.lines(out / name)
        others = {line.row["run"] for line in found if line.row} - set(batch)
        _put_in_order(out / name, found, others, NOTHING, say)


def _both(out: Path) -> tuple[Path, Path]:
    """The last checkpoint, and the one before it."""
    return out / folder.CHECKPOINT, checkpoint.before(out / folder.CHECKPOINT)


def _usable(path: Path, tables: dict[str, list[Line]], say: Say) -> Stopped | None:
    """What a checkpoint holds; None if it is damaged, or the tables lack rows that it counts."""
    try:
        journal, leaves = checkpoint.load(path)
    except FileNotFoundError:
        return None
    except ValueError as error:
        say(f"{error}; it is not used")
        return None
    stopped = Stopped(**journal, leaves=leaves)
    for name, count in stopped.rows.items():
        found = sum(stopped.counts(line.row) for line in tables[name] if line.row)
        if found < count:
            say(f"{path.with_name(name)} lacks {count - found} of the rows that {path.name} counts; it is not used")
            return None
    return stopped


def _put_in_order(table: Path, found: list[Line], whole: set[str] | None, stopped: Stopped, say: Say) -> None:
    """Keep the rows of whole runs (None: all rows), and those that a checkpoint counts; move others aside."""
    kept, aside = [], []
    for line in found:
        if line.row is None:
            aside += [] if line.is_torn else [line.text]
        elif whole is None or line.row["run"] in whole - set(stopped.batch):
            kept.append(line.text)
        elif line.row["run"] not in stopped.batch:
            aside.append(line.text)
        elif stopped.counts(line.row):
            kept.append(line.text)
    if len(kept) == len(found):
        return
    if aside:
        beside = table.with_name(f"{table.name}.aside")
        _write(beside, [line.text for line in folder.lines(beside)] + aside)
        say(f"{table}: {len(aside)} rows that are damaged, or of runs that cannot be resumed, were moved to {beside}")
    _write(table, kept)


def _write(path: Path, texts: Sequence[str]) -> None:
    with replacing(path) as file:
        file.write("".join(texts).encode(errors="surrogateescape"))
