"""Folders of experiments in a small form, to be committed, and continued later on another machine.

    experiment.json      as it was: the planned runs, also those that are missing, and the origins of the rows
    results.jsonl.xz     all rows of the finished runs, with their checksums, run after run in the order of the plan
    timings.jsonl.xz     how long they took

A run that is not finished is left out: only a checkpoint could continue it. The same rows make the same bytes, so a
folder that was unpacked and packed again is the same. Packing into a packed folder adds to it.
"""

import lzma
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from experiments.execution import folder
from fedeba_jax.files import replacing

PRESET = 6  # of xz; 9 takes longer for the same size
TABLES = (folder.RESULTS, folder.TIMINGS)


def pack(source: Path, target: Path) -> list[str]:
    """Pack the finished runs of a folder; the ids of those that the packed folder then has.

    Args:
      source: a folder that a binary wrote; a process may be writing to it.
      target: a new folder, or a packed one, whose runs stay.
    """
    content, rows = _held(source)
    timings = folder.whole_rows(source / folder.TIMINGS)
    if not folder.is_new(target):
        if not folder.is_packed(target):
            raise ValueError(f"{target} is not packed: runs are trained there; give another folder to pack into")
        before, kept = _held(target)
        content, rows = _joined(before, kept, content, rows, target)
        known = folder.whole_rows(target / folder.TIMINGS)
        timings = known + [one for one in timings if one not in known]
    if not rows:
        raise ValueError(f"{source} has no finished run; there is nothing to pack yet")
    done = set(rows)
    target.mkdir(parents=True, exist_ok=True)
    _write(target / folder.RESULTS, [row for run in content["runs"] for row in rows.get(run, ())])
    _write(target / folder.TIMINGS, [one for one in timings if done.intersection(one["runs"])])
    folder.write_mark(target, content)
    return sorted(done)


def unpack(source: Path, target: Path) -> None:
    """Make a folder that the same command continues: it runs what is missing."""
    if not folder.is_packed(source):
        raise ValueError(f"{source} is not a packed folder; give one that `archive pack` made")
    if not folder.is_new(target):
        raise ValueError(f"{target} holds an experiment; give a new folder")
    content = folder.description(source)
    tables = {name: folder.read_rows(source / name) for name in TABLES}
    target.mkdir(parents=True, exist_ok=True)
    folder.write_mark(target, content)
    for name, rows in tables.items():
        folder.append_rows(target / name, rows)


def _held(source: Path) -> tuple[dict[str, Any], dict[str, list[dict[str, Any]]]]:
    """The description of a folder, and the rows of its finished runs."""
    content = folder.description(source)
    found = folder.whole_rows(source / folder.RESULTS)
    rows: dict[str, list[dict[str, Any]]] = {run: [] for run in folder.finished(found)}
    for row in found:
        if row["run"] in rows:
            rows[row["run"]].append(row)
    return content, rows


def _joined(
    before: dict[str, Any], kept: dict[str, Any], content: dict[str, Any], rows: dict[str, Any], target: Path
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Two folders as one: descriptions joined, origins numbered anew, runs that both have once."""
    origins = list(before["origins"])
    origins += [one for one in content["origins"] if one not in origins]
    number = [origins.index(one) for one in content["origins"]]
    moved = {run: [row | {"origin": number[row["origin"]]} for row in own] for run, own in rows.items()}
    for run in kept.keys() & moved.keys():
        if kept[run] != moved[run]:
            raise ValueError(
                f"{target} has the run {run} with other numbers; remove {target} to replace it, or give another folder"
            )
    joined = before | {
        "varies": sorted({*before["varies"], *content["varies"]}),
        "runs": before["runs"] | content["runs"],
        "origins": origins,
    }
    return joined, kept | moved


def _write(table: Path, rows: Sequence[dict[str, Any]]) -> None:
    text = "".join(folder.as_line(row) for row in rows)
    with replacing(folder.packed(table)) as file:
        file.write(lzma.compress(text.encode(), preset=PRESET, check=lzma.CHECK_CRC64))
