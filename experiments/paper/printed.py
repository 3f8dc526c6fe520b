"""What the paper prints: its 21 tables, its 15 figures and its grids of hyper-parameters, as data.

The numbers stand beside ours in reports. No test expects ours to be equal to them.

    tables.json    a line is one row of a table on one data set, with mean and std over the paper's 5 seeds
    figures.json   what each panel shows; the paper gives no numbers for figures
    grids.json     the values among which the paper chose

Where a table names no hyper-parameters, `inferred` has those of the row of another table with the same numbers. Where
the head of a column is wrong, `likely` has the measure that it must be. Errata say what else does not hold.
"""

import functools
import json
from pathlib import Path
from typing import Any, NamedTuple

HERE = Path(__file__).parent


class Value(NamedTuple):
    """A printed number."""

    mean: float
    std: float | None  # over seeds; None where none is printed


class Line(NamedTuple):
    """One row of a table, on one data set with one network."""

    row: int  # its number in the table, from 1
    method: str  # as the paper calls it
    dataset: str
    model: str | None
    hparams: dict[str, float]
    inferred: dict[str, float]
    options: dict[str, Any]  # theta_deg, momentum, varp, noise, lsr, dirichlet, dp_sigma
    values: dict[str, Value]  # by measure, as the column is headed
    likely: dict[str, str]  # what a wrongly headed column must be

    def value(self, measure: str) -> Value | None:
        """The printed number of a measure, under whichever head it stands."""
        for head, value in self.values.items():
            if self.likely.get(head, head) == measure:
                return value
        return None


class Table(NamedTuple):
    """A table of the paper."""

    id: str
    what: str
    errata: tuple[str, ...]
    lines: tuple[Line, ...]


class Figure(NamedTuple):
    """A figure of the paper."""

    id: str
    what: str
    kind: str
    errata: tuple[str, ...]
    panels: tuple[dict[str, Any], ...]


@functools.cache
def tables() -> dict[str, Table]:
    """The tables by name, in the order of the paper."""
    found = _read("tables.json")["tables"]
    return {
        one["id"]: Table(one["id"], one["what"], tuple(one["errata"]), tuple(map(_line, one["lines"]))) for one in found
    }


@functools.cache
def figures() -> dict[str, Figure]:
    """The figures by name, in the order of the paper."""
    found = _read("figures.json")["figures"]
    return {
        one["id"]: Figure(one["id"], one["what"], one["kind"], tuple(one["errata"]), tuple(one["panels"]))
        for one in found
    }


@functools.cache
def grids() -> dict[str, dict[str, Any]]:
    """The values that the paper tried, by method and hyper-parameter as it calls them."""
    return _read("grids.json")["grids"]


@functools.cache
def source() -> str:
    """Which paper it is."""
    return _read("tables.json")["source"]


def _line(content: dict[str, Any]) -> Line:
    return Line(
        content["row"],
        content["method"],
        content["dataset"],
        content.get("model"),
        content.get("hparams", {}),
        content.get("inferred", {}),
        content.get("options", {}),
        {measure: Value(*value) for measure, value in content["values"].items()},
        content.get("likely", {}),
    )


def _read(name: str) -> dict[str, Any]:
    return json.loads((HERE / name).read_text())
