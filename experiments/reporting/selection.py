"""Which settings may be compared, and which of each algorithm to report: the best by a metric on one split."""

import math
from collections.abc import Sequence
from typing import NamedTuple

from experiments.reporting.columns import COLUMNS
from experiments.reporting.loading import Setting, View, by_algorithm
from experiments.reporting.statistics import within_noise

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


def ranked(settings: Sequence[Setting], view: View) -> list[Setting]:
    """Those that may be best and have a figure, best first."""
    known = {s: mean for s in comparable(settings) if not math.isnan(mean := s.mean(view.metric, view))}
    return sorted(known, key=lambda s: COLUMNS[view.metric].rank(known[s]))


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
            best, close = _best(usable, view)
            choice.settings.append(best)
            told = f"; not to be told from it on {view.split} data: {close}" if close else ""
            left = f"; left out, diverged or unfinished: {out}" if (out := len(own) - len(usable)) else ""
            choice.notes.append(f"{algorithm}: best of {len(usable)} settings{told}{left}")
    return choice


def _best(settings: Sequence[Setting], view: View) -> tuple[Setting, int]:
    """The best setting, and the number of others that are within noise of it."""
    _check_split(settings, view)
    order = ranked(settings, view)
    if not order:
        raise ValueError(f"no setting of {settings[0].algorithm} has a finite {view.metric}; give another --metric")
    best, *others = (setting.values(view.metric, view) for setting in order)
    return order[0], sum(bool(within_noise(best, other)) for other in others)


def _check_split(settings: Sequence[Setting], view: View) -> None:
    for run in (run for setting in settings for run in setting.runs):
        if (view.split, run.shown(view.model)) not in run.evals:
            remedy = "--select_on=test (chooses on the test data, as the paper did), or --noselect"
            raise ValueError(f"{run.source.folder} has no {view.split} split; run with --validation=0.1, or {remedy}")
