"""Which setting of each algorithm to report, chosen by a metric on one split of the data."""

import math
from collections.abc import Sequence
from typing import NamedTuple

from experiments.reporting.columns import COLUMNS
from experiments.reporting.loading import Setting, comparable
from experiments.reporting.statistics import within_noise


class Choice(NamedTuple):
    """The chosen settings, one per algorithm, and how they were chosen."""

    settings: list[Setting]
    notes: list[str]


def choose(settings: Sequence[Setting], split: str, metric: str, model: str, last: int) -> Choice | None:
    """The best setting of each algorithm by its mean over seeds on the split; None if there is nothing to choose."""
    by_algorithm: dict[str, list[Setting]] = {}
    for setting in settings:
        by_algorithm.setdefault(setting.algorithm, []).append(setting)
    if all(len(own) == 1 for own in by_algorithm.values()):
        return None
    choice = Choice([], [])
    if split == "test":
        choice.notes.append("the choice used the test data: the figures of chosen settings are optimistic")
    for algorithm, own in by_algorithm.items():
        usable = comparable(own)
        if len(own) == 1:
            choice.settings.append(own[0])
        elif not usable:
            choice.notes.append(f"{algorithm}: every setting diverged; none is chosen")
        else:
            best, close = _best(usable, split, metric, model, last)
            choice.settings.append(best)
            out = len(own) - len(usable)
            told = f"; not to be told from it on {split} data: {close}" if close else ""
            left = f"; left out, diverged or unfinished: {out}" if out else ""
            choice.notes.append(f"{algorithm}: best of {len(usable)} settings{told}{left}")
    return choice


def _best(settings: Sequence[Setting], split: str, metric: str, model: str, last: int) -> tuple[Setting, int]:
    """The best setting, and the number of others that are within noise of it."""
    _check_split(settings, split, model)
    means = {id(s): s.mean(metric, split, model, last) for s in settings}
    finite = [s for s in settings if not math.isnan(means[id(s)])]
    if not finite:
        raise ValueError(f"no setting of {settings[0].algorithm} has a finite {metric}; give another --metric")
    best = (max if COLUMNS[metric].higher_is_better else min)(finite, key=lambda s: means[id(s)])
    figures = best.values(metric, split, model, last)
    others = [s.values(metric, split, model, last) for s in finite if s is not best]
    return best, sum(bool(within_noise(figures, other)) for other in others)


def _check_split(settings: Sequence[Setting], split: str, model: str) -> None:
    for run in (run for setting in settings for run in setting.runs):
        if (split, run.shown(model)) not in run.evals:
            raise ValueError(
                f"{run.source.folder} has no {split} split; run with --validation=0.1, or --select_on=test (chooses on "
                "the test data, as the paper did), or --noselect"
            )
