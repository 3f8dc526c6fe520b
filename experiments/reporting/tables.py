"""Tables of settings: mean and spread over seeds, the best marked, each compared with a baseline.

For the terminal, Markdown, LaTeX and CSV.
"""

import csv
import io
import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

from rich.console import Console
from rich.markup import escape
from rich.table import Table as RichTable

from experiments.reporting.columns import ALONE, COLUMNS, COMPARED, FRONT, REPORT, Column, column, compared
from experiments.reporting.selection import BASELINES, baseline, rivals
from experiments.reporting.series import LAST, Setting, View, grouped, text
from experiments.reporting.statistics import FEWEST, Cell, cells, pareto_front

WIDE = 240  # characters of a line in a file or a pipe
MOST_ROWS = 40  # that fit a terminal; files hold all
LEGEND = "bold: best of the column, underlined: second best"
PLAIN_LEGEND = "*best of the column*, _second best_"
ONE_SEED = "one seed: no spread"
FEW_SEEDS = f"fewer than {FEWEST} seeds: no interval and no verdict"
ON_FRONT = "front ●: no other setting is better in accuracy, variance or bytes without being worse in another of them"
CORRECTED = "corrected var.: the variance without the noise of few test examples, with a 95 % interval"
GAP = "gap to own best: mean over clients of what each would gain by training alone (local_only), or 0"
NO_RIVAL = "a model for each client is no rival of one model for all: it is neither marked nor on the front"
FAA = "FAA: largest minus smallest excess loss of a client, which is its test loss minus that of training alone"
APART = "a model for each client is compared with {personal}, if it is here; others with {global}".format(**BASELINES)
RULES = (
    "p: exact sign-flip test over common seeds, adjusted over the rows that are compared with the same method; "
    "verdicts: docs/statistics.md"
)
VALUES = ("mean", "std", "ci95_low", "ci95_high", "mark")  # of each column in a CSV file
AGAINST = (
    "difference", "difference_ci95_low", "difference_ci95_high", "p", "p_adjusted", "improvement", "common_seeds",
    "verdict",
)  # fmt: skip
PERSONAL = "(personal): the clients' personal predictions; other rows: the global model"


class Row(NamedTuple):
    """One model of one setting."""

    setting: Setting
    model: str
    label: str
    cells: dict[str, Cell]
    is_rival: bool = True  # whether it may be best: not if it diverged, nor a model for each client beside one for all
    baseline: str = ""  # the label of the row that it is compared with; "": none
    on_front: bool = False

    @property
    def prediction(self) -> str:
        """What it shows, by what it is compared with: "personal", a model for each client, or "global"."""
        return "personal" if self.setting.runs[0].shown(self.model) == "personal" else "global"


class Table(NamedTuple):
    title: str
    columns: list[Column]
    rows: list[Row]
    notes: list[str]
    has_front: bool = False  # whether it tells which rows are on the front


class Plain(NamedTuple):
    """A table of texts."""

    title: str
    head: Sequence[str]
    rows: Sequence[Sequence[str]]  # a cell may have several lines
    notes: Sequence[str] = ()
    figures: bool = False  # all columns but the first are numbers, and cells are marked as a format has it


class Style(NamedTuple):
    """How a format marks numbers, and what it does to text that it would misread."""

    best: str
    second: str
    escape: Callable[[str], str]


def build(
    settings: list[Setting],
    title: str,
    *,
    model: str | None = "global",
    last: int = LAST,
    keys: Sequence[str] = REPORT,
    against: str | None = None,
) -> Table:
    """One row per setting; with model=None, one for its global model and one for its personal predictions.

    Each is compared with the setting that `against` names (an algorithm or a label). By default a model for each client
    is compared with local_only and all others with fedavg, where there is one; p-values are adjusted over the rows that
    are compared with the same method. A column without any number is left out.
    """
    rows = blank_rows(settings, model)
    part = [row.is_rival for row in rows]
    others = _baselines(rows, settings, against)
    families = ["" if other is None else rows[other].setting.algorithm for other in others]
    columns = []
    for key in keys:
        values = [row.setting.values(key, View(row.model, last)) for row in rows]
        if key in ALONE and all(math.isnan(value) for by_seed in values for value in by_seed.values()):
            continue
        made = cells(values, part, others, higher=COLUMNS[key].higher_is_better, families=families)
        for row, cell in zip(rows, made, strict=True):
            row.cells[key] = cell
        columns.append(column(key, max((row.cells[key].mean for row in rows), default=0.0)))
    has_front = set(FRONT) <= set(keys) and sum(part) > 1
    front = _front(rows, part) if has_front else []
    told = ["" if other is None else rows[other].label for other in others]
    rows = [row._replace(baseline=told[i], on_front=i in front) for i, row in enumerate(rows)]
    notes = _notes(rows, columns, model, last, has_front)
    apart = not against and any(told) and len({row.prediction for row in rows}) > 1
    return Table(title, columns, rows, [*notes, *[APART] * apart], has_front)


def blank_rows(settings: Sequence[Setting], model: str | None) -> list[Row]:
    """Settings with the model, or with None, global and personal ones, whichever there are; no numbers yet."""
    rows, usable = [], rivals(settings)
    for setting in settings:
        for name in [model] if model else sorted(setting.runs[0].models & {"global", "personal"}):
            whose = " (personal)" if model is None and name == "personal" else ""
            status = f" ({setting.status})" if setting.status else ""
            rows.append(Row(setting, name, setting.label + whose + status, {}, setting in usable))
    for_all = [row.is_rival and row.model != "personal" for row in rows]
    return [row._replace(is_rival=one) for row, one in zip(rows, for_all, strict=True)] if any(for_all) else rows


def comparison(table: Table, keys: Sequence[str] = COMPARED) -> Table | None:
    """The table of what is compared with a baseline: differences, p and verdicts; None if nothing is."""
    rows = [row for row in table.rows if row.baseline]
    columns = [part for c in table.columns if c.key in keys for part in compared(c)]
    if not rows or not columns:
        return None
    names = grouped(dict.fromkeys(row.baseline for row in rows), lambda label: label.split()[0])
    other = " or ".join(own[0] if len(own) == 1 else f"{name} with the same settings" for name, own in names.items())
    few = any(one.seeds < FEWEST for row in rows for cell in row.cells.values() if (one := cell.against))
    notes = [f"Δ: this minus {other}, mean over common seeds", RULES, *([FEW_SEEDS] if few else [])]
    return Table(f"{table.title}, compared with {other}", columns, rows, notes)


def _front(rows: Sequence[Row], part: Sequence[bool]) -> list[int]:
    """The places of the rows on the three-way Pareto front, by means over seeds.

    Bytes are equal if three digits are: a few losses beside a model are no reason to be on the front.
    """

    def rank(row: Row, key: str) -> float:
        mean = row.cells[key].mean
        return COLUMNS[key].rank(float(f"{mean:.3g}") if key == "bytes" else mean)

    ranks = [tuple(rank(row, key) for key in FRONT) for row in rows]
    usable = [i for i, rank in enumerate(ranks) if part[i] and max(rank) < math.inf]
    return [usable[i] for i in pareto_front([ranks[i] for i in usable])]


def _baselines(rows: Sequence[Row], settings: Sequence[Setting], against: str | None) -> list[int | None]:
    """The place of the row that each row is compared with, of the same model if there is such a one."""
    found = {prediction: baseline(settings, against, prediction) for prediction in BASELINES}
    places: list[int | None] = []
    for row in rows:
        own = [i for i, other in enumerate(rows) if other.setting is found[row.prediction].get(row.setting)]
        same = [i for i in own if rows[i].model == row.model]
        places.append(next(iter(same or own), None))
    return places


def averaged(settings: Sequence[Setting], view: View) -> str:
    """What a number is the mean of, in words."""
    counts = {setting.averaged(view) for setting in settings if not setting.diverged} or {view.last}
    some = f" (some have only {min(counts)})" if len(counts) > 1 else ""
    return f"the mean of the last {max(counts)} evaluations{some}" if max(counts) > 1 else "the last evaluation"


def show(table: Table, *, by: str = "mean", keys: Sequence[str] = (), console: Console | None = None) -> None:
    """Print a table, of a long one the rows that are best by a metric; with keys, these columns alone.

    In a file or a pipe, signs mark the best in place of styles, and the lines are as long as they need to be.
    """
    console = console or Console(highlight=False)
    styled = console.is_terminal
    style = Style("[bold]{}[/bold]", "[underline]{}[/underline]", escape) if styled else Style("*{}*", "_{}_", escape)
    notes = [note if styled else note.replace(LEGEND, PLAIN_LEGEND) for note in table.notes]
    if keys:
        table = table._replace(columns=[c for c in table.columns if c.key in keys])
    if len(table.rows) > MOST_ROWS:
        notes.append(f"the best {MOST_ROWS} of {len(table.rows)} rows; all are in the files")
    rows = [texts(table, row, style) for row in best_rows(table, by)]
    show_plain(Plain(table.title, head(table), rows, notes, figures=True), roomy(console), wrap=1)


def show_plain(table: Plain, console: Console, *, wrap: int | None = None, lines: bool = False) -> None:
    """Print a table of texts.

    Args:
      table: what is printed.
      console: where.
      wrap: the first so many columns may break their lines; None: all.
      lines: whether there are lines between the rows.
    """
    title, caption, cell = escape(table.title), escape("\n".join(table.notes)), str if table.figures else escape
    made = RichTable(title=title, caption=caption, title_justify="left", caption_justify="left", show_lines=lines)
    for i, name in enumerate(table.head):
        no_wrap = wrap is not None and i >= wrap
        made.add_column(cell(name), justify="right" if table.figures and i else "left", no_wrap=no_wrap)
    for row in table.rows:
        made.add_row(*map(cell, row))
    console.print(made)


def roomy(console: Console) -> Console:
    """The console, or for a file or a pipe one with long lines."""
    return console if console.is_terminal else Console(width=WIDE, file=console.file, highlight=False)


def markdown(string: str) -> str:
    """A text that stands for itself in Markdown: no HTML but breaks of lines, no cell of a table."""
    return string.replace("&", "&amp;").replace("<", "&lt;").replace("|", "\\|").replace("\n", "<br>")


def to_markdown(table: Table) -> str:
    style = Style("**{}**", "<u>{}</u>", markdown)
    rows = [texts(table, row, style) for row in table.rows]
    return plain_markdown(Plain(table.title, head(table), rows, table.notes, figures=True))


def plain_markdown(table: Plain) -> str:
    """A table of texts under its title, with its notes below."""
    cell, rule = (str, "---:") if table.figures else (markdown, "---")
    head, *rows = [list(map(cell, row)) for row in (table.head, *table.rows)]
    notes = [f"- {markdown(note)}" for note in table.notes]
    return "\n".join([f"### {markdown(table.title)}", "", grid(head, rows, rule), *["", *notes] * bool(notes), ""])


def grid(head: Sequence[str], rows: Sequence[Sequence[str]], rule: str = "---") -> str:
    """The lines of a table whose cells are Markdown; `rule` is below the heads of all columns but the first."""
    body = head, ["---", *[rule] * (len(head) - 1)], *rows
    return "\n".join("| " + " | ".join(cells) + " |" for cells in body)


def to_latex(table: Table) -> str:
    """A plain tabular, to be put into a paper as it is; comments say what it shows."""
    style = Style(r"\textbf{{{}}}", r"\underline{{{}}}", _latex)
    names, *body = [_latex(name) for name in head(table)], *(texts(table, row, style) for row in table.rows)
    comments = [f"% {line}" for line in [table.title, *table.notes]]
    lines = [" & ".join(cells) + r" \\" for cells in (names, *body)]
    frame = rf"\begin{{tabular}}{{l{'r' * (len(names) - 1)}}}", r"\hline"
    return "\n".join([*comments, *frame, lines[0], r"\hline", *lines[1:], r"\hline", r"\end{tabular}", ""])


def to_csv(table: Table) -> str:
    """Every number in full, with the interval and the parameters by name; fractions and bytes unscaled."""
    # All parameters but "rounds", which has its own column, of the rounds done.
    parameters = dict.fromkeys(name for row in table.rows for name in row.setting.parameters if name != "rounds")
    figures = [f"{c.key}_{field}" for c in table.columns for field in (*VALUES, *AGAINST)]
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    known = ["evaluated_model", "seeds", "rounds", "status", "pareto_front", "compared_with"]
    writer.writerow(["algorithm", *parameters, *known, *figures])
    for row in table.rows:
        setting = row.setting
        values = [text(setting.parameters[name]) if name in setting.parameters else "" for name in parameters]
        seeds = " ".join(str(run.seed) for run in setting.runs)
        line = [setting.algorithm, *values, setting.runs[0].shown(row.model), seeds, setting.rounds, setting.status]
        line += [text(row.on_front) if table.has_front else "", row.baseline]
        for cell in row.cells.values():
            line += _fields(cell) if not setting.diverged else [""] * len((*VALUES, *AGAINST))
        writer.writerow(line)
    return buffer.getvalue()


def _fields(cell: Cell) -> list[str]:
    """A cell as a CSV file has it: what VALUES and AGAINST name."""
    other = cell.against
    numbers = () if other is None else (*other[:3], other.p, other.adjusted, other.improvement)
    compared_with = [*map(_number, numbers), str(other.seeds), other.verdict] if other else [""] * len(AGAINST)
    return [*map(_number, cell[:4]), cell.mark, *compared_with]


def best_rows(table: Table, by: str, most: int = MOST_ROWS) -> list[Row]:
    """So many rows at most, in their order: those best by a column (by the first, if there is no such one)."""
    chosen = next((c for c in table.columns if c.key == by), table.columns[0])

    def rank(row: Row) -> float:
        return math.inf if row.setting.status else chosen.rank(row.cells[chosen.key].mean)

    best = sorted(table.rows, key=rank)[:most]
    return [row for row in table.rows if row in best]


def _notes(rows: Sequence[Row], columns: Sequence[Column], model: str | None, last: int, has_front: bool) -> list[str]:
    settings = [row.setting for row in rows]
    known = [cell for row in rows if not row.setting.diverged for cell in row.cells.values()]
    keys = [c.key for c in columns]
    whose = f"{model} model, " if model else ""
    what = averaged(settings, View(model or "global", last))
    stand_ins = f"prediction=...: shown in place of a {model} model, which the method does not have"
    told = {
        f"{whose}test data; ± is the population std over seeds of {what}": True,
        stand_ins: any("prediction" in setting.parameters for setting in settings),
        NO_RIVAL: len({"prediction" in row.setting.parameters or row.model == "personal" for row in rows}) > 1,
        PERSONAL: model is None and any(row.model == "personal" for row in rows),
        LEGEND: any(cell.mark for cell in known),
        ON_FRONT: has_front,
        CORRECTED: "variance_corrected" in keys,
        GAP: "gap" in keys,
        FAA: "faa" in keys,
        ONE_SEED: any(len(setting.runs) == 1 for setting in settings if not setting.diverged),
    }
    return [note for note, applies in told.items() if applies]


def head(table: Table) -> list[str]:
    """The titles of the columns."""
    return ["setting", "seeds", *(c.title for c in table.columns), *(["front"] if table.has_front else [])]


def texts(table: Table, row: Row, style: Style) -> list[str]:
    """The cells of a row as text."""
    front = [style.escape("●" if row.on_front else "")] if table.has_front else []
    figures = [(_cell_text if c.part == "value" else _against_text)(row, c, style) for c in table.columns]
    compared_with = [row.cells[c.key].against for c in table.columns if c.part != "value"]
    seeds = min((other.seeds for other in compared_with if other), default=len(row.setting.runs))
    return [style.escape(row.label), str(seeds), *figures, *front]


def _cell_text(row: Row, shown: Column, style: Style) -> str:
    cell = row.cells[shown.key]
    if row.setting.diverged or math.isnan(cell.mean):
        return "n/a"
    over_seeds = f" ± {_scaled(cell.std, shown)}" if len(row.setting.runs) > 1 else ""
    if shown.key == "variance_corrected" and cell.low is not None and cell.high is not None:
        over_seeds = f" [{_scaled(cell.low, shown)}, {_scaled(cell.high, shown)}]"
    body = style.escape(_scaled(cell.mean, shown) + over_seeds)
    return {"best": style.best, "second": style.second, "": "{}"}[cell.mark].format(body)


def _against_text(row: Row, shown: Column, style: Style) -> str:
    """One part of the comparison with the baseline."""
    other = row.cells[shown.key].against
    if other is None or math.isnan(other.difference):
        return style.escape(other.verdict if other and shown.part == "verdict" else "n/a")
    if shown.part == "verdict":
        return style.escape(other.verdict)
    if shown.part == "p":
        return style.escape("n/a" if other.adjusted is None else f"{other.adjusted:.3g}")
    ends = [_signed(end, shown) for end in (other.low, other.high) if end is not None]
    return style.escape(_signed(other.difference, shown) + (f" [{', '.join(ends)}]" if ends else ""))


def _scaled(value: float, shown: Column) -> str:
    return f"{value * shown.scale:.{shown.digits}f}"


def _signed(value: float, shown: Column) -> str:
    return f"{value * shown.scale:+.{shown.digits}f}"


_LATEX = str.maketrans(
    {sign: rf"\{sign}" for sign in "_%&#${}"}
    | {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
    | {"°": r"$^\circ$", "±": r"$\pm$", "Δ": r"$\Delta$", "●": r"$\bullet$"}
)


def _latex(string: str) -> str:
    return string.translate(_LATEX)


def _number(value: float | None) -> str:
    return "" if value is None or math.isnan(value) else f"{value:.10g}"
