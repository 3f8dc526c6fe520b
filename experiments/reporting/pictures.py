"""Pictures of settings. One function per picture; what the data cannot show raises `Skipped` with the reason.

Bands are the range over seeds. Settings that diverged are in the heat maps (as "div.") and in `overview` (as far as
they came); the other pictures leave them out.
"""

import math
from collections.abc import Sequence
from operator import attrgetter
from pathlib import Path
from typing import Any

import numpy as np

from experiments.reporting.columns import COLUMNS
from experiments.reporting.heat import heat_map
from experiments.reporting.selection import comparable, leaders_first, ranked, rivals
from experiments.reporting.series import Clients, Series, Setting, View, by_algorithm, grouped, pooled, text
from experiments.reporting.statistics import pareto_front
from experiments.reporting.style import FRAME, SHADES, Skipped, color, figure, line, marker
from experiments.reporting.tables import blank_rows

MOST_CURVES = 8
MOST_NUMBERS = 12  # points of a front that are listed by name
OF_A_CLIENT = "accuracy of a client, %"
NOTHING = "every setting diverged or has no figures"


def best(settings: Sequence[Setting], view: View, most: int = MOST_CURVES) -> tuple[list[Setting], str]:
    """The settings to draw, in their order, and what to say if these are not all."""
    order = ranked(settings, view)
    if not order:
        raise Skipped(NOTHING)
    chosen = leaders_first(order, attrgetter("algorithm"))[:most]
    each = " (and each algorithm's best)" if len(by_algorithm(order)) > 1 else ""
    said = f"the best {most} of {len(order)} settings by {view.metric}{each}" if len(order) > most else ""
    return [s for s in settings if s in chosen], said


def heat(settings: Sequence[Setting], axes: list[str], view: View, out: Path) -> None:
    """The view's metric of one algorithm over two parameters, across and up; a panel for each choice of the others."""
    shown = heat_map(settings, axes, view)
    finite = shown.values[np.isfinite(shown.values)]
    if not finite.size:
        raise Skipped(NOTHING)
    frame = "framed: best" + ("; grey: diverged (div.) or missing" if finite.size < shown.values.size else "")
    head = f"{settings[0].algorithm} on {view.task}, {view.model} model, test data", shown.said, frame
    columns = min(len(shown.panels), 3)
    rows = math.ceil(len(shown.panels) / columns)
    wide = max(6.0, columns * (0.75 * len(shown.across) + 1.2) + 1.4)
    high = max(3.2, rows * (0.5 * len(shown.up) + 1.3) + 0.9)
    with figure(out, head, wide, high, panes=(rows, columns)) as panes:
        for pane in panes[len(shown.panels) :]:
            pane.set_visible(False)
        for pane, title, grid, told in zip(panes, shown.panels, shown.values, shown.notes, strict=False):
            higher = COLUMNS[view.metric].higher_is_better
            image = _heat_panel(pane, grid, told, finite, higher=higher)
            _frame(pane, grid, finite.max() if higher else finite.min())
            pane.set_xticks(range(len(shown.across)), shown.across)
            pane.set_yticks(range(len(shown.up)), shown.up)
            pane.set(xlabel=axes[0], ylabel=axes[1], facecolor="#dddddd")
            pane.set_title(title, fontsize=10)
        pane.figure.colorbar(image, ax=panes, label=COLUMNS[view.metric].title)


def heat_tables(panels: dict[str, Any], rows: Sequence[str], head: Sequence[str], label: str, out: Path) -> None:
    """Numbers by rows and columns as heat maps side by side; NaN is grey, and -inf, which is worse than all, black.

    Args:
      panels: title -> (names of the columns, cells [rows, columns], each a number with what is written after it).
      rows: their names.
      head: lines above.
      label: of the scale.
      out: the file.
    """
    cells = {title: np.array(own, [("value", float), ("note", object)]) for title, (_, own) in panels.items()}
    every = np.concatenate([own["value"][np.isfinite(own["value"])] for own in cells.values()])
    if not every.size:
        raise Skipped(NOTHING)
    columns = [len(names) for names, _ in panels.values()]
    longest = max(len(name) for names, _ in panels.values() for name in names)
    wide = 2.5 + 0.08 * max(map(len, rows)) + 0.04 * longest + 0.55 * sum(columns)
    high = 1.2 + 0.08 * longest + 0.45 * len(rows)
    with figure(out, head, wide, high, panes=(1, len(panels)), width_ratios=columns) as panes:
        for pane, (title, (names, _)) in zip(panes, panels.items(), strict=True):
            image = _heat_panel(pane, cells[title]["value"], cells[title]["note"], every, higher=True)
            pane.set_xticks(range(len(names)), names, rotation=60, ha="right", rotation_mode="anchor")
            pane.set_yticks(range(len(rows)), rows if pane is panes[0] else [""] * len(rows))
            pane.set_title(title, fontsize=10)
            pane.set_facecolor("#dddddd")
        pane.figure.colorbar(image, ax=panes, label=label)


def plane(settings: Sequence[Setting], view: View, out: Path) -> None:
    """Every setting by accuracy and variance, with the Pareto front."""
    usable = [s for s in comparable(settings) if not math.isnan(s.mean("variance", view))]
    if len(usable) < 2:
        raise Skipped("it needs two settings that did not diverge")
    head = f"{view.model} model on {view.task}, test data", _bars(usable, "bars: std over seeds")
    with figure(out, head, 10.5, 5) as (axis,):
        _draw_plane(axis, usable, view)


def _draw_plane(axis: Any, settings: Sequence[Setting], view: View) -> None:
    for n, (algorithm, own) in enumerate(by_algorithm(settings).items()):
        figures = [[list(s.values(metric, view).values()) for s in own] for metric in ("mean", "variance")]
        (x, y), (x_std, y_std) = ([list(map(over_seeds, each)) for each in figures] for over_seeds in (np.mean, np.std))
        axis.errorbar(x, y, y_std, x_std, fmt="none", ecolor=color(n), alpha=0.3, lw=1, zorder=1)
        look = {"color": color(n), "marker": marker(n), "edgecolor": "white", "lw": 0.5}
        axis.scatter(x, y, s=36, label=algorithm, zorder=3, **look)
    settings = rivals(settings)
    points = [(s.mean("mean", view), s.mean("variance", view)) for s in settings]
    front = pareto_front([(-accuracy, variance) for accuracy, variance in points])
    edge = np.transpose([points[i] for i in front])
    axis.plot(*edge, "ko--", lw=1.2, ms=10, mfc="none", zorder=4, label="Pareto front")
    for number, i in enumerate(front[:MOST_NUMBERS], 1):
        axis.annotate(str(number), points[i], xytext=(7, -13), textcoords="offset points", fontsize=9, weight="bold")
        axis.plot([], [], " ", label=f"{number}: {settings[i].label}")
    if len(front) > MOST_NUMBERS:
        axis.plot([], [], " ", label=f"and {len(front) - MOST_NUMBERS} more")
    axis.set(xlabel="global accuracy, % (right is better)", ylabel="variance over clients (down is fairer)")
    axis.figure.legend(loc="outside right center", frameon=False, fontsize=8)


def curves(settings: Sequence[Setting], view: View, out: Path) -> None:
    """Accuracy and variance over rounds."""
    chosen, said = best(settings, view)
    if all(len(run.curve("mean", view)) < 2 for s in chosen for run in s.runs):
        raise Skipped("it needs two evaluations")
    head = f"{view.model} model on {view.task}, test data", _joined(said, _bars(chosen, "bands: range over seeds"))
    with figure(out, head, 11, _height(len(chosen), 2), panes=(1, 2), legend=2) as panes:
        for n, s in enumerate(chosen):
            _over_rounds(panes, s.runs, view, n, s.label)
        panes[0].set(xlabel="round", ylabel="global accuracy, %")
        panes[1].set(xlabel="round", ylabel="variance over clients (down is fairer)")


def clients(settings: Sequence[Setting], view: View, out: Path) -> None:
    """How accuracy is spread over clients after the last round, all seeds together."""
    known = [s for s in settings if all(run.shown(view.model) in run.client_accuracy for run in s.runs)]
    if not known:
        raise Skipped(f"no finished run has the {view.model} model's accuracy of each client")
    chosen, said = best(known, view)
    intervals = "bands: 95 % intervals of clients that are tested on few examples (Wilson)"
    head = f"clients after the last round on {view.task}, {view.model} model", _joined(said, intervals)
    with figure(out, head, 11, _height(len(chosen), 2), panes=(1, 2), legend=2) as (steps, boxes):
        for n, s in enumerate(chosen):
            _steps(steps, pooled(s, view.model), n, s.label)
        _boxes(boxes, [pooled(s, view.model).accuracy for s in chosen])


def _boxes(pane: Any, pooled: Sequence[np.ndarray]) -> None:
    """One box per setting: quartiles, 5 % and 95 %, mean."""
    median, outlier = {"color": "black"}, {"ms": 3, "alpha": 0.5}
    mean = {"marker": "D", "mfc": "white", "mec": "black", "ms": 4}
    look = {"medianprops": median, "flierprops": outlier, "meanprops": mean, "widths": 0.6, "patch_artist": True}
    drawn = pane.boxplot(pooled, orientation="horizontal", whis=(5, 95), showmeans=True, **look)
    for n, box in enumerate(drawn["boxes"]):
        box.set(facecolor=color(n), alpha=0.6)
    pane.set(xlabel=OF_A_CLIENT, yticks=[])
    pane.invert_yaxis()
    pane.set_title("box: quartiles; whiskers: 5 % and 95 %; diamond: mean", fontsize=9)


def overview(settings: Sequence[Setting], title: str, out: Path) -> None:
    """Accuracy and variance over rounds, and the clients after the last round, of global and personal models."""
    lines = blank_rows(settings, None)
    head = title, _bars(settings, "bands: range over seeds")
    with figure(out, head, 13.5, _height(len(lines), 4), panes=(1, 3), legend=4) as (accuracy, variance, shares):
        for n, (s, model, told, *_) in enumerate(lines):
            stable = [run for run in s.runs if run.diverged is None] or s.runs
            _over_rounds((accuracy, variance), stable, View(model), n, told)
            _steps(shares, pooled(s, model), n, told)
        if not accuracy.lines:
            raise Skipped(NOTHING)
        accuracy.set(xlabel="round", ylabel="global accuracy, %", title="accuracy of the clients, mean")
        variance.set(xlabel="round", ylabel="variance over clients", title="fairness (lower is fairer)")
        shares.set_title("clients, last round")
        if all(low > 0 for line in variance.lines for low in line.get_ydata()):
            variance.set_yscale("log")
            variance.yaxis.set_major_formatter("{x:g}")
            variance.yaxis.set_minor_formatter("{x:g}")


def gates(settings: Sequence[Setting], view: View, out: Path) -> None:
    """How often the gate opens during training, and what that costs for each theta."""
    gated = [s for s in comparable(settings) if all(run.has_gate for run in s.runs)]
    if not gated:
        raise Skipped("no algorithm here has a gate")
    thetas = {s: s.parameters["theta"] for s in gated if "theta" in s.parameters}
    by_theta = len(set(thetas.values())) > 1
    groups = grouped(gated, lambda s: f"{s.algorithm} theta={text(thetas[s])}" if by_theta and s in thetas else s.label)
    priced = {s: theta for s, theta in thetas.items() if type(theta) in (int, float)}  # no schedules, no default
    with_costs = len(set(priced.values())) > 1
    kept = [list(groups)[round(i)] for i in np.linspace(0, len(groups) - 1, min(len(groups), MOST_CURVES))]
    averaged = "mean over the other parameters" if len(groups) < len(gated) else ""
    said = _joined(averaged, f"{len(kept)} of {len(groups)} settings" if len(kept) < len(groups) else "")
    head, wide = (f"the fairness gate on {view.task}", said), 11 if with_costs else 7.5
    with figure(out, head, wide, 4.8, panes=(1, 1 + with_costs), legend=2) as (opened, *costs):
        for n, told in enumerate(kept):
            runs = [run for s in groups[told] for run in s.runs]
            shares = [{t: 100 * (spent.gate_open or 0) / t for t, spent in sorted(run.traffic.items())} for run in runs]
            band(opened, shares, n, told)
        opened.set(xlabel="round", ylabel="rounds so far with the gate open, %", ylim=(-3, 103))
        for pane in costs:
            _cost_by_theta(pane, list(priced), view)


def _cost_by_theta(pane: Any, gated: Sequence[Setting], view: View) -> None:
    for n, (algorithm, own) in enumerate(by_algorithm(gated).items()):
        by_theta = sorted(grouped(own, lambda s: s.parameters["theta"]).items())
        thetas = [theta for theta, _ in by_theta]
        costs = [[100 * run.value("additional_cost", view) for s in same for run in s.runs] for _, same in by_theta]
        means, low, high = ([statistic(each) for each in costs] for statistic in (np.mean, min, max))
        pane.plot(thetas, means, label=algorithm, **line(n, 1))
        pane.fill_between(thetas, low, high, color=color(n), alpha=0.15, lw=0)
    pane.set(xlabel="theta, °", ylabel="additional exchanges, % of all", ylim=(-1, None))
    pane.legend(frameon=False, fontsize=8)


def _over_rounds(panes: Sequence[Any], runs: Sequence[Series], view: View, n: int, told: str) -> None:
    """Accuracy and variance, each in its pane."""
    for pane, metric in zip(panes, ("mean", "variance"), strict=True):
        band(pane, [run.curve(metric, view) for run in runs], n, told)


def band(pane: Any, by_seed: Sequence[dict[int, float]], n: int, told: str) -> None:
    """Mean over seeds, and their range, at the rounds at which all seeds have a number."""
    rounds = [t for t in sorted(by_seed[0]) if all(math.isfinite(values.get(t, math.nan)) for values in by_seed)]
    if rounds:
        table = np.array([[values[t] for t in rounds] for values in by_seed])
        pane.plot(rounds, table.mean(axis=0), label=told, **line(n, len(rounds)))
        pane.fill_between(rounds, table.min(axis=0), table.max(axis=0), color=color(n), alpha=0.15, lw=0)


def _steps(pane: Any, clients: Clients, n: int, told: str) -> None:
    """The share of clients at or below each accuracy, within the intervals of few test examples."""
    pane.set(xlabel=OF_A_CLIENT, ylabel="share of clients at or below", ylim=(0, 1))
    shares = np.arange(1, len(clients.accuracy) + 1) / max(len(clients.accuracy), 1)
    pane.plot(clients.accuracy, shares, drawstyle="steps-post", label=told, **line(n, len(shares)))
    pane.fill_betweenx(shares, clients.low, clients.high, color=color(n), alpha=0.1, lw=0)


def _heat_panel(pane: Any, values: np.ndarray, notes: np.ndarray, every: np.ndarray, *, higher: bool) -> Any:
    """Numbers on the scale of every value."""
    from matplotlib.patches import Rectangle

    low, high = every.min(), every.max()
    for i, j in np.argwhere(np.isneginf(values)):
        pane.add_patch(Rectangle((j - 0.5, i - 0.5), 1, 1, color="black"))

    def written(i: int, j: int) -> str:
        return (_short(values[i, j], high) if np.isfinite(values[i, j]) else "") + notes[i, j]

    return shaded(pane, values, written, low, high, higher=higher)


def _frame(pane: Any, values: np.ndarray, best: float) -> None:
    """Frame the cells that have the best value."""
    from matplotlib.patches import Rectangle

    for i, j in np.argwhere(values == best):
        pane.add_patch(Rectangle((j - 0.5, i - 0.5), 1, 1, fill=False, ec=FRAME, lw=3, clip_on=False))


def shaded(pane: Any, values: np.ndarray, written: Any, low: float, high: float, *, higher: bool = True) -> Any:
    """Shades from low to high, each with what is written at (i, j); bright is good, whichever way the metric goes."""
    shades = SHADES if higher else f"{SHADES}_r"
    image = pane.imshow(values, cmap=shades, vmin=low, vmax=high, aspect="auto", origin="lower")
    for (i, j), value in np.ndenumerate(values):
        tone = (value - low) / ((high - low) or 1)
        ink = "white" if (tone if higher else 1 - tone) < 0.5 else "black"
        pane.text(j, i, written(i, j), ha="center", va="center", fontsize=8, color=ink)
    return image


def _short(value: float, largest: float) -> str:
    """About four digits, the same number of decimals in all cells."""
    return f"{value:.{min(max(3 - math.floor(math.log10(abs(largest) or 1)), 0), 4)}f}"


def _bars(settings: Sequence[Setting], words: str) -> str:
    return words if any(len(s.runs) > 1 for s in settings) else ""


def _joined(*notes: str) -> str:
    return "; ".join(filter(None, notes))


def _height(lines: int, columns: int) -> float:
    """Of a figure with a legend below."""
    return 4.0 + 0.22 * math.ceil(lines / columns)
