"""The paper's figures, drawn from our runs: one pane for each measure of each panel, as PNG and as SVG.

Bands and bars of error are the range over seeds; points are means.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from experiments.paper.presets import Panel, Preset
from experiments.reporting.columns import COLUMNS
from experiments.reporting.pictures import band
from experiments.reporting.series import Setting, View
from experiments.reporting.style import ENDINGS, Skipped, color, figure, line, marker

WIDTH, HEIGHT = 5.6, 4.2  # inches of a pane
VIEW = View()
Drawn = list[tuple[str, Setting]]  # what is drawn, and what it is called


def draw(preset: Preset, settings: Sequence[Drawn], out: Path) -> list[Path]:
    """Draw a figure whose panels have these settings; the files.

    Raises:
      Skipped: nothing of it was run, or no picture can be drawn here.
    """
    panes = [
        (panel, measures, drawn)
        for panel, drawn in zip(preset.panels, settings, strict=True)
        for measures in ([panel.measures] if panel.kind in ("plane", "bars") else [(one,) for one in panel.measures])
        if drawn
    ]
    if not panes:
        raise Skipped("nothing of it was run yet")
    file = out / f"{preset.name}.png"
    with figure(file, [], WIDTH * len(panes), HEIGHT, panes=(1, len(panes))) as empty:
        for pane, (panel, measures, drawn) in zip(empty, panes, strict=True):
            KINDS[panel.kind](pane, panel, measures, drawn)
            pane.set_title(f"{panel.task}, seeds {_seeds(drawn)}", fontsize=9)
            pane.legend(fontsize=7)
    return [file.with_suffix(ending) for ending in ENDINGS]


def _curves(pane: Any, panel: Panel, measures: Sequence[str], drawn: Drawn) -> None:
    """A measure by round."""
    for number, (label, setting) in enumerate(drawn):
        band(pane, [run.curve(measures[0], VIEW) for run in setting.runs], number, label)
    pane.set(xlabel="round", ylabel=COLUMNS[measures[0]].title)


def _plane(pane: Any, panel: Panel, measures: Sequence[str], drawn: Drawn) -> None:
    """Variance against accuracy."""
    for number, (label, setting) in enumerate(drawn):
        x, y = (setting.mean(measure, VIEW) for measure in ("variance", "mean"))
        pane.plot(x, y, marker(number), color=color(number), label=label)
    pane.set(xlabel=COLUMNS["variance"].title, ylabel=COLUMNS["mean"].title)


def _bars(pane: Any, panel: Panel, measures: Sequence[str], drawn: Drawn) -> None:
    """Measures of each row, side by side."""
    places, height = np.arange(len(drawn)), 0.8 / len(measures)
    for number, measure in enumerate(measures):
        values = [setting.mean(measure, VIEW) for _, setting in drawn]
        hatch = ("", "//")[number % 2]
        title = COLUMNS[measure].title
        pane.barh(places + number * height, values, height, color=color(number), hatch=hatch, label=title)
    pane.set_yticks(places + 0.4 - height / 2, [label for label, _ in drawn], fontsize=7)
    pane.invert_yaxis()
    pane.set_xlabel("accuracy of clients, %")


def _line(pane: Any, panel: Panel, measures: Sequence[str], drawn: Drawn) -> None:
    """A measure over a parameter, with one line for each algorithm; one that lacks the parameter stands at 0."""
    by_algorithm: dict[str, list[tuple[float, Setting]]] = {}
    stands_for = "fedeba_plus" if panel.over == "alpha" else ""  # FedEBA is FedEBA+ at alpha = 0
    for _, setting in drawn:
        name = setting.algorithm if panel.over in setting.parameters else stands_for or setting.algorithm
        by_algorithm.setdefault(name, []).append((float(setting.parameters.get(panel.over, 0)), setting))
    for number, (name, points) in enumerate(by_algorithm.items()):
        points.sort(key=lambda point: point[0])
        values = [list(setting.values(measures[0], VIEW).values()) for _, setting in points]
        middle = np.array([np.mean(own) for own in values])
        ends = np.abs(np.array([[min(own), max(own)] for own in values]).T - middle)
        pane.errorbar([x for x, _ in points], middle, ends, label=name, capsize=3, **line(number, len(points)))
    pane.set(xlabel=panel.over, ylabel=COLUMNS[measures[0]].title)


KINDS = {"curves": _curves, "plane": _plane, "bars": _bars, "line": _line}


def _seeds(drawn: Drawn) -> str:
    seeds = sorted({run.seed for _, setting in drawn for run in setting.runs})
    whole = len(seeds) > 2 and seeds == list(range(seeds[0], seeds[-1] + 1))
    return f"{seeds[0]} to {seeds[-1]}" if whole else ", ".join(map(str, seeds))
