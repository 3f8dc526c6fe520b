"""Tables in the paper's layout: ours with its interval, the paper's number, the difference, and a verdict.

The interval is that of the mean over seeds (`statistics.interval`, from 6 seeds on). The paper's number is `inside` if
the interval holds it; where ours has another number of rounds, it stands there with its rounds, and is not compared.
The verdict compares a row with FedAvg, seed by seed. It is corrected over all rows on the task that were run, of
whichever table and shown or not, so that the same difference has the same verdict everywhere.
"""

import csv
import io
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from rich.console import Console

from experiments.command.runs import Run
from experiments.paper import evidence
from experiments.paper.evidence import Evidence
from experiments.paper.presets import Preset, rows_on
from experiments.paper.printed import Value
from experiments.paper.rows import MEASURES, Row
from experiments.reporting import page, tables, web
from experiments.reporting.columns import ALONE, COLUMNS, Column
from experiments.reporting.series import Setting, View
from experiments.reporting.statistics import Comparison, interval, judged, paired

BASELINE = "fedavg"
SHOWN = ("mean", "variance", "worst5", "best5")  # where the paper prints nothing
VIEW = View()
READ = "the most accurate evaluation of each run, chosen on test data"

RunsOf = Callable[[Row], Sequence[Run]]


class Cell(NamedTuple):
    """One measure of one row; numbers are as they are written."""

    mean: float  # NaN if a run diverged
    std: float
    seeds: int
    interval: tuple[float, float] | None
    printed: Value | None
    against: Comparison | None  # FedAvg; None for FedAvg itself, or without it
    baseline: str = BASELINE  # the row that it is compared with
    paper_rounds: int = 0  # of the printed number, where ours has another number of rounds

    @property
    def difference(self) -> float | None:
        """Ours minus the paper's, after as many rounds."""
        return None if self.printed is None or self.paper_rounds else self.mean - self.printed.mean

    @property
    def inside(self) -> bool | None:
        """Whether the paper's number, after as many rounds, lies in our interval."""
        if self.printed is None or self.paper_rounds or self.interval is None:
            return None
        return self.interval[0] <= self.printed.mean <= self.interval[1]


class Entry(NamedTuple):
    """One row of a sheet."""

    row: Row
    setting: Setting | None  # None: nothing was run
    asked: int  # seeds
    cells: dict[str, Cell]
    paper_rounds: int = 0  # where ours has another number of rounds

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
    preset: Preset, task: str, rows: Sequence[Row], runs_of: RunsOf, found: Evidence, *,
    same: bool = True, view: View = VIEW,
) -> Sheet:  # fmt: skip
    """The rows of a preset that belong to a task, as far as they were run.

    Args:
      preset: a table.
      task: of the rows.
      rows: those that are shown.
      runs_of: the runs of a row that are asked for.
      found: what was run.
      same: whether the setting is the paper's, but for the rounds: if not, the paper's numbers are left out.
      view: which evaluations the figure of a seed is made of.
    """
    entries = [_entry(row, runs_of, found) for row in rows]
    keys, others = measures_of(preset, rows), _others(task, entries, runs_of, found)
    for key in keys:
        _fill([*entries, *others], key, same=same, view=view)
    settings = [entry.setting for entry in entries if entry.setting]
    notes = [f"erratum: {text}" for text in preset.errata] if same else []
    notes += [f"ours: {READ if view.best else tables.averaged(settings, view)}"] if settings else []
    return Sheet(f"{preset.name}: {task}", task, [COLUMNS[key] for key in keys], entries, notes)


def _entry(row: Row, runs_of: RunsOf, found: Evidence) -> Entry:
    runs = [] if row.impossible else runs_of(row)
    setting = evidence.setting(runs, row.given, found) if runs else None
    return Entry(row, setting, len(runs), {}, _other_rounds(row, runs))


def _others(task: str, entries: Sequence[Entry], runs_of: RunsOf, found: Evidence) -> list[Entry]:
    """The rows on the task that were run and are not among these, each once whatever tables call it."""
    known = {_which(entry) for entry in entries}
    made = {_which(entry): entry for row in rows_on(task) if (entry := _entry(row, runs_of, found)).setting}
    return [entry for runs, entry in made.items() if runs not in known]


def _which(entry: Entry) -> frozenset[int]:
    """The runs of an entry: two rows that have the same ones are one setting."""
    return frozenset(map(id, entry.setting.runs)) if entry.setting else frozenset()


def there(row: Row, found: Evidence, changes: dict[str, Any] | None = None) -> list[Run]:
    """The runs of a row, with these changes of its task and all seeds that there are; of none, its first."""
    seeds = sorted({one.seed for one in found.values() if one.algorithm == row.algorithm}) or [0]
    runs = row.runs(seeds, changes)
    return [run for run in runs if evidence.key(run) in found] or runs[:1]


def _other_rounds(row: Row, runs: Sequence[Run]) -> int:
    """The rounds that the paper trains a row for; 0 if its runs have as many."""
    rounds = row.runs([runs[0].seed])[0].task.rounds if runs else 0
    return rounds if runs and runs[0].task.rounds != rounds else 0


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


def _fill(entries: Sequence[Entry], key: str, *, same: bool, view: View) -> None:
    """One measure of all rows."""
    column, rows = COLUMNS[key], [entry.row for entry in entries]
    values = [_known(entry.setting, key, view) if entry.setting else {} for entry in entries]
    compared: list[Comparison | None] = []
    others = [baseline(number, rows) for number in range(len(rows))]
    for own, other in zip(values, others, strict=True):
        both = own and other is not None and values[other]
        compared.append(paired(own, values[other or 0], higher=column.higher_is_better) if both else None)
    for entry, own, other, comparison in zip(entries, values, others, judged(compared), strict=True):
        if own:
            numbers = np.array(list(own.values())) * column.scale
            printed = _printed(entry.row, key) if same else None
            mean, std = float(numbers.mean()), float(numbers.std())
            against = scaled(comparison, column) if comparison else None
            named = BASELINE if other is None else rows[other].label
            found = Cell(mean, std, len(numbers), interval(numbers), printed, against, named, entry.paper_rounds)
            entry.cells[key] = found


def _known(setting: Setting, key: str, view: View) -> dict[int, float]:
    """Seed -> the measure; without seeds of which nothing tells what clients reach alone, if it is about that."""
    values, diverged = setting.values(key, view), {run.seed for run in setting.runs if run.diverged}
    if key not in ALONE:
        return values
    return {seed: value for seed, value in values.items() if seed in diverged or not math.isnan(value)}


def scaled(found: Comparison, column: Column) -> Comparison:
    """A comparison in the units that are written."""
    low, high = (None if end is None else end * column.scale for end in (found.low, found.high))
    return found._replace(difference=found.difference * column.scale, low=low, high=high)


def _printed(row: Row, key: str) -> Value | None:
    """The paper's number."""
    head = next((head for head, ours in MEASURES.items() if ours == key), "")
    return row.line.value(head) if row.line else None


def texts(cell: Cell, digits: int) -> list[str]:
    """A cell in short lines: ours, the paper's, the difference to FedAvg, the verdict."""
    if math.isnan(cell.mean):
        return ["diverged"]
    spread = "" if cell.seeds == 1 else f" ± {cell.std:.{digits}f}"
    held = "" if cell.interval is None else f" [{cell.interval[0]:.{digits}f}, {cell.interval[1]:.{digits}f}]"
    lines = [f"{cell.mean:.{digits}f}{held or spread}"]
    if cell.printed:
        std = "" if cell.printed.std is None else f" ± {cell.printed.std:g}"
        where = {True: ", inside", False: ", outside", None: ""}[cell.inside]
        beside = f" after {cell.paper_rounds} rounds" if cell.difference is None else f": {cell.difference:+.{digits}f}"
        lines.append(f"paper {cell.printed.mean:g}{std}{beside}{where}")
    if cell.against:
        change, verdict = _parts(cell.against, digits)
        if cell.baseline == BASELINE:
            lines += [f"FedAvg: {change}", verdict] if change else [f"FedAvg: {verdict}"]
        else:
            lines += filter(None, [f"{cell.baseline}:", change, verdict])
    return lines


def verdict_text(found: Comparison, digits: int, baseline: str = BASELINE) -> str:
    """A difference with its interval, adjusted p and verdict; against what, if it is not plain FedAvg."""
    change, verdict = _parts(found, digits)
    against = "" if baseline == BASELINE else f"against `{baseline}`"
    return ", ".join(filter(None, (" ".join(filter(None, (change, against))), verdict)))


def _parts(found: Comparison, digits: int) -> tuple[str, str]:
    """The difference with its interval; adjusted p and verdict."""
    change = "" if math.isnan(found.difference) else f"{found.difference:+.{digits}f}"
    held = "" if found.low is None else f" [{found.low:+.{digits}f}, {found.high:+.{digits}f}]"
    p = "" if found.adjusted is None else f"p {found.adjusted:.2g}, "
    return f"{change}{held}", f"{p}{found.verdict}"


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


def write_page(sheets: Sequence[Sheet], out: Path, title: str) -> bool:
    """The sheets as one page, with charts of what was run of the first; whether anything was."""
    ran = [entry for entry in sheets[0].entries if entry.setting] if sheets else []
    if ran:
        series = [run for made in sheets for entry in made.entries if entry.setting for run in entry.setting.runs]
        texts = [_plain(made)._replace(notes=made.notes) for made in sheets]
        web.write(out, title, [_drawn(sheets[0], ran)], VIEW, lines=[*page.sources(series)], instead=texts)
    return bool(ran)


def _drawn(made: Sheet, entries: Sequence[Entry]) -> tables.Table:
    """The rows of a sheet that were run, as charts show them, with its verdicts."""
    settings = [entry.setting for entry in entries if entry.setting]
    table = tables.build(settings, made.title, keys=[column.key for column in made.columns])
    rows = []
    for entry, setting, row in zip(entries, settings, table.rows, strict=True):
        own = {column.key: entry.cells[column.key].against for column in made.columns if column.key in entry.cells}
        cells = {key: cell._replace(against=own.get(key)) for key, cell in row.cells.items()}
        for_all = row.is_rival and "global" in setting.runs[0].models
        rows.append(row._replace(cells=cells, baseline=_named(entry), is_rival=for_all))
    return table._replace(rows=rows)


def _named(entry: Entry) -> str:
    """The row that an entry is compared with; "": none."""
    return next((cell.baseline for cell in entry.cells.values() if cell.against), "")


def to_csv(made: Sheet) -> str:
    """A sheet with one line for each row and measure, numbers in full."""
    fields = ("ours", "std", "low", "high", "paper", "paper_std", "paper_rounds", "difference", "inside")
    against = (
        "baseline",
        "fedavg_difference",
        "fedavg_low",
        "fedavg_high",
        "p",
        "adjusted_p",
        "improvement",
        "verdict",
    )
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(["task", "row", "seeds", "status", "measure", *fields, *against])
    for entry in made.entries:
        seeds = " ".join(str(run.seed) for run in entry.setting.runs) if entry.setting else ""
        for key in entry.cells or [""]:
            line: list[Any] = [made.task, entry.row.label, seeds, entry.status, key]
            if cell := entry.cells.get(key):
                low, high = cell.interval or (None, None)
                paper = (*(cell.printed or (None, None)), cell.paper_rounds or None)
                line += [cell.mean, cell.std, low, high, *paper, cell.difference, cell.inside, *_against(cell)]
            writer.writerow([f"{one:.10g}" if isinstance(one, float) else one for one in line])
    return buffer.getvalue()


def _against(cell: Cell) -> list[Any]:
    found = cell.against
    if found is None:
        return []
    numbers = (found.difference, found.low, found.high, found.p, found.adjusted, found.improvement)
    return [cell.baseline, *numbers, found.verdict]


def _cells(made: Sheet, entry: Entry) -> list[str]:
    """The cells of a row."""
    there = len(entry.setting.runs) if entry.setting else 0
    seeds = str(there) if there == entry.asked else f"{there} of {entry.asked}"
    label = f"{entry.row.label}\n{entry.status}" if entry.status else entry.row.label
    cells = [
        texts(entry.cells[column.key], column.digits) if column.key in entry.cells else [] for column in made.columns
    ]
    return [label, seeds, *map("\n".join, cells)]
