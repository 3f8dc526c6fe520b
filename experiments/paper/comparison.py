"""Tables in the paper's layout: ours with its interval, the paper's number, the difference, and a verdict.

The interval is that of the mean over seeds (`statistics.interval`, from 6 seeds on). The paper's number is `inside` if
the interval holds it. The verdict compares a row with FedAvg, seed by seed, corrected over the rows of a table.
"""

import csv
import io
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from rich.console import Console

from experiments.command.runs import Run
from experiments.paper import evidence
from experiments.paper.evidence import Evidence
from experiments.paper.presets import Preset
from experiments.paper.printed import Value
from experiments.paper.rows import MEASURES, Row
from experiments.reporting import tables
from experiments.reporting.columns import COLUMNS, Column
from experiments.reporting.series import Setting, View
from experiments.reporting.statistics import Comparison, interval, judged, paired

BASELINE = "fedavg"
SHOWN = ("mean", "variance", "worst5", "best5")  # where the paper prints nothing
VIEW = View()

RunsOf = Callable[[Row], Sequence[Run]]


class Cell(NamedTuple):
    """One measure of one row; numbers are as they are written."""

    mean: float  # NaN if a run diverged
    std: float
    seeds: int
    interval: tuple[float, float] | None
    printed: Value | None
    against: Comparison | None  # FedAvg; None for FedAvg itself, or without it

    @property
    def difference(self) -> float | None:
        """Ours minus the paper's."""
        return None if self.printed is None else self.mean - self.printed.mean

    @property
    def inside(self) -> bool | None:
        """Whether the paper's number lies in our interval."""
        if self.printed is None or self.interval is None:
            return None
        return self.interval[0] <= self.printed.mean <= self.interval[1]


class Entry(NamedTuple):
    """One row of a sheet."""

    row: Row
    setting: Setting | None  # None: nothing was run
    asked: int  # seeds
    cells: dict[str, Cell]

    @property
    def status(self) -> str:
        if self.row.impossible:
            return f"not possible: {self.row.impossible}"
        if self.setting is None:
            return "not run"
        return self.setting.status


class Sheet(NamedTuple):
    """A table of the paper on one task."""

    title: str
    task: str
    columns: list[Column]
    entries: list[Entry]
    notes: list[str]


def sheet(
    preset: Preset, task: str, rows: Sequence[Row], runs_of: RunsOf, found: Evidence, *, same: bool = True
) -> Sheet:
    """The rows of a preset that belong to a task, as far as they were run.

    Args:
      preset: a table.
      task: of the rows.
      rows: those that are shown.
      runs_of: the runs of a row that are asked for.
      found: what was run.
      same: whether the setting is the paper's: if not, the paper's numbers are left out.
    """
    entries = []
    for row in rows:
        runs = [] if row.impossible else runs_of(row)
        setting = evidence.setting(runs, row.given, found) if runs else None
        entries.append(Entry(row, setting, len(runs), {}))
    keys = measures_of(preset, rows)
    for key in keys:
        _fill(entries, key, same=same)
    notes = [f"erratum: {text}" for text in preset.errata] if same else []
    return Sheet(f"{preset.name}: {task}", task, [COLUMNS[key] for key in keys], entries, notes)


def measures_of(preset: Preset, rows: Sequence[Row]) -> list[str]:
    """What is printed of these rows, by our names and in the paper's order; beside a variance, that without noise."""
    lines = [row.line for row in rows if row.line]
    heads = {line.likely.get(head, head) for line in lines for head in line.values}
    printed = {MEASURES[head] for head in heads if head in MEASURES}
    keys = [key for key in preset.measures if key in printed] or [*(preset.measures or SHOWN)]
    beside = keys.index("variance") + 1 if "variance" in keys else 0
    return [*keys[:beside], *["variance_corrected"] * (beside > 0), *keys[beside:]]


def baseline(number: int, rows: Sequence[Row]) -> int | None:
    """Which row is the FedAvg that a row is compared with: one with the same options, or else the plain one."""
    own = rows[number]
    if own.algorithm == BASELINE and not own.options:
        return None
    averaged = [i for i, row in enumerate(rows) if row.algorithm == BASELINE and i != number]
    same = [i for i in averaged if rows[i].options == own.options]
    plain = [i for i in averaged if not rows[i].options]
    return next(iter([*same, *plain]), None)


def _fill(entries: Sequence[Entry], key: str, *, same: bool) -> None:
    """One measure of all rows."""
    column, rows = COLUMNS[key], [entry.row for entry in entries]
    values = [entry.setting.values(key, VIEW) if entry.setting else {} for entry in entries]
    compared: list[Comparison | None] = []
    for number, own in enumerate(values):
        other = baseline(number, rows)
        both = own and other is not None and values[other]
        compared.append(paired(own, values[other or 0], higher=column.higher_is_better) if both else None)
    for entry, own, comparison in zip(entries, values, judged(compared), strict=True):
        if own:
            numbers = np.array(list(own.values())) * column.scale
            printed = _printed(entry.row, key) if same else None
            mean, std = float(numbers.mean()), float(numbers.std())
            against = scaled(comparison, column) if comparison else None
            entry.cells[key] = Cell(mean, std, len(numbers), interval(numbers), printed, against)


def scaled(found: Comparison, column: Column) -> Comparison:
    """A comparison in the units that are written."""
    low, high = (None if end is None else end * column.scale for end in (found.low, found.high))
    return found._replace(difference=found.difference * column.scale, low=low, high=high)


def _printed(row: Row, key: str) -> Value | None:
    """The paper's number."""
    head = next((head for head, ours in MEASURES.items() if ours == key), "")
    return row.line.value(head) if row.line else None


def texts(cell: Cell, digits: int) -> list[str]:
    """A cell in at most three lines: ours, the paper's, the verdict."""
    if math.isnan(cell.mean):
        return ["diverged"]
    spread = "" if cell.seeds == 1 else f" ± {cell.std:.{digits}f}"
    held = "" if cell.interval is None else f" [{cell.interval[0]:.{digits}f}, {cell.interval[1]:.{digits}f}]"
    lines = [f"{cell.mean:.{digits}f}{held or spread}"]
    if cell.printed and cell.difference is not None:
        std = "" if cell.printed.std is None else f" ± {cell.printed.std:g}"
        where = {True: ", inside", False: ", outside", None: ""}[cell.inside]
        lines.append(f"paper {cell.printed.mean:g}{std}: {cell.difference:+.{digits}f}{where}")
    if cell.against:
        lines.append(f"FedAvg: {verdict_text(cell.against, digits)}")
    return lines


def verdict_text(found: Comparison, digits: int) -> str:
    """A difference and its verdict."""
    change = "" if math.isnan(found.difference) else f"{found.difference:+.{digits}f}, "
    return f"{change}{found.verdict}"


def show(made: Sheet, console: Console | None = None) -> None:
    """Print a sheet."""
    console = console or Console(highlight=False)
    wrap = None if console.is_terminal else 2
    tables.show_plain(_plain(made)._replace(notes=made.notes), tables.roomy(console), wrap=wrap, lines=True)


def to_markdown(made: Sheet) -> str:
    """A sheet as a table of Markdown."""
    return tables.plain_markdown(_plain(made))


def _plain(made: Sheet) -> tables.Plain:
    head = ["row", "seeds", *(column.title for column in made.columns)]
    return tables.Plain(made.title, head, [_cells(made, entry) for entry in made.entries])


def to_csv(made: Sheet) -> str:
    """A sheet with one line for each row and measure, numbers in full."""
    fields = ("ours", "std", "low", "high", "paper", "paper_std", "difference", "inside")
    against = ("fedavg_difference", "fedavg_low", "fedavg_high", "p", "adjusted_p", "improvement", "verdict")
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(["task", "row", "seeds", "status", "measure", *fields, *against])
    for entry in made.entries:
        seeds = " ".join(str(run.seed) for run in entry.setting.runs) if entry.setting else ""
        for key in entry.cells or [""]:
            line: list[Any] = [made.task, entry.row.label, seeds, entry.status, key]
            if cell := entry.cells.get(key):
                low, high = cell.interval or (None, None)
                line += [cell.mean, cell.std, low, high, *(cell.printed or (None, None)), cell.difference, cell.inside]
                line += _against(cell.against)
            writer.writerow([f"{one:.10g}" if isinstance(one, float) else one for one in line])
    return buffer.getvalue()


def _against(found: Comparison | None) -> list[Any]:
    if found is None:
        return []
    return [found.difference, found.low, found.high, found.p, found.adjusted, found.improvement, found.verdict]


def _cells(made: Sheet, entry: Entry) -> list[str]:
    """The cells of a row."""
    there = len(entry.setting.runs) if entry.setting else 0
    seeds = str(there) if there == entry.asked else f"{there} of {entry.asked}"
    label = f"{entry.row.label}\n{entry.status}" if entry.status else entry.row.label
    cells = [texts(entry.cells[column.key], column.digits) if entry.cells else [] for column in made.columns]
    return [label, seeds, *map("\n".join, cells)]
