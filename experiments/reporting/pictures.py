"""Pictures of settings. One function per picture; what the data cannot show raises `Skipped` with the reason.

Bands are the range over seeds. Settings that diverged are in the heat maps (as "div.") and in `overview` (as far as
they came); the other pictures leave them out.
"""

import contextlib
import importlib.util
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from experiments.reporting.columns import COLUMNS
from experiments.reporting.loading import Series, Setting, comparable, sort_key, text
from experiments.reporting.tables import models, status

MOST_CURVES = 8
MOST_PANELS = 9
MOST_NUMBERS = 12  # points of a front that are listed by name
MARKERS = "osD^vPX*"
DASHES = ("-", "--", ":", "-.")
OF_A_CLIENT = "accuracy of a client, %"
PALETTE = ("#4477aa", "#ee6677", "#228833", "#ccbb44", "#66ccee", "#aa3377", "#777777", "#222222")


class Skipped(Exception):
    """A picture that the data cannot make, and why."""


class View(NamedTuple):
    """Which figures are drawn."""

    model: str
    last: int
    metric: str  # by which the best settings are chosen where not all can be drawn
    task: str


def no_library() -> str:
    """Why no picture can be drawn at all; "" if they can."""
    if importlib.util.find_spec("matplotlib"):
        return ""
    return "matplotlib is not installed; pip install 'fedeba_jax[plot]'"


def pareto_front(points: Sequence[tuple[float, float]]) -> list[int]:
    """Indices of the (accuracy, variance) points that no other beats in one without losing in the other.

    In order of accuracy, highest first.
    """

    def beaten(i: int) -> bool:
        a, v = points[i]
        return any(b >= a and w <= v and (b > a or w < v) for b, w in points)

    return sorted((i for i in range(len(points)) if not beaten(i)), key=lambda i: (-points[i][0], points[i][1]))


def best(settings: Sequence[Setting], view: View, most: int = MOST_CURVES) -> tuple[list[Setting], str]:
    """The settings to draw, in their order, and what to say if these are not all."""
    usable = [s for s in comparable(settings) if not math.isnan(_mean(s, view.metric, view))]
    if not usable:
        raise Skipped("every setting diverged or has no figures")
    if len(usable) <= most:
        return usable, ""
    sign = -1 if COLUMNS[view.metric].higher_is_better else 1
    ranked = sorted(usable, key=lambda s: sign * _mean(s, view.metric, view))
    leaders = list({s.algorithm: s for s in reversed(ranked)}.values())  # the best of each algorithm
    chosen = {id(s) for s in [*sorted(leaders, key=ranked.index), *(s for s in ranked if s not in leaders)][:most]}
    each = " (and each algorithm's best)" if len(leaders) > 1 else ""
    return [s for s in usable if id(s) in chosen], f"the best {most} of {len(usable)} settings by {view.metric}{each}"


def heat_axes(settings: Sequence[Setting], wanted: Sequence[str]) -> dict[str, tuple[str, str]]:
    """By algorithm, the two parameters of its heat map: the wanted, or the first two that vary and are numbers."""
    numeric: dict[str, list[str]] = {}
    for algorithm in dict.fromkeys(s.algorithm for s in settings):
        own = [s for s in settings if s.algorithm == algorithm]
        varying = dict.fromkeys(name for s in own for name in s.parameters)
        numeric[algorithm] = [name for name in varying if _is_numeric([s.parameters.get(name) for s in own])]
    every = list(dict.fromkeys(name for names in numeric.values() for name in names))
    if wanted and (len(wanted) != 2 or not set(wanted) <= set(every) or wanted[0] == wanted[1]):
        raise ValueError(f"--heat={','.join(wanted)} must name two numeric parameters that vary; "
                         f"these do: {', '.join(every) or 'none'}")  # fmt: skip
    axes = {}
    for algorithm, names in numeric.items():
        chosen = list(wanted) or names[:2]
        if len(chosen) == 2 and set(chosen) <= set(names):
            axes[algorithm] = (chosen[0], chosen[1])
    return axes


def heat(settings: Sequence[Setting], metric: str, axes: tuple[str, str], view: View, out: Path) -> Path:
    """The metric of one algorithm over two parameters; one panel for each combination of the others."""
    columns, rows = (_levels(settings, name) for name in axes)
    others = [name for name in settings[0].parameters if name not in axes]
    panels: dict[str, list[Setting]] = {}
    for s in settings:
        panels.setdefault(", ".join(f"{name}={text(s.parameters.get(name))}" for name in others), []).append(s)
    said, members = [], 1
    if len(panels) > MOST_PANELS:
        members = len(panels)
        said.append(f"mean over {', '.join(others)}: {members} combinations (*: of those that did not diverge)")
        panels = {"": list(settings)}
    grids = {title: _grid(own, metric, axes, columns, rows, view) for title, own in panels.items()}
    finite = np.concatenate([grid.values[np.isfinite(grid.values)] for grid in grids.values()])
    if not finite.size:
        raise Skipped("every setting diverged or has no figures")
    gaps = finite.size < sum(grid.values.size for grid in grids.values())
    said.append("red frame: best" + ("; grey: diverged (div.) or missing" if gaps else ""))
    higher = COLUMNS[metric].higher_is_better
    plt = _pyplot()
    wide = min(len(panels), 3)
    tall = math.ceil(len(panels) / wide)
    size = (max(6.0, wide * (0.75 * len(columns) + 1.2) + 1.4), max(3.2, tall * (0.5 * len(rows) + 1.3) + 0.9))
    figure, panes = plt.subplots(tall, wide, figsize=size, layout="constrained", squeeze=False)
    for pane in panes.flat[len(panels) :]:
        pane.set_visible(False)
    for pane, (title, grid) in zip(panes.flat, grids.items(), strict=False):
        image = _heat_panel(plt, pane, grid, members, (finite.min(), finite.max()), higher=higher)
        pane.set_xticks(range(len(columns)), [text(v) for v in columns])
        pane.set_yticks(range(len(rows)), [text(v) for v in rows])
        pane.set(xlabel=axes[0], ylabel=axes[1])
        pane.set_title(title, fontsize=10)
    figure.colorbar(image, ax=panes, label=COLUMNS[metric].title)
    title = f"{settings[0].algorithm} on {view.task}, {view.model} model, test data"
    _finish(plt, figure, out, title, "\n".join(said))
    return out


def plane(settings: Sequence[Setting], view: View, out: Path) -> Path:
    """Every setting by accuracy and variance, with the Pareto front."""
    usable = [s for s in comparable(settings) if not math.isnan(_mean(s, "variance", view))]
    if len(usable) < 2:
        raise Skipped("it needs two settings that did not diverge")
    points = [(_mean(s, "mean", view), _mean(s, "variance", view)) for s in usable]
    front = pareto_front(points)
    said = _bars(usable, "bars: std over seeds")
    with _figure(out, f"{view.model} model on {view.task}, test data", said, (10.5, 5)) as (axis,):
        _draw_plane(axis, usable, points, front, view)
    return out


def _draw_plane(
    axis: Any, usable: list[Setting], points: list[tuple[float, float]], front: list[int], view: View
) -> None:
    for n, algorithm in enumerate(dict.fromkeys(s.algorithm for s in usable)):
        own = [i for i, s in enumerate(usable) if s.algorithm == algorithm]
        across, up = zip(*(points[i] for i in own), strict=True)
        spread_across, spread_up = (
            [np.std(list(_values(usable[i], metric, view).values())) for i in own] for metric in ("mean", "variance")
        )
        color = _line(n)["color"]
        axis.errorbar(across, up, spread_up, spread_across, fmt="none", ecolor=color, alpha=0.3, lw=1, zorder=1)
        axis.scatter(across, up, s=36, color=color, marker=MARKERS[n % len(MARKERS)], label=algorithm, zorder=3,
                     edgecolor="white", lw=0.5)  # fmt: skip
    axis.plot(*zip(*(points[i] for i in front), strict=True), color="black", lw=1.2, ls="--", zorder=4,
              marker="o", ms=10, mfc="none", label="Pareto front")  # fmt: skip
    for number, i in enumerate(front[:MOST_NUMBERS], 1):
        axis.annotate(str(number), points[i], xytext=(7, -13), textcoords="offset points", fontsize=9, weight="bold")
        axis.plot([], [], " ", label=f"{number}: {usable[i].label}")
    if len(front) > MOST_NUMBERS:
        axis.plot([], [], " ", label=f"and {len(front) - MOST_NUMBERS} more")
    axis.set(xlabel="global accuracy, % (right is better)", ylabel="variance over clients (down is fairer)")
    axis.figure.legend(loc="outside right center", frameon=False, fontsize=8)


def curves(settings: Sequence[Setting], view: View, out: Path) -> Path:
    """Accuracy and variance over rounds."""
    chosen, said = best(settings, view)
    if all(len(run.curve("mean", "test", view.model)) < 2 for s in chosen for run in s.runs):
        raise Skipped("it needs two evaluations")
    said = "; ".join(filter(None, [said, _bars(chosen, "bands: range over seeds")]))
    size = (11, _height(chosen))
    with _figure(out, f"{view.model} model on {view.task}, test data", said, size, panes=2, legend=2) as panes:
        for n, s in enumerate(chosen):
            for pane, metric in zip(panes, ("mean", "variance"), strict=True):
                _band(pane, [run.curve(metric, "test", view.model) for run in s.runs], n, s.label)
        panes[0].set(xlabel="round", ylabel="global accuracy, %")
        panes[1].set(xlabel="round", ylabel="variance over clients (down is fairer)")
    return out


def clients(settings: Sequence[Setting], view: View, out: Path) -> Path:
    """How accuracy is spread over clients after the last round, all seeds together."""
    known = [s for s in settings if all(run.shown(view.model) in run.client_accuracy for run in s.runs)]
    if not known:
        raise Skipped(f"no finished run has the {view.model} model's accuracy of each client")
    chosen, said = best(known, view)
    title, size = f"clients after the last round on {view.task}, {view.model} model", (11, _height(chosen))
    with _figure(out, title, said, size, panes=2, legend=2) as (steps, boxes):
        pooled = [_pooled(s, view.model) for s in chosen]
        for n, (s, values) in enumerate(zip(chosen, pooled, strict=True)):
            _steps(steps, values, n, s.label)
        _boxes(boxes, pooled)
    return out


def _boxes(pane: Any, pooled: Sequence[np.ndarray]) -> None:
    """One box per setting: quartiles, 5 % and 95 %, mean."""
    drawn = pane.boxplot(pooled, orientation="horizontal", whis=(5, 95), widths=0.6, showmeans=True, patch_artist=True)
    for n, box in enumerate(drawn["boxes"]):
        box.set(facecolor=_line(n)["color"], alpha=0.6)
    for kind, look in (
        ("medians", {"color": "black"}),
        ("fliers", {"markersize": 3, "alpha": 0.5}),
        ("means", {"marker": "D", "mfc": "white", "mec": "black", "ms": 4}),
    ):
        for artist in drawn[kind]:
            artist.set(**look)
    pane.set_yticks([])
    pane.invert_yaxis()
    pane.set(xlabel=OF_A_CLIENT)
    pane.set_title("box: quartiles; whiskers: 5 % and 95 %; diamond: mean", fontsize=9)


def overview(settings: Sequence[Setting], title: str, out: Path) -> Path:
    """Accuracy and variance over rounds, and the clients after the last round, of global and personal models."""
    lines = [(s, model) for s in settings for model in models(s, None)]
    if not any(_finite(run, "mean", model) for s, model in lines for run in s.runs):
        raise Skipped("every setting diverged or has no figures")
    said, size = _bars(settings, "bands: range over seeds"), (13.5, 4 + 0.22 * math.ceil(len(lines) / 4))
    with _figure(out, title, said, size, panes=3, legend=4) as (accuracy, variance, shares):
        for n, (s, model) in enumerate(lines):
            why = status(s)
            label = s.label + (" (personal)" if model == "personal" else "") + (f" ({why})" if why else "")
            stable = [run for run in s.runs if run.diverged is None] or s.runs
            for pane, metric in ((accuracy, "mean"), (variance, "variance")):
                _band(pane, [_finite(run, metric, model) for run in stable], n, label)
            _steps(shares, _pooled(s, model), n, label)
        accuracy.set(xlabel="round", ylabel="global accuracy, %", title="accuracy of the clients, mean")
        variance.set(xlabel="round", ylabel="variance over clients", title="fairness (lower is fairer)")
        shares.set_title("clients, last round")
        if all(low > 0 for line in variance.lines for low in line.get_ydata()):
            variance.set_yscale("log")
            variance.yaxis.set_major_formatter("{x:g}")
            variance.yaxis.set_minor_formatter("{x:g}")
    return out


def write_overview(settings: Sequence[Setting], title: str, out: Path) -> None:
    """Draw `overview`, and print where it is, or why there is none."""
    try:
        print(f"picture: {overview(settings, title, out)}")
    except Skipped as reason:
        print(f"no {out.name}: {reason}")


def gates(settings: Sequence[Setting], view: View, out: Path) -> Path:
    """How often the gate opens during training, and what that costs for each theta."""
    gated = [s for s in comparable(settings) if all(run.has_gate for run in s.runs)]
    if not gated:
        raise Skipped("no algorithm here has a gate")
    groups: dict[str, list[Setting]] = {}
    by_theta = len({s.parameters["theta"] for s in gated if "theta" in s.parameters}) > 1
    priced = [s for s in gated if _is_number(s.parameters.get("theta"))]  # not those with a schedule of theta
    priced = priced if len({s.parameters["theta"] for s in priced}) > 1 else []
    for s in gated:
        theta = by_theta and "theta" in s.parameters
        groups.setdefault(f"{s.algorithm} theta={text(s.parameters['theta'])}" if theta else s.label, []).append(s)
    said = "mean over the other parameters" if any(len(members) > 1 for members in groups.values()) else ""
    kept = _evenly(list(groups), MOST_CURVES)
    if len(kept) < len(groups):
        said += f"{'; ' if said else ''}{len(kept)} of {len(groups)} settings"
    title, size = f"the fairness gate on {view.task}", (11 if priced else 7.5, 4.8)
    with _figure(out, title, said, size, panes=2 if priced else 1, legend=2) as (opened, *costs):
        for n, label in enumerate(kept):
            runs = [run for s in groups[label] for run in s.runs]
            shares = [{t: 100 * (spent.gate_open or 0) / t for t, spent in sorted(run.traffic.items())} for run in runs]
            _band(opened, shares, n, label)
        opened.set(xlabel="round", ylabel="rounds so far with the gate open, %", ylim=(-3, 103))
        for pane in costs:
            _cost_by_theta(pane, priced, view)
    return out


def _cost_by_theta(pane: Any, gated: Sequence[Setting], view: View) -> None:
    for n, algorithm in enumerate(dict.fromkeys(s.algorithm for s in gated)):
        by_theta: dict[float, list[float]] = {}
        for s in gated:
            if s.algorithm == algorithm:
                costs = [100 * cost for cost in _values(s, "additional_cost", view).values()]
                by_theta.setdefault(s.parameters["theta"], []).extend(costs)
        thetas = sorted(by_theta)
        means, low, high = ([statistic(by_theta[t]) for t in thetas] for statistic in (np.mean, min, max))
        color = _line(n)["color"]
        pane.plot(thetas, means, marker=MARKERS[n % len(MARKERS)], ms=5, label=algorithm, color=color)
        pane.fill_between(thetas, low, high, color=color, alpha=0.15, lw=0)
    pane.set(xlabel="theta, °", ylabel="additional exchanges, % of all", ylim=(-1, None))
    pane.legend(frameon=False, fontsize=8)


def _band(pane: Any, by_seed: Sequence[dict[int, float]], n: int, label: str) -> None:
    """Mean over seeds, and their range, at the rounds that all seeds have."""
    rounds = sorted(set.intersection(*(set(values) for values in by_seed)))
    if not rounds:
        return
    table = np.array([[values[t] for t in rounds] for values in by_seed])
    pane.plot(rounds, table.mean(axis=0), label=label, **_line(n))
    pane.fill_between(rounds, table.min(axis=0), table.max(axis=0), color=_line(n)["color"], alpha=0.15, lw=0)


def _steps(pane: Any, values: np.ndarray, n: int, label: str) -> None:
    """The share of clients at or below each accuracy."""
    pane.set(xlabel=OF_A_CLIENT, ylabel="share of clients at or below", ylim=(0, 1))
    pane.plot(values, np.arange(1, len(values) + 1) / len(values), drawstyle="steps-post", label=label, **_line(n))


def _pooled(s: Setting, model: str) -> np.ndarray:
    """The accuracies of the clients of all seeds, sorted; empty if no run is finished."""
    known = [run.client_accuracy[run.shown(model)] for run in s.runs if run.shown(model) in run.client_accuracy]
    return np.sort(np.concatenate([np.empty(0), *known]))


def _finite(run: Series, metric: str, model: str) -> dict[int, float]:
    """The metric by round, up to where the run diverged."""
    return {t: value for t, value in run.curve(metric, "test", model).items() if math.isfinite(value)}


class Grid(NamedTuple):
    """A heat map, [rows, columns] each."""

    values: np.ndarray  # NaN where there is none
    counts: np.ndarray  # settings that a value is the mean of
    diverged: np.ndarray


def _grid(own: Sequence[Setting], metric: str, axes: tuple[str, str], columns: list[Any], rows: list[Any],
          view: View) -> Grid:  # fmt: skip
    total, count = (np.zeros((len(rows), len(columns))) for _ in range(2))
    diverged = np.zeros(total.shape, bool)
    for s in own:
        cell = rows.index(s.parameters.get(axes[1])), columns.index(s.parameters.get(axes[0]))
        value = _mean(s, metric, view)
        diverged[cell] |= bool(s.diverged)
        if not s.diverged and not math.isnan(value):
            total[cell] += value
            count[cell] += 1
    return Grid(np.where(count > 0, total / np.maximum(count, 1), np.nan), count, diverged)


def _heat_panel(plt: Any, pane: Any, grid: Grid, members: int, bounds: tuple[float, float], *, higher: bool) -> Any:
    """Bright is good, whichever way the metric goes; figures in the cells, the best framed."""
    low, high = bounds
    shade = plt.get_cmap("viridis" if higher else "viridis_r")
    masked = np.ma.masked_invalid(grid.values)
    image = pane.imshow(masked, cmap=shade, vmin=low, vmax=high, aspect="auto", origin="lower")
    pane.set_facecolor("#dddddd")
    for i, j in np.ndindex(grid.values.shape):
        value = float(grid.values[i, j])
        if not np.isfinite(value):
            pane.text(j, i, "div." if grid.diverged[i, j] else "", ha="center", va="center", fontsize=8)
            continue
        if value == (high if higher else low):
            pane.add_patch(plt.Rectangle((j - 0.5, i - 0.5), 1, 1, fill=False, ec=PALETTE[1], lw=3, clip_on=False))
        tone = (value - low) / ((high - low) or 1)
        color = "white" if (tone if higher else 1 - tone) < 0.6 else "black"
        note = _short(value, high) + ("*" if grid.counts[i, j] < members else "")
        pane.text(j, i, note, ha="center", va="center", fontsize=8, color=color)
    return image


def _levels(settings: Sequence[Setting], name: str) -> list[Any]:
    return sorted({s.parameters.get(name) for s in settings}, key=sort_key)


def _is_numeric(values: Sequence[Any]) -> bool:
    """Whether there are two or more values, all numbers; None, which stands for a default, may be among them."""
    return len(set(values)) > 1 and all(_is_number(v) for v in values if v is not None)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _evenly(labels: list[str], most: int) -> list[str]:
    if len(labels) <= most:
        return labels
    return [labels[round(i * (len(labels) - 1) / (most - 1))] for i in range(most)]


def _values(s: Setting, metric: str, view: View) -> dict[int, float]:
    return s.values(metric, "test", view.model, view.last)


def _mean(s: Setting, metric: str, view: View) -> float:
    return s.mean(metric, "test", view.model, view.last)


def _short(value: float, largest: float) -> str:
    """About four digits, the same number of decimals in all cells."""
    return f"{value:.{min(max(3 - math.floor(math.log10(abs(largest) or 1)), 0), 4)}f}"


def _bars(settings: Sequence[Setting], words: str) -> str:
    return words if any(len(s.runs) > 1 for s in settings) else ""


def _line(n: int) -> dict[str, Any]:
    """The look of the n-th line: colours first, then dashes."""
    return {"color": PALETTE[n % len(PALETTE)], "ls": DASHES[n // len(PALETTE) % len(DASHES)], "lw": 1.6}


def _height(chosen: Sequence[Setting]) -> float:
    return 4.0 + 0.22 * math.ceil(len(chosen) / 2)


@contextlib.contextmanager
def _figure(
    out: Path, title: str, said: str, size: tuple[float, float], panes: int = 1, legend: int = 0
) -> Iterator[Sequence[Any]]:
    """Panes side by side to draw on, styled and saved afterwards; the legend of the first in so many columns below."""
    plt = _pyplot()
    figure, made = plt.subplots(1, panes, figsize=size, layout="constrained", squeeze=False)
    yield made[0]
    for pane in made[0]:
        if pane.get_xlabel() == "round":
            pane.xaxis.get_major_locator().set_params(integer=True)
        pane.grid(alpha=0.25)
        pane.spines[["top", "right"]].set_visible(False)
    if legend:
        handles, labels = made[0][0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=legend, frameon=False, fontsize=9)
    _finish(plt, figure, out, title, said)


def _finish(plt: Any, figure: Any, out: Path, title: str, said: str) -> None:
    figure.suptitle(title + (f"\n{said}" if said else ""), fontsize=11)
    figure.savefig(out, dpi=120)
    plt.close(figure)


def _pyplot() -> Any:
    if reason := no_library():
        raise Skipped(reason)
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    return plt
