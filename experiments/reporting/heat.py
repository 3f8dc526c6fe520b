"""Settings of one algorithm over two numbers: what a heat map shows."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from experiments.reporting.series import Setting, View, by_algorithm, sort_key, text

MOST_PANELS = 9


class HeatMap(NamedTuple):
    """A metric over two parameters; one panel for each choice of the others, or their mean if there are too many."""

    axes: list[str]  # the names of the parameters, across and up
    across: list[str]
    up: list[str]
    panels: list[str]  # titles
    values: np.ndarray  # [panels, up, across]; NaN where nothing is known
    notes: np.ndarray  # the same shape: "div." or "*", or ""
    said: str  # what a reader must know


def axes_of(settings: Sequence[Setting], wanted: Sequence[str]) -> dict[str, list[str]]:
    """By algorithm, the two parameters of its heat map: the wanted, or the first two that vary and are numbers."""
    numeric = {algorithm: _numeric(own) for algorithm, own in by_algorithm(settings).items()}
    every = list(dict.fromkeys(name for names in numeric.values() for name in names))
    if wanted and (len(wanted) != 2 or len(set(wanted) & set(every)) != 2):
        told = f"must name two numeric parameters that vary; these do: {', '.join(every) or 'none'}"
        raise ValueError(f"--heat={','.join(wanted)} {told}")
    chosen = {key: [name for name in wanted or names[:2] if name in names] for key, names in numeric.items()}
    return {algorithm: names for algorithm, names in chosen.items() if len(names) == 2}


def heat_map(settings: Sequence[Setting], axes: list[str], view: View) -> HeatMap:
    """The view's metric of the settings of one algorithm."""
    across, up = (sorted({s.parameters.get(name) for s in settings}, key=sort_key) for name in axes)
    others = list(dict.fromkeys(name for s in settings for name in s.parameters if name not in axes))
    titles = [", ".join(f"{name}={text(s.parameters.get(name))}" for name in others) for s in settings]
    panels = list(dict.fromkeys(titles))
    values = np.full((len(panels), len(up), len(across)), np.nan)
    notes = np.full(values.shape, "", object)
    for s, title in zip(settings, titles, strict=True):
        cell = panels.index(title), up.index(s.parameters.get(axes[1])), across.index(s.parameters.get(axes[0]))
        values[cell], notes[cell] = s.mean(view.metric, view), "div." if s.diverged else ""
    said = ""
    if len(panels) > MOST_PANELS:
        said = f"mean over {', '.join(others)}: {len(panels)} combinations (*: of those that did not diverge)"
        known = np.isfinite(values).sum(axis=0)
        notes = np.where(known == 0, notes.max(axis=0), np.where(known < len(panels), "*", ""))[np.newaxis]
        values, panels = np.ma.masked_invalid(values).mean(axis=0, keepdims=True).filled(np.nan), [""]
    return HeatMap(axes, list(map(text, across)), list(map(text, up)), panels, values, notes, said)


def _numeric(settings: Sequence[Setting]) -> list[str]:
    """The parameters with two or more values, all numbers; None, which stands for a default, may be among them."""
    found = {name: {s.parameters.get(name) for s in settings} for s in settings for name in s.parameters}
    return [name for name, seen in found.items() if len(seen) > 1 and {type(v) for v in seen - {None}} <= {int, float}]
