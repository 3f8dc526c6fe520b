"""The one style of all pictures: colours that colour-blind people tell apart, dashes and markers for greyscale."""

import contextlib
import importlib.util
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

MARKERS = "osD^vPX*"
DASHES = ("-", "--", ":", "-.")
PALETTE = ("#4477aa", "#ee6677", "#228833", "#ccbb44", "#66ccee", "#aa3377", "#777777", "#222222")


class Skipped(Exception):
    """A picture that the data cannot make, and why."""


def no_library() -> str:
    """Why no picture can be drawn at all; "" if they can."""
    missing = importlib.util.find_spec("matplotlib") is None
    return "matplotlib is not installed; pip install 'fedeba_jax[plot]'" if missing else ""


def line(n: int) -> dict[str, Any]:
    """The look of the n-th line: colours first, then dashes."""
    return {"color": PALETTE[n % len(PALETTE)], "ls": DASHES[n // len(PALETTE) % len(DASHES)], "lw": 1.6}


def height(lines: int, columns: int) -> float:
    """Of a figure with a legend below."""
    return 4.0 + 0.22 * math.ceil(lines / columns)


@contextlib.contextmanager
def figure(
    out: Path, head: Sequence[str], wide: float, high: float, panes: tuple[int, int] = (1, 1), legend: int = 0
) -> Iterator[Any]:
    """Panes to draw on, so many down and across, styled and saved afterwards.

    Args:
      out: the file.
      head: lines above the panes; empty ones are left out.
      wide: inches.
      high: inches.
      panes: how many down and across.
      legend: columns of the legend of the first pane, below; 0: none.
    """
    if reason := no_library():
        raise Skipped(reason)
    from matplotlib.figure import Figure

    drawn = Figure(figsize=(wide, high), layout="constrained")
    made = drawn.subplots(*panes, squeeze=False).ravel()
    yield made
    for pane in made:
        if pane.get_xlabel() == "round":
            pane.xaxis.get_major_locator().set_params(integer=True)
        if not pane.images:
            pane.grid(alpha=0.25)
            pane.spines[["top", "right"]].set_visible(False)
    if legend:
        handles, labels = made[0].get_legend_handles_labels()
        drawn.legend(handles, labels, loc="outside lower center", ncols=legend, frameon=False, fontsize=9)
    drawn.suptitle("\n".join(filter(None, head)), fontsize=11)
    drawn.savefig(out, dpi=120)
