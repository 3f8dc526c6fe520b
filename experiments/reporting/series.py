"""What a report is about: series, which are one setting with one seed, and settings, which are series over seeds.

A `Setting` is what one row of a table shows: an algorithm with its parameters that vary, over its seeds.
"""

import dataclasses
import re
from collections.abc import Callable, Iterable
from operator import attrgetter
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np

from experiments.execution.folder import LAST, averaged, figure, shown
from experiments.reporting.statistics import wilson

FEW = 2  # seeds that are told one by one
# Settings that decide which examples each client has.
DEALT = ("dataset", "clients", "partition", "shards_per_client", "dirichlet", "test_split", "label_noise")

Item = TypeVar("Item")


class View(NamedTuple):
    """Which figures are looked at: of which model, over how many evaluations, by what, of what, on which data."""

    model: str = "global"
    last: int = LAST  # evaluations that a figure averages, at most
    metric: str = "mean"  # by which settings are better than others
    task: str = ""
    split: str = "test"
    best: bool = False  # the figures of the most accurate evaluation instead, chosen with hindsight


class Origin(NamedTuple):
    """The code and the data that a row was made with."""

    commit: str  # "unknown" outside a checkout; ends in "+" if files were changed since the commit
    data: str  # name of the data set
    md5: tuple[tuple[str, str], ...]  # of each of its arrays


class Source(NamedTuple):
    """The folder that a series was read from."""

    folder: Path
    task: str
    varies: tuple[str, ...]
    missing: str  # what an unfinished folder lacks; "" if it is complete
    planned: tuple[tuple[str, str], ...] = ()  # algorithms and their aggregators, in the order of the plan


class Traffic(NamedTuple):
    """Communication of the whole cohort from the first round on."""

    exchanges: int
    bytes_down: int
    bytes_up: int
    gate_open: int | None  # rounds with the gate open; None without a gate


class Alone(NamedTuple):
    """What each honest client reaches by itself, on the same data."""

    accuracy: np.ndarray
    loss: np.ndarray


class Series(NamedTuple):
    """One setting with one seed."""

    algorithm: str
    hparams: dict[str, Any]
    settings: dict[str, Any]
    seed: int
    source: Source
    rounds_per_second: float | None  # of all runs that were trained together with this one; None if not timed
    origins: list[Origin]
    evals: dict[tuple[str, str], dict[int, dict[str, float]]]  # by split and model, and by round
    traffic: dict[int, Traffic]  # by round
    client_curve: dict[
        str, dict[int, np.ndarray]
    ]  # accuracies of honest clients, by model and by one of the last rounds
    client_accuracy: dict[str, np.ndarray]  # likewise, by model, after the last round
    client_loss: dict[str, np.ndarray]  # likewise
    client_examples: dict[str, np.ndarray]  # that each of them was tested on, by model
    diverged: int | None  # the round
    diverged_clients: list[int]  # who sent what is not finite in it; who was sampled in it, if that is not known
    privacy: dict[str, Any] | None  # what a private run may claim once it is finished
    attackers: frozenset[int] = frozenset()  # who is not honest in any round
    minority: frozenset[int] = frozenset()  # the honest clients with the rarest labels, of a run under attack
    alone: Alone | None = None  # what `local_only` tells

    @property
    def rounds(self) -> int:
        """The last round that was evaluated."""
        return max(self.traffic)

    @property
    def finished(self) -> bool:
        return self.diverged is not None or self.rounds >= self.settings["rounds"]

    @property
    def models(self) -> set[str]:
        return {model for _, model in self.evals}

    @property
    def has_gate(self) -> bool:
        """Gates have an angle theta; a gate that never opened is a gate all the same."""
        counts = [spent.gate_open for spent in self.traffic.values()]
        return None not in counts and ("theta" in self.hparams or any(counts))

    def shown(self, model: str) -> str:
        """The model that is shown for the wanted one, see `shown`."""
        return shown(self.models, model)

    def curve(self, metric: str, view: View) -> dict[int, float]:
        """The metric by round."""
        rows = self.evals.get((view.split, self.shown(view.model)), {})
        return {t: row[metric] for t, row in sorted(rows.items())}

    def value(self, metric: str, view: View) -> float:
        """The figure of the run, see `figure`; communication, speed, the gap and FAA are those of the whole run.

        The corrected variance is max(0, mean of (variance - noise)). Figures have 7 digits, as files have:
        intervals hang on which resampled means are equal, and would else differ between runs and a file of them.
        """
        spent = self.traffic[self.rounds]
        if metric == "bytes":
            return float(spent.bytes_down + spent.bytes_up)
        if metric == "additional_cost":  # exchanges beyond one per round, as a share of all
            return 1 - self.rounds / max(spent.exchanges, self.rounds)
        if metric == "rounds_per_second":
            return np.nan if self.rounds_per_second is None else self.rounds_per_second
        if metric in ("gap", "faa"):
            return self._beside_alone(metric, view)
        mean = self._at_best(metric, view) if view.best else figure(list(self.curve(metric, view).values()), view.last)
        value = np.maximum(0.0, mean) if metric == "variance_corrected" else mean  # NaN of a diverged run stays
        return float(f"{value:.7g}")

    def _at_best(self, metric: str, view: View) -> float:
        """The metric at the evaluation with the highest accuracy; NaN of a run that diverged."""
        accuracy = self.curve("mean", view)
        return (
            np.nan if self.diverged is not None else self.curve(metric, view)[max(accuracy, key=accuracy.__getitem__)]
        )

    def _beside_alone(self, metric: str, view: View) -> float:
        """Honest clients after the last round beside what each reaches alone; NaN if that is not known.

        gap: mean_i max(0, alone_i - a_i) of accuracies a. faa: max_i E_i - min_i E_i of excess losses
        E_i = F_i - alone_i (Chu et al. 2023, "FOCUS: Fairness via Agent-Awareness").
        """
        model = self.shown(view.model)
        accuracy, loss = self.client_accuracy.get(model, np.empty(0)), self.client_loss.get(model, np.empty(0))
        if self.alone is None or view.split != "test" or len(accuracy) != len(self.alone.accuracy):
            return np.nan
        if metric == "gap":
            return float(np.maximum(self.alone.accuracy - accuracy, 0).mean())
        return float(np.ptp(loss - self.alone.loss))


@dataclasses.dataclass(eq=False)
class Setting:
    """An algorithm with the parameters that vary, over seeds."""

    algorithm: str
    parameters: dict[str, Any]  # those that vary
    runs: list[Series]

    @property
    def label(self) -> str:
        return " ".join([self.algorithm, *(f"{name}={text(value)}" for name, value in self.parameters.items())])

    @property
    def diverged(self) -> dict[int, int]:
        """Seed -> round."""
        return {run.seed: run.diverged for run in self.runs if run.diverged is not None}

    @property
    def status(self) -> str:
        """Why it takes no part in a comparison; "" if it does."""
        if len(self.diverged) > FEW:
            first, last = min(self.diverged.values()), max(self.diverged.values())
            rounds = f"rounds {first} to {last}" if last > first else f"round {first}"
            return f"diverged: {len(self.diverged)} of {len(self.runs)} seeds in {rounds}"
        if self.diverged:
            return "diverged: " + ", ".join(f"seed {seed} in round {t}" for seed, t in self.diverged.items())
        finished = all(run.finished for run in self.runs)
        return "" if finished else f"unfinished: round {self.rounds} of {self.runs[0].settings['rounds']}"

    @property
    def rounds(self) -> int:
        """Rounds that every seed has done."""
        return min(run.rounds for run in self.runs)

    @property
    def privacy(self) -> dict[str, Any] | None:
        """The claim of the seed that guarantees least: none at all, or else the largest epsilon."""
        claims = [run.privacy for run in self.runs if run.privacy]
        return max(claims, key=lambda claim: (not claim["guarantee"], claim["epsilon"] or 0.0), default=None)

    def values(self, metric: str, view: View) -> dict[int, float]:
        """Seed -> the metric of that seed."""
        return {run.seed: run.value(metric, view) for run in self.runs}

    def mean(self, metric: str, view: View) -> float:
        return float(np.mean(list(self.values(metric, view).values())))

    def averaged(self, view: View) -> int:
        """The number of evaluations that a figure really averages, the least of the seeds."""
        return min(averaged(len(run.curve("mean", view)), view.last) for run in self.runs)


class Clients(NamedTuple):
    """Accuracies in percent, each sorted."""

    accuracy: np.ndarray
    low: np.ndarray  # of Wilson's interval
    high: np.ndarray


def grouped(items: Iterable[Item], key: Callable[[Item], Any]) -> dict[Any, list[Item]]:
    """Items by a key, in the order in which they come."""
    found: dict[Any, list[Item]] = {}
    for item in items:
        found.setdefault(key(item), []).append(item)
    return found


def by_algorithm(items: Iterable[Item]) -> dict[str, list[Item]]:
    """Series or settings of each algorithm."""
    return grouped(items, attrgetter("algorithm"))


def text(value: Any) -> str:
    """A parameter's value as it is written on the command line."""
    word = str(value).lower() if isinstance(value, bool) or value is None else str(value)
    return f"{value:g}" if isinstance(value, float) else word


def sort_key(value: Any) -> tuple[int, float, str]:
    """None, then numbers, then words, with numbers in them by size: client(2.0) before client(10.0)."""
    if value is None or isinstance(value, int | float):
        return (value is not None, float(value or 0), "")
    return (2, 0.0, re.sub(r"\d+(\.\d+)?", lambda match: f"{float(match[0]):020.6f}", str(value)))


def pooled(s: Setting, model: str) -> Clients:
    """The clients of all seeds, sorted by accuracy; none if no run is finished."""
    known = [run for run in s.runs if run.shown(model) in run.client_accuracy]
    accuracy, examples = (
        np.concatenate([np.empty(0), *(of(run)[run.shown(model)] for run in known)])
        for of in (attrgetter("client_accuracy"), attrgetter("client_examples"))
    )
    low, high = wilson(accuracy, examples)
    return Clients(*(np.sort(values) for values in (accuracy, low, high)))
