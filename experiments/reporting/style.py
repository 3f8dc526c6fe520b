"""The one look of all pictures: colours that colour-blind people tell apart, and lines that differ without colour.

The colours are those of Okabe and Ito (2008), without their yellow, which is too light for lines. Lines of neighbouring
numbers differ in dashes and markers too, so that they are told apart in grey. No two of 64 share colour and marker.
"""

import contextlib
import importlib.util
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

PALETTE = ("#0072b2", "#d55e00", "#009e73", "#e69f00", "#cc79a7", "#56b4e9", "#000000", "#888888")
MARKERS = "osD^vPX*"
DASHES = ("-", "--", "-.", ":")
SHADES = "cividis"  # of heat maps: light is high; even in lightness, and the same for colour-blind people
FRAME = "#d55e00"
ENDINGS = (".png", ".svg")  # that every picture is written as
MOST_MARKERS = 8  # on one line
LOOK: Any = {
    "svg.fonttype": "none",  # text stays text
    "svg.hashsalt": "fedeba_jax",  # the same picture is the same bytes
    "font.size": 10,
    "axes.titlesize": 10,
    "legend.frameon": False,
}


class Skipped(Exception):
    """A picture that the data cannot make, and why."""


def no_library() -> str:
    """Why no picture can be drawn at all; "" if they can."""
    missing = importlib.util.find_spec("matplotlib") is None
    return "matplotlib is not installed; pip install 'fedeba_jax[plot]'" if missing else ""


def drawn(out: Path, draw: Callable[[Path], None]) -> None:
    """Draw a picture, and print where it is, or why there is none."""
    try:
        draw(out)
        print(f"picture: {out}")
    except Skipped as reason:
        print(f"no {out.name}: {reason}")


def color(n: int) -> str:
    """Of the n-th thing."""
    return PALETTE[n % len(PALETTE)]


def marker(n: int) -> str:
    """Of the n-th thing; each time the colours begin anew, markers are moved on by one."""
    return MARKERS[(n + n // len(PALETTE)) % len(MARKERS)]


def line(n: int, points: int) -> dict[str, Any]:
    """The look of the n-th line, with so many points; after all colours, the dashes change with them."""
    every = max(1, -(-points // MOST_MARKERS))
    dash = DASHES[(n + n // len(PALETTE)) % len(DASHES)]
    spots = {"marker": marker(n), "ms": 4.5, "markevery": (n % every, every), "mec": "white", "mew": 0.5}
    return {"color": color(n), "ls": dash, "lw": 1.6, **spots}


@contextlib.contextmanager
def figure(
    out: Path, head: Sequence[str], wide: float, high: float, panes: tuple[int, int] = (1, 1), legend: int = 0,
    **grid: Any,
) -> Iterator[Any]:  # fmt: skip
    """Panes to draw on, so many down and across, styled and saved afterwards as PNG and SVG.

    Args:
      out: the file that ends in .png; the other one stands beside it.
      head: lines above the panes; empty ones are left out.
      wide: inches.
      high: inches.
      panes: how many down and across.
      legend: columns of the legend of the first pane, below; 0: none.
      grid: of `Figure.subplots`, as width_ratios.
    """
    if reason := no_library():
        raise Skipped(reason)
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    with rc_context(LOOK):
        made = Figure(figsize=(wide, high), layout="constrained")
        all_panes = made.subplots(*panes, squeeze=False, **grid).ravel()
        yield all_panes
        for pane in all_panes:
            if pane.get_xlabel() == "round":
                pane.xaxis.get_major_locator().set_params(integer=True)
            if not pane.images:
                pane.grid(alpha=0.25)
                pane.spines[["top", "right"]].set_visible(False)
        if legend:
            handles, labels = all_panes[0].get_legend_handles_labels()
            made.legend(handles, labels, loc="outside lower center", ncols=legend, fontsize=9, handlelength=3)
        made.suptitle("\n".join(filter(None, head)), fontsize=11)
        made.savefig(out, dpi=120)
        made.set_layout_engine("none")  # the second file keeps what was laid out for the first
        made.savefig(out.with_suffix(".svg"), metadata={"Date": None})
