"""Tables of settings: mean and spread over seeds, the best marked, and what of that is noise.

A difference to the best is called noise where the seeds do not tell the two apart: with d_s the difference of the two
at seed s, over the n seeds that both have, if |mean d| <= t_{0.975, n-1} std(d) / sqrt(n). Pairing matters: the seed
decides the split and the cohorts, and moves all settings together by more than they differ.
"""

import csv
import io
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from rich.markup import escape
from rich.table import Table as RichTable

from experiments import show
from experiments.results import HIGHER_IS_BETTER, Setting, comparable, text
from experiments.run import spread

KEYS = (*show.METRICS, "bytes", "additional_cost")
SHOWN = 40  # rows that fit a terminal; files hold all
LEGEND = "bold: best of the column, underlined: second best"
NOISE = "≈: not to be told from the best (paired over common seeds, 95 %)"
ONE_SEED = "one seed: no noise estimate"


class Cell(NamedTuple):
    """A metric of a setting over seeds."""

    mean: float
    std: float  # population
    half_width: float | None  # of the 95 % interval; None with one seed
    mark: str = ""  # "best", "second"
    noise: bool | None = None  # within noise of the best; None: is the best, or cannot be told


class Row(NamedTuple):
    setting: Setting
    status: str  # "", or why it takes no part in the comparison
    cells: dict[str, Cell]


class Column(NamedTuple):
    key: str
    title: str
    digits: int
    scale: float


class Table(NamedTuple):
    title: str
    columns: list[Column]
    rows: list[Row]
    notes: list[str]


def build(settings: Sequence[Setting], title: str, *, model: str, last: int, split: str = "test") -> Table:
    """The table of the settings, a row each."""
    taking_part = {id(setting) for setting in comparable(settings)}
    values = {key: [s.values(key, split, model, last) for s in settings] for key in KEYS}
    columns_of_cells = {
        key: column(values[key], [id(s) in taking_part for s in settings], higher=HIGHER_IS_BETTER[key]) for key in KEYS
    }
    rows = [
        Row(setting, _status(setting), {key: cells[i] for key, cells in columns_of_cells.items()})
        for i, setting in enumerate(settings)
    ]
    notes = [f"{model} model, {split} data; ± is the population std over seeds of {_averaged(settings, last)}"]
    if any("prediction" in setting.parameters for setting in settings):
        notes.append(f"prediction=...: shown in place of a {model} model, which the method does not have")
    cells = [row.cells[key] for row in rows for key in KEYS if not row.setting.diverged]
    if any(cell.mark for cell in cells):
        notes.append(LEGEND)
    if any(cell.noise for cell in cells):
        notes.append(NOISE)
    if any(len(row.setting.runs) == 1 for row in rows if not row.setting.diverged):
        notes.append(ONE_SEED)
    return Table(title, _columns(rows), rows, notes)


def column(values: Sequence[dict[int, float]], taking_part: Sequence[bool], *, higher: bool) -> list[Cell]:
    """Cells of one metric, from each setting's values by seed."""
    cells = [_cell(by_seed) for by_seed in values]
    means = [cell.mean if part else math.nan for cell, part in zip(cells, taking_part, strict=True)]
    marks = mark(means, higher=higher)
    if "best" not in marks:
        return cells
    best = values[marks.index("best")]
    return [
        cell._replace(mark=m, noise=within_noise(best, own) if m != "best" and not math.isnan(mean) else None)
        for cell, m, mean, own in zip(cells, marks, means, values, strict=True)
    ]


def mark(means: Sequence[float], *, higher: bool) -> list[str]:
    """ "best", "second" or "" for each; equals share a mark, and where all are equal there is none."""
    sign = 1 if higher else -1
    levels: list[float] = []
    for value in sorted((sign * m for m in means if not math.isnan(m)), reverse=True):
        if not levels or not math.isclose(value, levels[-1], rel_tol=1e-9, abs_tol=1e-12):
            levels.append(value)
    if len(levels) < 2:
        return [""] * len(means)
    near = lambda m, level: math.isclose(sign * m, level, rel_tol=1e-9, abs_tol=1e-12)  # noqa: E731
    return ["best" if near(m, levels[0]) else "second" if near(m, levels[1]) else "" for m in means]


def within_noise(best: dict[int, float], other: dict[int, float]) -> bool | None:
    """Whether seeds that both have cannot tell them apart; None with fewer than two such seeds."""
    common = sorted(best.keys() & other.keys())
    if len(common) < 2:
        return None
    difference = spread(np.array([best[seed] - other[seed] for seed in common]))
    return bool(abs(difference["mean"]) <= difference["ci95_half_width"])


def to_rich(table: Table, *, by: str = "mean", styled: bool = True) -> RichTable:
    """For the terminal; of a long table the rows that are best by a metric. Plain text marks by signs."""
    notes = list(table.notes)
    if len(table.rows) > SHOWN:
        notes.append(f"the best {SHOWN} of {len(table.rows)} rows; all are in the files")
    if not styled:
        notes = [note.replace(LEGEND, "*best of the column*, _second best_") for note in notes]
    shown = RichTable(title=table.title, title_justify="left", caption="\n".join(notes), caption_justify="left")
    shown.add_column("setting")
    shown.add_column("seeds", justify="right")
    for column_ in table.columns:
        shown.add_column(column_.title, justify="right", no_wrap=True)
    styles = {"best": "[bold]{}[/bold]", "second": "[underline]{}[/underline]", "": "{}"}
    if not styled:
        styles = {"best": "*{}*", "second": "_{}_", "": "{}"}
    for row in _shown(table, by):
        cells = _texts(table, row, lambda body, m: styles[m].format(body))
        shown.add_row(escape(_label(row)), str(len(row.setting.runs)), *cells)
    return shown


def to_markdown(table: Table) -> str:
    styles = {"best": "**{}**", "second": "<u>{}</u>", "": "{}"}
    head = ["setting", "seeds", *(c.title for c in table.columns)]
    lines = [f"### {table.title}", "", _pipes(head), _pipes(["---", *["---:"] * (len(head) - 1)])]
    for row in table.rows:
        cells = _texts(table, row, lambda body, m: styles[m].format(body))
        lines.append(_pipes([_label(row).replace("|", "\\|"), str(len(row.setting.runs)), *cells]))
    return "\n".join([*lines, "", *(f"- {note}" for note in table.notes), ""])


def to_latex(table: Table) -> str:
    """A plain tabular, to be put into a paper as it is; what it shows is said in comments."""
    styles = {"best": r"\textbf{{{}}}", "second": r"\underline{{{}}}", "": "{}"}
    head = [_latex(name) for name in ("setting", "seeds", *(c.title for c in table.columns))]
    lines = [*(f"% {line}" for line in [table.title, *table.notes]), rf"\begin{{tabular}}{{l{'r' * (len(head) - 1)}}}"]
    lines += [r"\hline", " & ".join(head) + r" \\", r"\hline"]
    for row in table.rows:
        cells = _texts(table, row, lambda body, m: styles[m].format(_latex(body)))
        cells = [cell.replace("≈", r"$\approx$") for cell in cells]
        lines.append(" & ".join([_latex(_label(row)), str(len(row.setting.runs)), *cells]) + r" \\")
    return "\n".join([*lines, r"\hline", r"\end{tabular}", ""])


def to_csv(table: Table) -> str:
    """Every number in full, with the interval and the parameters by name; fractions and bytes unscaled."""
    parameters = list(dict.fromkeys(name for row in table.rows for name in row.setting.parameters))
    head = ["algorithm", *parameters, "seeds", "rounds", "status"]
    fields = ("mean", "std", "ci95_half_width", "mark", "within_noise_of_best")
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(head + [f"{c.key}_{field}" for c in table.columns for field in fields])
    for row in table.rows:
        setting = row.setting
        known = [text(setting.parameters[name]) if name in setting.parameters else "" for name in parameters]
        seeds = " ".join(str(run.seed) for run in setting.runs)
        line = [setting.algorithm, *known, seeds, min(run.rounds for run in setting.runs), row.status]
        for column_ in table.columns:
            cell = row.cells[column_.key]
            numbers = (cell.mean, cell.std, cell.half_width)
            line += [""] * 5 if setting.diverged else [*map(_number, numbers), cell.mark, _flag(cell.noise)]
        writer.writerow(line)
    return buffer.getvalue()


def _cell(by_seed: dict[int, float]) -> Cell:
    over_seeds = spread(np.array(list(by_seed.values())))
    return Cell(float(over_seeds["mean"]), float(over_seeds["std"]), over_seeds["ci95_half_width"])


def _status(setting: Setting) -> str:
    if setting.diverged:
        return "diverged: " + ", ".join(f"seed {seed} in round {t}" for seed, t in setting.diverged.items())
    if not setting.finished:
        return f"unfinished: round {min(run.rounds for run in setting.runs)} of {setting.runs[0].planned}"
    return ""


def _averaged(settings: Sequence[Setting], last: int) -> str:
    if last == 1:
        return "the last evaluation"
    there = min(len(rows) for setting in settings for run in setting.runs for rows in run.evals.values())
    return f"the mean of the last {last} evaluations" + (f" (some have only {there})" if there < last else "")


def _columns(rows: Sequence[Row]) -> list[Column]:
    most = max((row.cells["bytes"].mean for row in rows if not math.isnan(row.cells["bytes"].mean)), default=0)
    unit, scale = ("GiB", 2.0**-30) if most >= 2**30 else ("MiB", 2.0**-20)
    metrics = [Column(key, title, digits, 1.0) for key, (title, digits) in show.METRICS.items()]
    return [*metrics, Column("bytes", f"bytes, {unit}", 2, scale), Column("additional_cost", "add. cost %", 1, 100.0)]


def _label(row: Row) -> str:
    return row.setting.label + (f" ({row.status})" if row.status else "")


def _texts(table: Table, row: Row, style: Any) -> list[str]:
    return [_cell_text(row, column_, style) for column_ in table.columns]


def _cell_text(row: Row, column_: Column, style: Any) -> str:
    cell = row.cells[column_.key]
    if row.setting.diverged or math.isnan(cell.mean):
        return style("n/a", "")
    body = f"{cell.mean * column_.scale:.{column_.digits}f}"
    if cell.half_width is not None:
        body += f" ± {cell.std * column_.scale:.{column_.digits}f}"
    return ("≈ " if cell.noise else "") + style(body, cell.mark)


def _shown(table: Table, by: str) -> list[Row]:
    """The rows that fit, in their order: those best by a column of the table (accuracy, if it has no such column)."""
    if len(table.rows) <= SHOWN:
        return table.rows
    key = by if by in KEYS else "mean"
    sign = -1 if HIGHER_IS_BETTER[key] else 1
    rank = {id(row): math.inf if row.status else sign * row.cells[key].mean for row in table.rows}
    kept = {id(row) for row in sorted(table.rows, key=lambda row: rank[id(row)])[:SHOWN]}
    return [row for row in table.rows if id(row) in kept]


def _pipes(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def _latex(string: str) -> str:
    return "".join(_LATEX.get(character, character) for character in string)


_LATEX = {
    "\\": r"\textbackslash{}", "_": r"\_", "%": r"\%", "&": r"\&", "#": r"\#", "$": r"\$", "{": r"\{", "}": r"\}",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "°": r"$^\circ$", "±": r"$\pm$", "≈": r"$\approx$",
}  # fmt: skip


def _number(value: float | None) -> str:
    return "" if value is None or math.isnan(value) else f"{value:.10g}"


def _flag(value: bool | None) -> str:
    return "" if value is None else str(value).lower()
