"""Which settings may be compared, with which baseline, and which of each algorithm to report.

The one to report is the best by a metric on one split.
"""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

from experiments.reporting.columns import COLUMNS
from experiments.reporting.series import DEALT, Item, Setting, View, by_algorithm, grouped
from experiments.reporting.statistics import FEWEST, WORSE, judged, paired

BASELINES = {"global": "fedavg", "personal": "local_only"}
"""What one model for all, and what a model for each client, is compared with, where it is among the settings."""
ON_TEST = "the choice used the test data: the figures of chosen settings are optimistic"
FAR = 5.0  # points of mean accuracy


class Choice(NamedTuple):
    """The chosen settings, one per algorithm, and how they were chosen."""

    settings: list[Setting]
    notes: list[str]


def comparable(settings: Sequence[Setting]) -> list[Setting]:
    """Those that may be best: none that diverged, and unfinished ones only if none is finished."""
    stable = [setting for setting in settings if not setting.diverged]
    return [setting for setting in stable if not setting.status] or stable


def rivals(settings: Sequence[Setting]) -> list[Setting]:
    """Those among which the best is marked: a model for each client is no rival of one model for all."""
    usable = comparable(settings)
    return [setting for setting in usable if "prediction" not in setting.parameters] or usable


def ranked(settings: Sequence[Setting], view: View) -> list[Setting]:
    """Those that may be best and have a figure, best first."""
    known = {s: mean for s in comparable(settings) if not math.isnan(mean := s.mean(view.metric, view))}
    return sorted(known, key=lambda s: COLUMNS[view.metric].rank(known[s]))


def leaders_first(order: Sequence[Item], algorithm: Callable[[Item], str]) -> list[Item]:
    """What is sorted, best first, with the best of each algorithm before all others."""
    leaders = [own[0] for own in grouped(order, algorithm).values()]
    return sorted(order, key=lambda item: item not in leaders)


def baseline(
    settings: Sequence[Setting], asked: str | None = None, prediction: str = "global"
) -> dict[Setting, Setting]:
    """The setting that each is compared with: one of the algorithm, or with the label, that was asked for.

    If none was, it goes by what is shown of a setting (BASELINES): "global" or "personal" predictions.

    It must be of the same data, dealt in the same way. Where there are several, it is the one that has the same values
    of all parameters that both have. A setting without such a one, the baseline itself, and what diverged or is
    unfinished beside finished ones, is compared with none.

    Raises:
      ValueError: if there is no such algorithm or label.
    """
    name = asked or BASELINES[prediction]
    candidates = [s for s in settings if name in (s.algorithm, s.label)]
    if asked and not candidates:
        known = ", ".join(by_algorithm(settings))
        raise ValueError(f"--baseline={asked} is not among the settings; give an algorithm ({known}) or a label")
    usable = comparable(settings)
    found = {}
    for own in usable:
        fitting = [s for s in candidates if _agree(own, s, DEALT)]
        if len(fitting) > 1:
            fitting = [s for s in fitting if _agree(own, s)]
        if len(fitting) == 1 and fitting[0] in usable and fitting[0] is not own:
            found[own] = fitting[0]
    return found


def _agree(one: Setting, other: Setting, names: Sequence[str] | None = None) -> bool:
    both = one.parameters.keys() & other.parameters.keys()
    return all(one.parameters[name] == other.parameters[name] for name in both if names is None or name in names)


def costly(settings: Sequence[Setting], view: View) -> list[str]:
    """A line for each algorithm whose best setting by another metric than the mean has a mean far below the best."""
    lines = []
    for algorithm, own in by_algorithm(settings).items():
        by_metric, by_mean = ranked(own, view), ranked(own, view._replace(metric="mean"))
        if view.metric == "mean" or not by_metric or not by_mean:
            continue
        chosen, best = (setting.mean("mean", view) for setting in (by_metric[0], by_mean[0]))
        if best - chosen > FAR:
            lines.append(
                f"{algorithm}: by {view.metric} the best setting is {by_metric[0].label}, with a mean accuracy of "
                f"{chosen:.1f} %; {by_mean[0].label} has {best:.1f} %: beware of models that are equally bad for all"
            )
    return lines


def choose(settings: Sequence[Setting], view: View) -> Choice | None:
    """The best setting of each algorithm by its mean over seeds in the view; None if there is nothing to choose."""
    candidates = by_algorithm(settings)
    if len(candidates) == len(settings):
        return None
    choice = Choice([], [*([ON_TEST] if view.split == "test" else []), *costly(settings, view)])
    for algorithm, own in candidates.items():
        usable = comparable(own)
        if len(own) == 1:
            choice.settings.append(own[0])
        elif not usable:
            choice.notes.append(f"{algorithm}: every setting diverged; none is chosen")
        else:
            best, told = _best(usable, view)
            choice.settings.append(best)
            left = f"; left out, diverged or unfinished: {out}" if (out := len(own) - len(usable)) else ""
            choice.notes.append(f"{algorithm}: best of {len(usable)} settings{told}{left}")
    return choice


def _best(settings: Sequence[Setting], view: View) -> tuple[Setting, str]:
    """The best setting, and what to say of those that the seeds cannot tell from it."""
    _check_split(settings, view)
    order = ranked(settings, view)
    if not order:
        raise ValueError(f"no setting of {settings[0].algorithm} has a finite {view.metric}; give another --metric")
    best, *others = (setting.values(view.metric, view) for setting in order)
    higher = COLUMNS[view.metric].higher_is_better
    compared = [one for one in judged([paired(other, best, higher=higher) for other in others]) if one]
    if any(one.seeds < FEWEST for one in compared):
        return order[0], f"; fewer than {FEWEST} seeds cannot tell them apart"
    close = sum(one.verdict != WORSE for one in compared)
    return order[0], f"; not shown to be worse on {view.split} data: {close}" if close else ""


def _check_split(settings: Sequence[Setting], view: View) -> None:
    for run in (run for setting in settings for run in setting.runs):
        if (view.split, run.shown(view.model)) not in run.evals:
            remedy = "--select_on=test (chooses on the test data, as the paper did), or --noselect"
            raise ValueError(f"{run.source.folder} has no {view.split} split; run with --validation=0.1, or {remedy}")
