"""The report as one HTML file: tables that sort, a filter, and charts, without a network or a server.

The file holds aggregates alone, as one block of JSON. What draws them stands in assets: a template, a style and plain
JavaScript, which are put into the file. Text of result files reaches the page as text: in the block no "<" is left, and
the scripts make text nodes of it.
"""

import html
import json
import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from experiments.reporting import tables
from experiments.reporting.columns import COLUMNS, COMPARED, Column, column
from experiments.reporting.heat import heat_map
from experiments.reporting.selection import comparable, leaders_first
from experiments.reporting.series import Setting, View, by_algorithm, pooled, text

ASSETS = Path(__file__).parent / "assets"
SCRIPTS = ("dom.js", "charts.js", "report.js")
MOST_ROWS, MOST_SERIES, MOST_POINTS = 200, 24, 50  # that keep the file below a few hundred kilobytes
CURVES = ("mean", "variance", "worst5", "loss")
SHADED = ("mean", "variance", "variance_corrected", "worst5")
RULES = (
    "Everything is compared seed by seed: the same seed has the same split, the same first model and the same cohorts.",
    "Δ: mean difference to the baseline over common seeds, with a 95 % interval (BCa bootstrap over seeds).",
    "p: exact two-sided sign-flip test, adjusted by Benjamini and Hochberg over the rows with one method as baseline.",
    "better, worse: adjusted p at most 0.05, and the interval does not hold 0. Otherwise: no difference shown.",
    "too few seeds: fewer than 6 common seeds, of which no test can tell anything at that level.",
    "not comparable: a run diverged at a common seed.",
)


def write(
    out: Path,
    title: str,
    made: Sequence[tables.Table],
    view: View,
    *,
    lines: Sequence[str] = (),
    axes: dict[str, list[str]] | None = None,
    instead: Sequence[tables.Plain] = (),
) -> Path:
    """Write the page.

    Args:
      out: the file.
      title: of the page.
      made: its tables, each followed by its comparison with the baseline. The charts show the rows of the first.
      view: what the rows show; its metric decides what is drawn first.
      lines: where the numbers come from, and what else a reader must know.
      axes: of the heat maps, by algorithm (`heat.axes_of`).
      instead: tables of texts that are shown instead of `made`; the first cell of a row begins with its label.
    """
    told = content(title, made, view, lines, axes or {})
    if instead:
        told |= {"tables": [*map(_texts, instead)], "rules": []}
    block = json.dumps(told, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    parts = {
        "title": html.escape(title),
        "style": (ASSETS / "report.css").read_text(),
        "script": "\n".join((ASSETS / name).read_text() for name in SCRIPTS),
        "data": block.replace("<", "\\u003c"),
    }
    page = re.sub("@(title|style|script|data)@", lambda match: parts[match[1]], (ASSETS / "report.html").read_text())
    out.write_text(page, encoding="utf-8")
    return out


def content(
    title: str, made: Sequence[tables.Table], view: View, lines: Sequence[str], axes: dict[str, list[str]]
) -> dict[str, Any]:
    """Everything that the page shows."""
    first = made[0]
    shown = tables.best_rows(first, view.metric, MOST_ROWS)
    settings = list(dict.fromkeys(row.setting for row in first.rows))
    usable = [row for row in shown if row.setting in comparable(settings)]
    drawn = _best_first(usable, view)[:MOST_SERIES]
    place = {row.label: i for i, row in enumerate(first.rows)}
    both = [one for table in made for one in (table, tables.comparison(table)) if one]
    extra = [column(key, 0.0) for key in dict.fromkeys((*CURVES, *SHADED))]
    known = {c.key: c for c in [*extra, *first.columns]}
    return {
        "title": title,
        "about": f"{len(settings)} settings, {view.model} model, test data: {tables.averaged(settings, view)}",
        "metric": view.metric,
        "columns": [_column(c) | {"in_table": c in first.columns} for c in known.values()],
        "tables": [_table(one, view) for one in both],
        "points": [_point(row, first.columns) for row in usable],
        "front": [row.label for row in shown if row.on_front],
        "algorithms": list(by_algorithm(settings)),
        "curves": [one | {"place": place[row.label]} for row in drawn if (one := _curves(row, view))],
        "clients": [one | {"place": place[row.label]} for row in drawn if (one := _clients(row))],
        "heat": [_heat(by_algorithm(settings)[algorithm], names, view) for algorithm, names in axes.items()],
        "settings": _common(settings),
        "sources": list(lines),
        "rules": list(RULES),
    }


def _column(c: Column) -> dict[str, Any]:
    return {"key": c.key, "title": c.title, "digits": c.digits, "higher": c.higher_is_better, "scale": c.scale}


def _table(table: tables.Table, view: View) -> dict[str, Any]:
    rows = tables.best_rows(table, view.metric, MOST_ROWS)
    some = [f"the best {len(rows)} of {len(table.rows)} rows"] if len(rows) < len(table.rows) else []
    higher = [False, True, *(c.higher_is_better and c.part != "p" for c in table.columns), True]
    heads = [{"title": name, "higher": up} for name, up in zip(tables.head(table), higher, strict=False)]
    lines = [{"label": row.label, "algorithm": row.setting.algorithm, "cells": _cells(table, row)} for row in rows]
    return {"title": table.title, "notes": [*table.notes, *some], "columns": heads, "rows": lines}


def _texts(table: tables.Plain) -> dict[str, Any]:
    """A table of texts; what begins with a number is sorted by it."""

    def cell(text: str) -> list[Any]:
        number = re.match(r"[-+]?\d+(\.\d+)?", text)
        return [text, float(number[0]) if number else text or None, ""]

    lines = [
        {"label": (label := row[0].splitlines()[0]), "algorithm": label.split()[0], "cells": [*map(cell, row)]}
        for row in table.rows
    ]
    heads = [{"title": name, "higher": i > 0} for i, name in enumerate(table.head)]
    return {"title": table.title, "notes": list(table.notes), "columns": heads, "rows": lines}


def _cells(table: tables.Table, row: tables.Row) -> list[list[Any]]:
    """Each cell as its text, the number or word that it is sorted by, and its mark."""
    written = tables.texts(table, row, tables.Style("{}", "{}", str))
    sorted_by: list[Any] = [written[0], int(written[1])]
    marks = ["", ""]
    for c in table.columns:
        cell = row.cells[c.key]
        other = cell.against
        gone = row.setting.diverged or math.isnan(cell.mean)
        by_part = {
            "value": None if gone else cell.mean,
            "difference": other and other.difference,
            "p": other and other.adjusted,
            "verdict": other and other.verdict,
        }
        value = by_part[c.part]
        sorted_by.append(value if isinstance(value, str) else _number(value))
        marks.append({"value": cell.mark, "verdict": value if value in ("better", "worse") else ""}.get(c.part, ""))
    if table.has_front:
        sorted_by.append(int(row.on_front))
        marks.append("")
    return [list(one) for one in zip(written, sorted_by, marks, strict=True)]


def _point(row: tables.Row, columns: Sequence[Column]) -> dict[str, Any]:
    known = {c.key: row.cells[c.key] for c in columns}
    compared = [(c, known[c.key].against) for c in columns if c.key in COMPARED]
    told = [f"Δ {c.title} to {row.baseline}: {other.verdict}" for c, other in compared if other]
    values = {key: [_number(cell.mean), _number(cell.std)] for key, cell in known.items() if math.isfinite(cell.mean)}
    return _name(row) | {"seeds": len(row.setting.runs), "values": values, "told": told, "rival": row.is_rival}


def _name(row: tables.Row) -> dict[str, Any]:
    return {"label": row.label, "algorithm": row.setting.algorithm}


def _best_first(rows: Sequence[tables.Row], view: View) -> list[tables.Row]:
    """By the view's metric, each algorithm's best row before all others."""
    means = {row.label: row.setting.mean(view.metric, view._replace(model=row.model)) for row in rows}
    order = sorted(rows, key=lambda row: COLUMNS[view.metric].rank(means[row.label]))
    return leaders_first(order, lambda row: row.setting.algorithm)


def _curves(row: tables.Row, view: View) -> dict[str, Any] | None:
    """Mean and range over seeds at the rounds at which all seeds have a number; fewer of them if they are many."""
    found = {}
    for metric in CURVES:
        by_seed = [run.curve(metric, view._replace(model=row.model)) for run in row.setting.runs]
        rounds = [t for t in by_seed[0] if all(math.isfinite(values.get(t, math.nan)) for values in by_seed)]
        places = sorted(set(np.linspace(0, len(rounds) - 1, min(len(rounds), MOST_POINTS)).round().astype(int)))
        values = np.array([[own[rounds[i]] for i in places] for own in by_seed])
        figures = [np.mean(values, axis=0), values.min(axis=0), values.max(axis=0)] if places else []
        points = zip((rounds[i] for i in places), *(map(_number, figure) for figure in figures), strict=True)
        found[metric] = [list(point) for point in points]
    return _name(row) | {"metrics": found} if all(len(points) > 1 for points in found.values()) else None


def _clients(row: tables.Row) -> dict[str, Any] | None:
    """Quantiles of the clients' accuracies over all seeds, and of their intervals."""
    clients = pooled(row.setting, row.model)
    if not len(clients.accuracy):
        return None
    at = np.linspace(0, 1, min(len(clients.accuracy), MOST_POINTS) if len(clients.accuracy) > 1 else 2)
    named = zip(("accuracy", "low", "high"), clients, strict=True)
    return _name(row) | {name: [_number(v) for v in np.quantile(values, at)] for name, values in named}


def _heat(settings: Sequence[Setting], names: list[str], view: View) -> dict[str, Any]:
    maps = {key: heat_map(settings, names, view._replace(metric=key)) for key in SHADED}
    one = maps[SHADED[0]]
    panels = [
        {
            "title": "; ".join(filter(None, (title, one.said))),
            "notes": one.notes[i].tolist(),
            "cells": {key: [[_number(v) for v in line] for line in m.values[i]] for key, m in maps.items()},
        }
        for i, title in enumerate(one.panels)
    ]
    return {"algorithm": settings[0].algorithm, "names": names, "across": one.across, "up": one.up, "panels": panels}


def _common(settings: Sequence[Setting]) -> dict[str, str]:
    """The settings that all runs share, as text."""
    every = [run.settings for setting in settings for run in setting.runs]
    return {name: text(value) for name, value in every[0].items() if all(own.get(name) == value for own in every)}


def _number(value: float | None) -> float | None:
    """Six digits; what is not finite is not known."""
    return None if value is None or not math.isfinite(value) else float(f"{value:.6g}")
