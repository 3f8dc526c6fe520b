"""Methods under attack: what runs of `experiments.robustness` say of each setting, and which parameters are best.

The protocol is ByzFL's: the attack is the worst for the method, whose own parameters are those with the best worst
case. Figures are of honest clients, means over seeds; a run that diverged has no accuracy.
"""

import math
import re
from collections.abc import Sequence
from itertools import takewhile
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from experiments.reporting.loading import honest_of, names_that_vary
from experiments.reporting.series import Series, View, by_algorithm, grouped, text
from fedeba_jax import ALGORITHMS
from fedeba_jax.method import declared
from fedeba_jax.metrics import summarize

NEAR = 5.0  # points below its accuracy without an attack at which a method that stays there counts as recovered
LEFT = 0.5  # of its accuracy without the attack: a method that is left with less has collapsed
LIE = re.compile(r",?\s*\bloss\s*=\s*\w+(\([^()]*\))?")  # an argument of an attack
OF_CLIENTS = ("mean", "variance", "worst5", "minority_accuracy")  # figures that follow from the accuracies of clients

Attack = tuple[str, float]  # its text without the share, and the share
NO_ATTACK: Attack = ("none", 0.0)


class Outcome(NamedTuple):
    """One setting under one attack, over its seeds."""

    runs: list[Series]
    view: View

    def mean(self, metric: str) -> float:
        """Over seeds."""
        return float(np.mean([run.value(metric, self.view) for run in self.runs]))

    def figure(self, metric: str) -> float:
        """The mean; NaN if a seed diverged."""
        return math.nan if any(run.diverged for run in self.runs) else self.mean(metric)

    @property
    def accuracy(self) -> float:
        return self.figure("mean")

    @property
    def seeds(self) -> set[int]:
        return {run.seed for run in self.runs}

    @property
    def validated(self) -> bool:
        """Whether there are figures on validation data."""
        return all(("validation", run.shown(self.view.model)) in run.evals for run in self.runs)

    @property
    def excluded(self) -> float:
        """The share of all replies that were left out because they were not finite; NaN: nothing leaves them out."""
        return float(np.mean([_excluded(run, self.view) for run in self.runs]))

    def rank(self, split: str = "test") -> float:
        """By which attacks and parameters are compared: to diverge is worst."""
        accuracy = self._replace(view=self.view._replace(split=split)).accuracy
        return -math.inf if math.isnan(accuracy) else accuracy


class Setting(NamedTuple):
    """A method with its own parameters, under all attacks."""

    method: str
    parameters: str
    outcomes: dict[Attack, Outcome]

    @property
    def label(self) -> str:
        return f"{self.method} {self.parameters}".strip()

    @property
    def without(self) -> Outcome | None:
        """Without an attack; None if that was not run yet."""
        return self.outcomes.get(NO_ATTACK)

    def at(self, share: float) -> dict[str, Outcome]:
        """By attack, at one share of attackers."""
        return {attack: outcome for (attack, f), outcome in self.outcomes.items() if f == share}

    def worst(self, share: float, split: str = "test") -> tuple[str, Outcome]:
        """The attack under which it does worst, and how it does."""
        return min(self.at(share).items(), key=lambda item: item[1].rank(split))

    def rank(self, share: float, split: str) -> tuple[float, ...]:
        """By which parameters are compared: under as many attacks as any, by the worst case, then without an attack."""
        without = self.without.rank(split) if self.without else -math.inf
        return len(self.at(share)), self.worst(share, split)[1].rank(split), without


def settings_of(series: Sequence[Series]) -> list[Setting]:
    """The settings of runs of `experiments.robustness`, in the order of the plan; one for each model of a method.

    A run that is not finished is left out: half-trained it is no sample.
    """
    planned = [method for source in dict.fromkeys(one.source for one in series) for method in source.planned]
    places = {method: place for place, method in reversed([*enumerate(planned)])}
    series = sorted(
        (one for one in series if one.finished),
        key=lambda one: places.get((one.algorithm, one.settings["aggregator"]), len(places)),
    )
    varying = {name: names_that_vary([one.hparams for one in own]) for name, own in by_algorithm(series).items()}

    def named(one: Series, model: str) -> tuple[str, str]:
        parameters = " ".join(f"{name}={text(one.hparams[name])}" for name in varying[one.algorithm])
        return method_of(one.algorithm, one.settings["aggregator"], model), parameters

    tested = [(one, model) for one in series for split, model in one.evals if split == "test"]
    attacks = list(dict.fromkeys(map(_attack, series)))
    settings = []
    for (method, parameters), own in grouped(tested, lambda pair: named(*pair)).items():
        view, by_attack = View(own[0][1]), grouped((one for one, _ in own), _attack)
        if not hears_losses(own[0][0].algorithm):
            by_attack = _of_every_lie(by_attack, attacks)
        settings.append(Setting(method, parameters, {key: Outcome(runs, view) for key, runs in by_attack.items()}))
    return settings


def method_of(algorithm: str, aggregator: str, model: str = "global") -> str:
    """What a method is called: its algorithm, its rule, and its model if that is not the global one."""
    rule = "" if aggregator == "weighted_sum" else f" with {aggregator}"
    return algorithm + rule + ("" if model == "global" else f" ({model})")


def hears_losses(algorithm: str) -> bool:
    """Whether a lie about losses can change what the method does."""
    return algorithm not in ALGORITHMS or declared(ALGORITHMS[algorithm]).hears_losses


def without_lie(attack: str) -> str:
    """The text of an attack without what it says of losses: scaling(1) of scaling(1, loss=inflate(add=2))."""
    left = LIE.sub("", attack)
    return left.replace("(,", "(").replace("( ", "(").replace("()", "")


def shares(settings: Sequence[Setting]) -> list[float]:
    """The shares of attackers that were tried, ascending; 0 is no attack."""
    return sorted({share for setting in settings for _, share in setting.outcomes})


def chosen_on(settings: Sequence[Setting]) -> str:
    """The split on which parameters are chosen: validation where every run has it."""
    every = [outcome for setting in settings for outcome in setting.outcomes.values()]
    return "validation" if every and all(outcome.validated for outcome in every) else "test"


def tuned(settings: Sequence[Setting], share: float) -> list[Setting]:
    """Of each method that was run at this share the parameters with the best worst case there."""
    split = chosen_on(settings)
    methods = grouped((setting for setting in settings if setting.at(share)), lambda setting: setting.method).values()
    return [max(own, key=lambda setting: setting.rank(share, split)) for own in methods]


def same_clients(outcome: Outcome, without: Outcome | None) -> dict[str, tuple[float, float]]:
    """Figures of the same clients without and with the attack, means over common seeds.

    These are the honest clients of the attacked run, and its minority, over the last evaluations of which rows have
    single clients.
    """
    pairs = [(reference(run, without), run) for run in outcome.runs if without and run.seed in without.seeds]

    def attacked(before: Reference, run: Series, metric: str) -> float:
        return run.value(metric, outcome.view._replace(last=before.evaluations))

    return {
        metric: (_mean([before.figures[metric] for before, _ in pairs]), _mean([attacked(*p, metric) for p in pairs]))
        for metric in OF_CLIENTS
    }


def collapses(setting: Setting, share: float) -> list[str]:
    """The attacks under which a seed diverges, or the same clients are left with too little of what they had."""

    def collapsed(outcome: Outcome) -> bool:
        before, after = same_clients(outcome, setting.without)["mean"]
        return math.isnan(outcome.accuracy) or after < LEFT * before

    return [attack for attack, outcome in setting.at(share).items() if collapsed(outcome)]


class Reference(NamedTuple):
    """What the honest clients of an attacked run have without the attack, at its seed."""

    figures: dict[str, float]  # by metric; NaN: not known
    evaluations: int  # of which they are means


def reference(run: Series, without: Outcome) -> Reference:
    """The mean of the last evaluations of which there are single clients; of older rows, the last alone."""
    (other,) = (one for one in without.runs if one.seed == run.seed)
    if other.diverged is not None:
        return Reference(dict.fromkeys(OF_CLIENTS, math.nan), 1)
    curve = other.client_curve[other.shown(without.view.model)]
    every = [_figures(run, accuracy) for accuracy in curve.values()]
    return Reference({name: _mean([figures[name] for figures in every]) for name in OF_CLIENTS}, len(every))


def _figures(run: Series, accuracy: np.ndarray) -> dict[str, float]:
    """Of the honest clients of a run, from accuracies of all clients."""
    figures = summarize(jnp.asarray(honest_of(run.attackers, accuracy)))
    minority = _mean(accuracy[sorted(run.minority)])
    return {name: float(figures[name]) for name in OF_CLIENTS[:-1]} | {"minority_accuracy": minority}


def recovery(outcome: Outcome, without: Outcome | None) -> float | None:
    """The round from which on the accuracy stays near that of the same clients without an attack, the mean over seeds.

    The accuracy of a round is the mean of the last evaluations until then, of as many as figures are: one alone moves
    by several points. None: a seed never does. NaN: it is not known what a seed has without an attack.
    """
    if without is None or not outcome.seeds <= without.seeds:
        return math.nan
    before = [reference(run, without) for run in outcome.runs]
    if any(math.isnan(one.figures["mean"]) for one in before):
        return math.nan

    def stays(run: Series, one: Reference) -> int | None:
        return _stays(_steady(run.curve("mean", outcome.view), one.evaluations), one.figures["mean"] - NEAR)

    rounds = [stays(*pair) for pair in zip(outcome.runs, before, strict=True)]
    return None if None in rounds else float(np.mean([t for t in rounds if t is not None]))


def _steady(curve: dict[int, float], count: int) -> dict[int, float]:
    """At each round the mean of so many evaluations, the last until then; of fewer at the beginning."""
    values = list(curve.values())
    return {t: _mean(values[max(0, i + 1 - count) : i + 1]) for i, t in enumerate(curve)}


def _stays(curve: dict[int, float], goal: float) -> int | None:
    """The first round from which on the curve is never below the goal; None if it ends below, or diverged."""
    reached = [t for t, _ in takewhile(lambda point: point[1] >= goal, reversed(curve.items()))]
    return reached[-1] if reached else None


def _of_every_lie(by_attack: dict[Attack, list[Series]], attacks: Sequence[Attack]) -> dict[Attack, list[Series]]:
    """What there is under each attack; the same under all attacks that differ in a lie that is not heard."""
    known = {(without_lie(attack), share): runs for (attack, share), runs in by_attack.items()}
    every = {(attack, share): known.get((without_lie(attack), share)) for attack, share in attacks}
    return {key: by_attack.get(key, runs) for key, runs in every.items() if runs is not None}


def _attack(one: Series) -> Attack:
    name, _, inside = one.settings["attack"].partition("(")
    if not inside:
        return name, 0.0
    share, _, others = inside[:-1].partition(",")
    return f"{name}({others.strip()})" if others else name, float(share)


def _excluded(run: Series, view: View) -> float:
    counted = list(run.curve("excluded", view).values())[-1]  # from the first round on
    return counted / ((run.diverged or run.rounds) * run.settings.get("cohort_size", math.nan))


def _mean(values: Sequence[float] | np.ndarray) -> float:
    return float(np.mean(values)) if len(values) else math.nan
