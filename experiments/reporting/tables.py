"""Tables of settings: mean and spread over seeds, the best marked; for the terminal, Markdown, LaTeX and CSV."""

import csv
import io
import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

from rich.console import Console
from rich.markup import escape
from rich.table import Table as RichTable

from experiments.reporting.columns import COLUMNS, REPORT, Column, column
from experiments.reporting.loading import LAST, Setting, View, text
from experiments.reporting.selection import comparable
from experiments.reporting.statistics import Cell, compare

MOST_ROWS = 40  # that fit a terminal; files hold all
LEGEND = "bold: best of the column, underlined: second best"
PLAIN_LEGEND = "*best of the column*, _second best_"
NOISE = "≈: not to be told from the best (paired over common seeds, 95 %)"
ONE_SEED = "one seed: no noise estimate"
PERSONAL = "(personal): the clients' personal predictions; other rows: the global model"


class Row(NamedTuple):
    """One model of one setting."""

    setting: Setting
    model: str
    label: str
    cells: dict[str, Cell]


class Table(NamedTuple):
    title: str
    columns: list[Column]
    rows: list[Row]
    notes: list[str]


class Style(NamedTuple):
    """How a format marks numbers, and what it does to text that it would misread."""

    best: str
    second: str
    escape: Callable[[str], str]


def build(
    settings: list[Setting], title: str, *, model: str | None = "global", last: int = LAST, keys: Sequence[str] = REPORT
) -> Table:
    """One row per setting; with model=None, one for its global model and one for its personal predictions."""
    rows = blank_rows(settings, model)
    usable = comparable(settings)
    part = [row.setting in usable for row in rows]
    for key in keys:
        values = [row.setting.values(key, View(row.model, last)) for row in rows]
        for row, cell in zip(rows, compare(values, part, higher=COLUMNS[key].higher_is_better), strict=True):
            row.cells[key] = cell
    columns = [column(key, max((row.cells[key].mean for row in rows), default=0.0)) for key in keys]
    return Table(title, columns, rows, _notes(rows, model, last))


def blank_rows(settings: Sequence[Setting], model: str | None) -> list[Row]:
    """Settings with the model, or with None, global and personal ones, whichever there are; no numbers yet."""
    rows = []
    for setting in settings:
        for name in [model] if model else sorted(setting.runs[0].models & {"global", "personal"}):
            whose = " (personal)" if model is None and name == "personal" else ""
            status = f" ({setting.status})" if setting.status else ""
            rows.append(Row(setting, name, setting.label + whose + status, {}))
    return rows


def averaged(settings: Sequence[Setting], view: View) -> str:
    """What a number is the mean of, in words; never more evaluations than there are."""
    counts = {setting.averaged(view) for setting in settings if not setting.diverged} or {view.last}
    some = f" (some have only {min(counts)})" if len(counts) > 1 else ""
    return f"the mean of the last {max(counts)} evaluations{some}" if max(counts) > 1 else "the last evaluation"


def show(table: Table, *, by: str = "mean", console: Console | None = None) -> None:
    """Print a table, of a long one the rows that are best by a metric.

    In a file or a pipe, signs mark the best in place of styles, and the lines are as long as they need to be.
    """
    console = console or Console(highlight=False)
    styled = console.is_terminal
    style = Style("[bold]{}[/bold]", "[underline]{}[/underline]", escape) if styled else Style("*{}*", "_{}_", escape)
    notes = [note if styled else note.replace(LEGEND, PLAIN_LEGEND) for note in table.notes]
    if len(table.rows) > MOST_ROWS:
        notes.append(f"the best {MOST_ROWS} of {len(table.rows)} rows; all are in the files")
    title, caption = escape(table.title), escape("\n".join(notes))
    made = RichTable(title=title, caption=caption, title_justify="left", caption_justify="left")
    for i, name in enumerate(_head(table)):
        made.add_column(name, justify="right" if i else "left", no_wrap=i > 0)
    for row in best_rows(table, by):
        made.add_row(*_texts(table, row, style))
    (console if styled else Console(width=200, file=console.file, highlight=False)).print(made)


def to_markdown(table: Table) -> str:
    style = Style("**{}**", "<u>{}</u>", markdown)
    head = _head(table)
    body = [head, ["---", *["---:"] * (len(head) - 1)], *(_texts(table, row, style) for row in table.rows)]
    lines = ["| " + " | ".join(cells) + " |" for cells in body]
    notes = [f"- {markdown(note)}" for note in table.notes]
    return "\n".join([f"### {markdown(table.title)}", "", *lines, "", *notes, ""])


def markdown(string: str) -> str:
    """A text that stands for itself in Markdown: no HTML, no cell of a table."""
    return string.replace("&", "&amp;").replace("<", "&lt;").replace("|", "\\|")


def to_latex(table: Table) -> str:
    """A plain tabular, to be put into a paper as it is; comments say what it shows."""
    style = Style(r"\textbf{{{}}}", r"\underline{{{}}}", _latex)
    head, *body = [_latex(name) for name in _head(table)], *(_texts(table, row, style) for row in table.rows)
    comments = [f"% {line}" for line in [table.title, *table.notes]]
    lines = [" & ".join(cells) + r" \\" for cells in (head, *body)]
    frame = rf"\begin{{tabular}}{{l{'r' * (len(head) - 1)}}}", r"\hline"
    return "\n".join([*comments, *frame, lines[0], r"\hline", *lines[1:], r"\hline", r"\end{tabular}", ""])


def to_csv(table: Table) -> str:
    """Every number in full, with the interval and the parameters by name; fractions and bytes unscaled."""
    # All parameters but "rounds", which has its own column, of the rounds done.
    parameters = dict.fromkeys(name for row in table.rows for name in row.setting.parameters if name != "rounds")
    fields = ("mean", "std", "ci95_half_width", "mark", "within_noise_of_best")
    figures = [f"{c.key}_{field}" for c in table.columns for field in fields]
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(["algorithm", *parameters, "evaluated_model", "seeds", "rounds", "status", *figures])
    for setting, model, _, cells in table.rows:
        known = [text(setting.parameters[name]) if name in setting.parameters else "" for name in parameters]
        seeds = " ".join(str(run.seed) for run in setting.runs)
        line = [setting.algorithm, *known, setting.runs[0].shown(model), seeds, setting.rounds, setting.status]
        for cell in cells.values():
            noise = "" if cell.noise is None else text(cell.noise)
            line += [""] * len(fields) if setting.diverged else [*map(_number, cell[:3]), cell.mark, noise]
        writer.writerow(line)
    return buffer.getvalue()


def best_rows(table: Table, by: str) -> list[Row]:
    """The rows that fit a terminal, in their order: those best by a column (by the first, if there is no such one)."""
    chosen = next((c for c in table.columns if c.key == by), table.columns[0])

    def rank(row: Row) -> float:
        return math.inf if row.setting.status else chosen.rank(row.cells[chosen.key].mean)

    best = sorted(table.rows, key=rank)[:MOST_ROWS]
    return [row for row in table.rows if row in best]


def _notes(rows: Sequence[Row], model: str | None, last: int) -> list[str]:
    settings = [row.setting for row in rows]
    cells = [cell for row in rows if not row.setting.diverged for cell in row.cells.values()]
    whose = f"{model} model, " if model else ""
    what = averaged(settings, View(model or "global", last))
    stand_ins = f"prediction=...: shown in place of a {model} model, which the method does not have"
    told = {
        f"{whose}test data; ± is the population std over seeds of {what}": True,
        stand_ins: any("prediction" in setting.parameters for setting in settings),
        PERSONAL: model is None and any(row.model == "personal" for row in rows),
        LEGEND: any(cell.mark for cell in cells),
        NOISE: any(cell.noise for cell in cells),
        ONE_SEED: any(len(setting.runs) == 1 for setting in settings if not setting.diverged),
    }
    return [note for note, applies in told.items() if applies]


def _head(table: Table) -> list[str]:
    return ["setting", "seeds", *(c.title for c in table.columns)]


def _texts(table: Table, row: Row, style: Style) -> list[str]:
    """The cells of a row as text."""
    return [style.escape(row.label), str(len(row.setting.runs)), *(_cell_text(row, c, style) for c in table.columns)]


def _cell_text(row: Row, shown: Column, style: Style) -> str:
    cell = row.cells[shown.key]
    if row.setting.diverged or math.isnan(cell.mean):
        return "n/a"
    over_seeds = "" if cell.half_width is None else f" ± {cell.std * shown.scale:.{shown.digits}f}"
    body = f"{cell.mean * shown.scale:.{shown.digits}f}{over_seeds}"
    marked = {"best": style.best, "second": style.second, "": "{}"}[cell.mark].format(style.escape(body))
    return (style.escape("≈ ") if cell.noise else "") + marked


_LATEX = str.maketrans(
    {sign: rf"\{sign}" for sign in "_%&#${}"}
    | {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
    | {"°": r"$^\circ$", "±": r"$\pm$", "≈": r"$\approx$"}
)


def _latex(string: str) -> str:
    return string.translate(_LATEX)


def _number(value: float | None) -> str:
    return "" if value is None or math.isnan(value) else f"{value:.10g}"
