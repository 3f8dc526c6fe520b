"""The folder of an experiment: what every binary that trains writes, and every report reads.

    experiment.json   the mark of a folder of ours, the task, what varies, the planned runs, and the origins of the
                      rows (data source and md5, versions, commit, devices, machine)
    results.jsonl     one row per run, evaluation, split and model: settings, metrics, costs; the last rows of a run
                      ("final") also hold how many rows it has, the accuracy and loss of each client, what the run may
                      claim on privacy, and under label noise the number of wrong labels
    rounds.jsonl      one row per run and round: gate, angle, losses, weights, communication (`train` alone)
    timings.jsonl     one row per chunk of rounds: how long it took; the only file that differs between two equal runs
    summary.json      means over seeds, made from results.jsonl when all runs are done
    checkpoint.bin    the running batch of runs: its state, and how many rows of the tables belong to it
    checkpoint.bin.before  the checkpoint before, used if the last one is damaged
    *.aside           rows that were taken out of a table, because they are damaged or can not be continued
    lock              held by the process that writes here
    parts             folders like this one, of batches that a cluster runs; gone when they are merged

A packed folder (`archive`) has results.jsonl.xz and timings.jsonl.xz in place of these tables. It is read as any other,
and nothing is written to it.

Rows are appended as they come, each with its checksum. What a process that died left behind is put in order when the
next one starts (`recovery`), so that a run that was killed ends with the same bytes as one that was left alone.
"""

import contextlib
import fcntl
import importlib.metadata
import json
import lzma
import math
import os
import platform
import subprocess
import zlib
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from experiments.command.runs import Run, varying
from fedeba_jax.checkpoint import before
from fedeba_jax.files import naming, replacing

FORMAT, VERSION = "fedeba_jax experiment", 3
MARK, RESULTS, ROUNDS, TIMINGS = "experiment.json", "results.jsonl", "rounds.jsonl", "timings.jsonl"
SUMMARY, CHECKPOINT, LOCK = "summary.json", "checkpoint.bin", "lock"
TABLES = (RESULTS, ROUNDS)  # what a checkpoint vouches for
EARLIER = before(Path(CHECKPOINT)).name
OURS = (RESULTS, ROUNDS, TIMINGS, SUMMARY, CHECKPOINT, EARLIER, MARK)  # the mark last: it says whose the others are
UNFINISHED = tuple(f"{name}.tmp" for name in (SUMMARY, CHECKPOINT, MARK))  # of a process that was killed
OLD = ("config.json", "sweep.json")  # marks of folders of older versions
_SEAL = ', "crc": "'  # what is between a row and its checksum
LAST = 5  # evaluations that a figure averages, see `averaged`: one moves by tens of percent with the last cohort
PACKAGES = ("fedeba_jax", "jax", "jaxlib", "flax", "optax", "numpy")


def shown(models: Iterable[str], wanted: str = "global") -> str:
    """The evaluated model that stands for the wanted one: global and personal stand in for each other."""
    other = {"global": "personal", "personal": "global"}.get(wanted, wanted)
    return other if wanted not in models and other in models else wanted


def averaged(evaluations: int, most: int = LAST) -> int:
    """How many of its last evaluations the figure of a run averages: never more than half of them, but one at least.

    More than half would be the training curve, and not where it ended.
    """
    return max(1, min(most, evaluations // 2))


def figure(values: Sequence[float], most: int = LAST) -> float:
    """The figure of a run whose evaluations came to these values; NaN if there are none."""
    return float(np.mean(values[-averaged(len(values), most) :])) if values else math.nan


def description(folder: Path) -> dict[str, Any]:
    """The content of experiment.json; an error, in one line, if the folder is not ours."""
    for name in OLD:
        if (folder / name).exists() and not (folder / MARK).exists():
            raise ValueError(f"{folder} is of an older version of fedeba_jax ({name}); run it again in another folder")
    try:
        content = json.loads((folder / MARK).read_text())
    except FileNotFoundError:
        raise ValueError(f"{folder} holds files that are not of an experiment; give another folder") from None
    except ValueError:
        raise ValueError(f"{folder / MARK} is not JSON; restore it, or give another folder") from None
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise ValueError(f"{folder / MARK} is not the file of an experiment of fedeba_jax; give another folder")
    if (found := content.get("version")) != VERSION:
        remedy = "use the fedeba_jax that wrote it, or give another folder"
        raise ValueError(f"{folder / MARK} has version {found}, and this fedeba_jax reads version {VERSION}; {remedy}")
    if content.pop("crc", None) != _crc(json.dumps(content)):
        raise ValueError(f"{folder / MARK} is damaged (its checksum is wrong); restore it, or give another folder")
    return content


def is_new(folder: Path) -> bool:
    """Whether the folder is yet to be made, or empty; an error if it cannot be a folder of ours."""
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"--out={folder} is a file; give a folder")
    held = [path.name for path in folder.iterdir()] if folder.exists() else []
    if not set(held) - {LOCK, *UNFINISHED}:
        return True
    description(folder)
    return False


def check_no_others(folder: Path, runs: Sequence[Run]) -> None:
    """An error if the folder holds runs that are not among these; it names what differs."""
    planned = {run.id: cleaned(run.record) for run in runs}
    for id_, other in description(folder)["runs"].items():
        if id_ not in planned:
            closest = min(planned.values(), key=lambda record: len(_differences(other, record)))
            told = ", ".join(f"{name}={a} there, {b} now" for name, a, b in _differences(other, closest)[:3])
            raise ValueError(
                f"--out={folder} holds a run that is not asked for ({told}); give another folder, or --overwrite to "
                "replace it"
            )


def _differences(one: dict[str, Any], other: dict[str, Any]) -> list[tuple[str, Any, Any]]:
    """Names and values in which two records of runs differ."""
    flat = [{**r["settings"], **r["hparams"], "algorithm": r["algorithm"], "seed": r["seed"]} for r in (one, other)]
    names = dict.fromkeys([*flat[0], *flat[1]])
    return [(n, flat[0].get(n), flat[1].get(n)) for n in names if flat[0].get(n) != flat[1].get(n)]


def describe(folder: Path, runs: Sequence[Run], origins: dict[str, dict[str, Any]]) -> dict[str, int]:
    """Write experiment.json, of all runs that were ever planned here.

    Args:
      folder: the folder.
      runs: the planned runs.
      origins: where the rows that follow come from, by data set.

    Returns:
      The number of each origin, by data set.
    """
    path = folder / MARK
    before = description(folder) if path.exists() else {"runs": {}, "origins": [], "varies": []}
    known: list[dict[str, Any]] = before["origins"]
    for origin in origins.values():
        if (clean := cleaned(origin)) not in known:
            known.append(clean)
    content = {
        "format": FORMAT,
        "version": VERSION,
        "task": runs[0].task_name,
        "varies": sorted({*before["varies"], *varying(runs)}),
        "runs": before["runs"] | {run.id: run.record | {"rounds": run.task.rounds} for run in runs},
        "origins": known,
    }
    write_mark(folder, content)
    return {name: known.index(cleaned(origin)) for name, origin in origins.items()}


def write_mark(folder: Path, content: dict[str, Any]) -> None:
    """Write experiment.json, with a checksum of its content."""
    content = cleaned(content)
    write_json(folder / MARK, content | {"crc": _crc(json.dumps(content))})


def clear(folder: Path) -> None:
    """Remove the files of an experiment, and nothing else."""
    for name in (*UNFINISHED, *OURS):
        (folder / name).unlink(missing_ok=True)


class Lock:
    """Only one process writes to a folder; the system lets go of the lock when it dies.

    A folder that was made for the lock, and holds nothing else in the end, is removed again.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def __enter__(self) -> None:
        self._made = not self._folder.exists()
        self._folder.mkdir(parents=True, exist_ok=True)
        self._file = open(self._folder / LOCK, "a")
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self._file.close()
            raise ValueError(
                f"--out={self._folder}: another process is writing to this folder; wait for it, or give another folder"
            ) from None

    def __exit__(self, *_: Any) -> None:
        if self._made and [path.name for path in self._folder.iterdir()] == [LOCK]:
            with contextlib.suppress(OSError):  # another process came in the meantime
                (self._folder / LOCK).unlink()
                self._folder.rmdir()
        self._file.close()


def write_json(path: Path, content: Any) -> None:
    """Write a whole file or nothing."""
    with replacing(path) as file:
        file.write(f"{json.dumps(cleaned(content), indent=1)}\n".encode())


class Line(NamedTuple):
    """One line of a table; the row is None if the line is not as it was written."""

    text: str
    row: dict[str, Any] | None

    @property
    def is_torn(self) -> bool:
        """Whether a process died while it wrote this line: it is the last, and has no end."""
        return self.row is None and not self.text.endswith("\n")


def append_rows(path: Path, rows: Iterable[dict[str, Any]]) -> None:
    """Append rows as JSON lines, in one write; each ends with a checksum of what is before it."""
    with naming(path), open(path, "ab") as file:
        file.write("".join(as_line(row) for row in rows).encode())
        file.flush()
        os.fsync(file.fileno())  # a checkpoint, which vouches for the rows, may follow


def as_line(row: dict[str, Any]) -> str:
    """A row as a line of a table."""
    text = json.dumps(cleaned(row))
    return f'{text[:-1]}{_SEAL}{_crc(text)}"}}\n'


def packed(path: Path) -> Path:
    """The file that holds a table in a packed folder."""
    return path.with_name(f"{path.name}.xz")


def is_packed(folder: Path) -> bool:
    """Whether a folder is one that `archive` packed."""
    return packed(folder / RESULTS).exists()


def lines(path: Path) -> list[Line]:
    """The lines of a table, damaged ones among them; of a packed folder, too."""
    opened: Any = open if path.exists() else lzma.open
    held = path if path.exists() else packed(path)
    try:
        with opened(held, "rt", encoding="utf-8", errors="surrogateescape", newline="\n") as file:
            return [Line(text, _row(text)) for text in file]
    except FileNotFoundError:
        return []
    except (lzma.LZMAError, EOFError) as error:
        raise ValueError(f"{held} is damaged ({error}); restore it") from None


def _row(text: str) -> dict[str, Any] | None:
    """The row that a line holds; None if the line is damaged.

    A row belongs to one round of one run, or says how long several runs took.
    """
    body, seal, crc = text.rpartition(_SEAL)
    if not seal or crc != f'{_crc(f"{body}}}")}"}}\n':
        return None
    row = json.loads(f"{body}}}")
    of_one = isinstance(row.get("run"), str) and isinstance(row.get("round"), int)
    return row if of_one or ("run" not in row and "runs" in row) else None


def _crc(text: str) -> str:
    return f"{zlib.crc32(text.encode(errors='surrogateescape')):08x}"


def read_rows(path: Path) -> list[dict[str, Any]]:
    """Rows of a table; a last line that is half written is left out: its process died, or is still writing."""
    found = lines(path)
    for number, line in enumerate(found, 1):
        if line.row is None and not line.is_torn:
            remedy = "give the command that made it again, which repairs it"
            raise ValueError(f"{path}, line {number} is damaged (its checksum is wrong); {remedy}")
    return [line.row for line in found if line.row is not None]


def whole_rows(path: Path) -> list[dict[str, Any]]:
    """The rows of a table that another process may be writing: those that are there."""
    return [line.row for line in lines(path) if line.row is not None]


def finished(rows: Sequence[dict[str, Any]]) -> set[str]:
    """Runs that need no more work: their last row is among these, and so are all before it."""
    counts = Counter(row["run"] for row in rows)
    return {row["run"] for row in rows if row.get("final") and counts[row["run"]] == row.get("rows")}


def environment() -> dict[str, Any]:
    """Versions, commit, devices and machine."""
    return {
        "python": platform.python_version(),
        "packages": packages(),
        "commit": commit(),
        "backend": jax.default_backend(),
        "devices": [device.device_kind for device in jax.devices()],
        "machine": machine(),
    }


def machine(info: Path = Path("/proc/cpuinfo")) -> dict[str, Any]:
    """The model of the processor, and how many of its cores this process may use."""
    lines = info.read_text().splitlines() if info.exists() else []
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    allowed = getattr(os, "sched_getaffinity", None)  # Linux alone has it
    return {
        "cpu": next(filter(None, (*models, platform.processor(), platform.machine())), "unknown"),
        "cores": len(allowed(0)) if allowed else os.cpu_count(),
    }


def told_machine(origin: dict[str, Any]) -> str:
    """Where rows were made, in words; rows that were written before the machine was recorded tell the devices alone."""
    known = origin.get("machine")
    own = f", {known['cpu']}, {known['cores']} cores" if known else ""
    return f"{len(origin['devices'])} x {origin['devices'][0]}{own}, jax {origin['packages']['jax']}"


def packages() -> dict[str, str]:
    """The versions of what results depend on."""
    return {name: importlib.metadata.version(name) for name in PACKAGES}


def commit() -> str | None:
    """The commit of the source tree, with "+" if it was changed since; None outside a checkout."""
    here = str(Path(__file__).parent)

    def git(*arguments: str) -> str:
        done = subprocess.run(["git", "-C", here, *arguments], capture_output=True, text=True, check=True)
        return done.stdout.strip()

    try:
        return git("rev-parse", "HEAD") + ("+" if git("status", "--porcelain", "--untracked-files=no") else "")
    except (OSError, subprocess.CalledProcessError):
        return None


def cleaned(value: Any) -> Any:
    """As JSON takes it: Python numbers of 7 digits, and null for what is not finite."""
    if isinstance(value, dict):
        return {str(k): cleaned(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [cleaned(v) for v in value]
    if isinstance(value, np.ndarray | jax.Array):
        return cleaned(np.asarray(value).tolist())
    if isinstance(value, np.generic):
        return cleaned(value.item())
    if isinstance(value, float):
        return float(f"{value:.7g}") if math.isfinite(value) else None
    return value
