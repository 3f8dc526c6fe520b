"""The result of a tuning: which point of a method is chosen, and what it and the defaults come to on test data."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from experiments.reporting.columns import COLUMNS
from experiments.reporting.selection import BASELINES
from experiments.reporting.series import Series, View
from experiments.reporting.statistics import NOT_COMPARABLE, Comparison, interval, judged, paired, pareto_front
from experiments.reporting.style import color, figure, line, marker
from experiments.reporting.tables import CORRECTED, Plain

CLOSE = 0.5  # points of accuracy within which the variance decides
NEAR = 10.0  # points of accuracy below the best point of each method that the plane shows
RULE = (
    f"highest mean accuracy on validation data; of the points within {CLOSE:g} points of a method's best, the one with "
    "the smallest variance over clients"
)
MEASURED = ("mean", "variance", "variance_corrected", "worst5")
COMPARED = ("mean", "variance")
TUNED, UNTUNED = "tuned", "untuned"

Point = Mapping[str, float]  # values by name


class Trial(NamedTuple):
    """What a point came to in one rung: the mean over seeds; NaN if one of them diverged."""

    rounds: int
    accuracy: float
    variance: float


class Method(NamedTuple):
    """The tuning of one method."""

    algorithm: str
    space: dict[str, str]
    points: Sequence[Point]
    trials: list[list[Trial]]  # of each point, rung after rung, as far as it came
    chosen: int | None  # None: every point diverged
    figures: dict[str, dict[str, dict[int, float]]]  # tuned and untuned: metric -> seed -> value on test data
    prediction: str  # "global" or "personal"


def ordered(trials: Sequence[Trial]) -> list[int]:
    """Places of the points of one rung, best first by RULE; then the others by accuracy. Diverged ones are left out."""
    known = [i for i, trial in enumerate(trials) if math.isfinite(trial.accuracy)]
    best = max((trials[i].accuracy for i in known), default=math.nan)

    def rank(i: int) -> tuple[float, ...]:
        _, accuracy, variance = trials[i]
        return (0, variance, -accuracy, i) if accuracy >= best - CLOSE else (1, -accuracy, variance, i)

    return sorted(known, key=rank)


def of_point(series: Sequence[Series], algorithm: str, point: Point) -> list[Series]:
    """The seeds of one point."""
    return [
        one
        for one in series
        if one.algorithm == algorithm and all((one.settings | one.hparams)[name] == point[name] for name in point)
    ]


def trial(own: Sequence[Series], rounds: int) -> Trial:
    """What the seeds of a point came to on validation data: what a client would use, its own model if it has one."""
    view = View("personal", split="validation")
    if any(one.diverged is not None for one in own):
        return Trial(rounds, math.nan, math.nan)
    accuracy, variance = (float(np.mean([one.value(metric, view) for one in own])) for metric in ("mean", "variance"))
    return Trial(rounds, accuracy, variance)


def tested(own: Sequence[Series]) -> dict[str, dict[int, float]]:
    """Test figures by metric and seed; NaN where a run diverged."""

    def value(one: Series, metric: str) -> float:
        return math.nan if one.diverged is not None else one.value(metric, View("personal"))

    by_seed = sorted(own, key=lambda one: one.seed)  # intervals are drawn by order
    return {metric: {one.seed: value(one, metric) for one in by_seed} for metric in (*MEASURED, "bytes")}


def verdicts(methods: Sequence[Method], kind: str) -> dict[str, dict[str, Comparison]]:
    """By algorithm and metric, each against its reference of the same kind.

    p-values are adjusted over the methods with the same reference, as in all tables.
    """
    known = {one.algorithm: one for one in methods if kind in one.figures}
    references = {name: known.get(BASELINES[one.prediction]) for name, one in known.items()}
    pairs = [(one, other) for name, one in known.items() if (other := references[name]) and other is not one]
    found: dict[str, dict[str, Comparison]] = {one.algorithm: {} for one, _ in pairs}
    for metric in COMPARED:
        higher = COLUMNS[metric].higher_is_better
        figures = [(one.figures[kind][metric], other.figures[kind][metric]) for one, other in pairs]
        families = [other.algorithm for _, other in pairs]
        each = judged([paired(own, base, higher=higher) for own, base in figures], families)
        for (one, _), comparison in zip(pairs, each, strict=True):
            if comparison is not None:
                found[one.algorithm][metric] = comparison
    return found


def rows(methods: Sequence[Method]) -> list[list[str]]:
    """The table's rows: of each method the chosen point, and the defaults below it."""
    against = {kind: verdicts(methods, kind) for kind in (TUNED, UNTUNED)}
    made = []
    for one in methods:
        for kind in (TUNED, UNTUNED):
            chosen = "" if one.chosen is None else written(one.points[one.chosen])
            what = {TUNED: chosen or "every point diverged", UNTUNED: "defaults"}[kind]
            figures = one.figures.get(kind, {})
            compared = against[kind].get(one.algorithm, {})
            name = f"{one.algorithm}{' (personal)' * (one.prediction == 'personal')}"
            made.append(
                [
                    name,
                    what,
                    *(figure_text(metric, figures.get(metric, {})) for metric in MEASURED),
                    *(_verdict_text(metric, compared.get(metric)) for metric in COMPARED),
                ]
            )
    return made


def written(point: Point) -> str:
    return " ".join(f"{name}={value:g}" for name, value in point.items())


def figure_text(metric: str, by_seed: Mapping[int, float]) -> str:
    values = list(by_seed.values())
    if not values or not np.isfinite(values).all():
        return "diverged" if values else ""
    digits, within = COLUMNS[metric].digits, interval(values)
    spread = f" [{within[0]:.{digits}f}, {within[1]:.{digits}f}]" if within else ""
    return f"{np.mean(values):.{digits}f}{spread}"


def _verdict_text(metric: str, compared: Comparison | None) -> str:
    if compared is None:
        return ""
    if compared.verdict == NOT_COMPARABLE:
        return NOT_COMPARABLE
    return f"{compared.difference:+.{COLUMNS[metric].digits}f}: {compared.verdict}"


def table(title: str, methods: Sequence[Method], below: Sequence[str]) -> Plain:
    """The chosen points and the defaults; notes stand below."""
    titles = [COLUMNS[metric].title for metric in MEASURED]
    against = [f"{COLUMNS[metric].title} against reference" for metric in COMPARED]
    return Plain(title, ["method", "point", *titles, *against], rows(methods), below)


def notes(methods: Sequence[Method], rounds: int, seeds: Sequence[int]) -> list[str]:
    """What the table shows, in lines below it."""
    personal = any(one.prediction == "personal" for one in methods)
    return [
        f"test data, {rounds} rounds, seeds {', '.join(map(str, seeds))}; [95 % interval], with 6 seeds or more",
        f"chosen by: {RULE}",
        CORRECTED,
        f"reference: {BASELINES['global']} of the same kind, tuned or not",
        *[f"(personal): the clients' own models; their reference is {BASELINES['personal']}"] * personal,
    ]


def as_json(methods: Sequence[Method]) -> dict[str, Any]:
    """Every point with what it came to, the chosen ones, and their test figures with verdicts."""
    against = {kind: verdicts(methods, kind) for kind in (TUNED, UNTUNED)}
    return {
        one.algorithm: {
            "space": one.space,
            "prediction": one.prediction,
            "points": [
                {"values": dict(point), "rungs": [result._asdict() for result in results]}
                for point, results in zip(one.points, one.trials, strict=True)
            ],
            "chosen": one.chosen,
            "test": {
                kind: {
                    "figures": {
                        metric: {"by_seed": by_seed, "interval": interval(list(by_seed.values()))}
                        for metric, by_seed in figures.items()
                    },
                    "against": {
                        metric: compared._asdict() for metric, compared in against[kind].get(one.algorithm, {}).items()
                    },
                }
                for kind, figures in one.figures.items()
            },
        }
        for one in methods
    }


def from_json(content: Mapping[str, Any]) -> list[Method]:
    """The methods of a tune.json, as they were given to `as_json`."""

    def figures(told: Mapping[str, Any]) -> dict[str, dict[int, float]]:
        return {
            metric: {int(seed): math.nan if value is None else value for seed, value in of["by_seed"].items()}
            for metric, of in told["figures"].items()
        }

    def came_to(rung: Mapping[str, Any]) -> Trial:
        return Trial(rung["rounds"], *(math.nan if rung[name] is None else rung[name] for name in Trial._fields[1:]))

    return [
        Method(
            algorithm,
            one["space"],
            [point["values"] for point in one["points"]],
            [[came_to(rung) for rung in point["rungs"]] for point in one["points"]],
            one["chosen"],
            {kind: figures(told) for kind, told in one["test"].items()},
            one["prediction"],
        )
        for algorithm, one in content["methods"].items()
    ]


def plane(methods: Sequence[Method], title: str, out: Path) -> None:
    """Left, every point on validation data with the front of each method; right, test data: chosen and defaults."""
    about = (
        "left: each point where it was stopped, small if early, with its method's Pareto front; right: hollow defaults"
    )
    high = max(4.5, 0.2 * len(methods) + 1.2)
    ends = {one.algorithm: [t[-1] for t in one.trials if t and math.isfinite(t[-1].accuracy)] for one in methods}
    with figure(out, (title, about), 13.5, high, panes=(1, 2)) as (tried, final):
        for n, one in enumerate(methods):
            look = {"color": color(n), "marker": marker(n)}
            if last := ends[one.algorithm]:
                sizes = [45 * trial.rounds / max(other.rounds for other in last) for trial in last]
                across, up = [trial.accuracy for trial in last], [trial.variance for trial in last]
                tried.scatter(across, up, s=sizes, alpha=0.7, label=one.algorithm, **look)
                edge = [last[i] for i in pareto_front([(-t.accuracy, t.variance) for t in last])]
                tried.plot([t.accuracy for t in edge], [t.variance for t in edge], **line(n, len(edge)))
            means = {
                kind: [float(np.mean(list(figures[metric].values()))) for metric in COMPARED]
                for kind, figures in one.figures.items()
            }
            for kind, (x, y) in means.items():
                hollow = (
                    {"facecolors": "none", "edgecolors": look["color"]} if kind == UNTUNED else {"c": look["color"]}
                )
                final.scatter([x], [y], s=50, marker=look["marker"], **hollow)
            if len(means) == 2:
                final.plot(*zip(*means.values(), strict=True), color=look["color"], lw=0.8, alpha=0.6)
        outside = _look_at_the_best(tried, list(ends.values()))
        for pane, data in ((tried, f"validation data{outside}"), (final, "test data, mean over seeds")):
            pane.set(
                xlabel="accuracy, % (right is better)", ylabel="variance over clients (down is fairer)", title=data
            )
        final.figure.legend(*tried.get_legend_handles_labels(), loc="outside right center", frameon=False, fontsize=8)


def _look_at_the_best(pane: Any, tried: Sequence[Sequence[Trial]]) -> str:
    """Show what is near each method's best point; say how many are not: they would press the fronts into a corner."""
    points = [trial for own in tried for trial in own]
    least = min((max(trial.accuracy for trial in own) for own in tried if own), default=0.0) - NEAR
    inside = [trial for trial in points if trial.accuracy >= least]
    if len(inside) == len(points):
        return ""
    pane.set(xlim=(least, None), ylim=(0, 1.05 * max(trial.variance for trial in inside)))
    return f" ({len(points) - len(inside)} of {len(points)} points are below {least:.0f} % and not shown)"
