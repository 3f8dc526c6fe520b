"""What is left of each method under attack: a table of the worst case over attacks, and a heat map.

The protocol is ByzFL's: the attack is the worst for the method, whose own parameters are those with the best worst
case. Figures are of honest clients, means over seeds; a run that diverged has no accuracy.
"""

import math
import re
from collections.abc import Sequence
from itertools import takewhile
from pathlib import Path
from typing import NamedTuple

import numpy as np

from experiments.reporting import pictures
from experiments.reporting.loading import names_that_vary
from experiments.reporting.selection import ON_TEST
from experiments.reporting.series import Series, View, by_algorithm, grouped, text
from experiments.reporting.tables import Plain, plain_markdown
from fedeba_jax import ALGORITHMS
from fedeba_jax.method import declared

NEAR = 5.0  # points below its accuracy without an attack at which a method that stays there counts as recovered
NO_ATTACK = "none"
LIE = re.compile(r",?\s*\bloss\s*=\s*\w+(\([^()]*\))?")  # an argument of an attack
HEAD = (
    "method",
    "without attack",
    "worst case",
    "worst attack",
    "variance",
    "worst 5 %",
    "minority",
    "attackers' weight",
    "rounds to recover",
)
NOTES = (
    "accuracy in %, variance, worst 5 % and the minority's accuracy are of honest clients; the parameters of a method "
    "are those with the best worst case",
    f"rounds to recover: the round from which on its accuracy stays within {NEAR:g} points of that without an attack",
)


Attack = tuple[str, float]  # its text without the share, and the share; ("none", 0.0) is no attack


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
    def rank(self) -> float:
        """By which attacks are compared: to diverge is worst."""
        return -math.inf if math.isnan(self.accuracy) else self.accuracy


class Setting(NamedTuple):
    """A method with its own parameters, under all attacks."""

    method: str
    parameters: str
    outcomes: dict[Attack, Outcome]

    def at(self, share: float) -> dict[str, Outcome]:
        """By attack, at one share of attackers."""
        return {attack: outcome for (attack, f), outcome in self.outcomes.items() if f == share}

    def worst(self, share: float) -> tuple[str, Outcome]:
        """The attack under which it does worst, and how it does."""
        return min(self.at(share).items(), key=lambda item: item[1].rank)

    @property
    def label(self) -> str:
        return f"{self.method} {self.parameters}".strip()


def settings_of(series: Sequence[Series]) -> list[Setting]:
    """The settings of runs of `experiments.robustness`; one for each model that a method is evaluated with."""
    varying = {name: names_that_vary([one.hparams for one in own]) for name, own in by_algorithm(series).items()}

    def named(one: Series, model: str) -> tuple[str, str]:
        return _method(one, model), " ".join(f"{name}={text(one.hparams[name])}" for name in varying[one.algorithm])

    tested = [(one, model) for one in series for split, model in one.evals if split == "test"]
    attacks = list(dict.fromkeys(map(_attack, series)))
    settings = []
    for (method, parameters), own in grouped(tested, lambda pair: named(*pair)).items():
        view, by_attack = View(own[0][1]), grouped((one for one, _ in own), _attack)
        if not hears_losses(own[0][0].algorithm):
            by_attack = _of_every_lie(by_attack, attacks)
        settings.append(Setting(method, parameters, {key: Outcome(runs, view) for key, runs in by_attack.items()}))
    return settings


def hears_losses(algorithm: str) -> bool:
    """Whether a lie about losses can change what the method does."""
    return algorithm not in ALGORITHMS or declared(ALGORITHMS[algorithm]).hears_losses


def without_lie(attack: str) -> str:
    """The text of an attack without what it says of losses: scaling(1) of scaling(1, loss=inflate(add=2))."""
    left = LIE.sub("", attack)
    return left.replace("(,", "(").replace("( ", "(").replace("()", "")


def _of_every_lie(by_attack: dict[Attack, list[Series]], attacks: Sequence[Attack]) -> dict[Attack, list[Series]]:
    """What there is under each attack; the same under all attacks that differ in a lie that is not heard."""
    known = {(without_lie(attack), share): runs for (attack, share), runs in by_attack.items()}
    every = {(attack, share): known.get((without_lie(attack), share)) for attack, share in attacks}
    return {key: by_attack.get(key, runs) for key, runs in every.items() if runs is not None}


def tuned(settings: Sequence[Setting], share: float) -> list[Setting]:
    """Of each method the parameters with the best worst case at this share."""
    methods = grouped(settings, lambda setting: setting.method).values()
    return [max(own, key=lambda setting: setting.worst(share)[1].rank) for own in methods]


def shares(settings: Sequence[Setting]) -> list[float]:
    """The shares of attackers that were tried, ascending; 0 is no attack."""
    return sorted({share for setting in settings for _, share in setting.outcomes})


def report(settings: Sequence[Setting], title: str) -> str:
    """Tables in Markdown, one for each share of attackers."""
    made = []
    for share in filter(None, shares(settings)):
        chosen = tuned(settings, share)
        rows = [_line(setting, share) for setting in chosen]
        told = (*NOTES, *[ON_TEST] * (len(chosen) < len(settings)))
        notes = told if share == shares(settings)[-1] else ()
        made.append(plain_markdown(Plain(f"{title}, {100 * share:g} % of the clients attack", HEAD, rows, notes)))
    return "\n".join(made)


def draw(settings: Sequence[Setting], title: str, out: Path) -> None:
    """The heat maps: the worst case by share of attackers, and each attack at the largest share."""
    every = shares(settings)
    largest = every[-1]
    chosen = tuned(settings, largest)
    attacks = list(dict.fromkeys(attack for setting in chosen for attack in setting.at(largest)))
    worst = np.array([[setting.worst(share)[1].accuracy for share in every] for setting in chosen])
    each = np.array([[setting.outcomes[attack, largest].accuracy for attack in attacks] for setting in chosen])
    panels = {
        "worst case over attacks": ([f"f = {100 * share:g} %" for share in every], worst),
        f"each attack, f = {100 * largest:g} %": (attacks, each),
    }
    names = [setting.label for setting in chosen]
    pictures.heat_tables(panels, names, [title], "accuracy of honest clients, %", out)


def recovery(outcome: Outcome, without: Outcome) -> float | None:
    """The round from which on the accuracy stays near that without an attack, the mean over seeds; None: one never."""
    goals = {run.seed: run.value("mean", without.view) - NEAR for run in without.runs}
    rounds = [_stays(run.curve("mean", outcome.view), goals[run.seed]) for run in outcome.runs]
    return None if None in rounds else float(np.mean([t for t in rounds if t is not None]))


def _stays(curve: dict[int, float], goal: float) -> int | None:
    """The first round from which on the curve is never below the goal; None if it ends below, or diverged."""
    reached = [t for t, _ in takewhile(lambda point: point[1] >= goal, reversed(curve.items()))]
    return reached[-1] if reached else None


def _line(setting: Setting, share: float) -> tuple[str, ...]:
    without = setting.outcomes[NO_ATTACK, 0.0]
    attack, outcome = setting.worst(share)
    recovered = recovery(outcome, without)
    return (
        f"`{setting.label}`",
        _number(without.accuracy),
        _number(outcome.accuracy),
        f"`{attack}`",
        _number(outcome.figure("variance"), 0),
        _number(outcome.figure("worst5")),
        _number(outcome.figure("minority_accuracy")),
        _number(outcome.mean("attacker_weight"), 2),
        "never" if recovered is None else f"{recovered:.0f}",
    )


def _number(value: float, digits: int = 1) -> str:
    return "n/a" if math.isnan(value) else f"{value:.{digits}f}"


def _method(one: Series, model: str) -> str:
    aggregator = one.settings["aggregator"]
    rule = "" if aggregator == "weighted_sum" else f" with {aggregator}"
    return one.algorithm + rule + ("" if model == "global" else f" ({model})")


def _attack(one: Series) -> Attack:
    name, _, inside = one.settings["attack"].partition("(")
    if not inside:
        return name, 0.0
    share, _, others = inside[:-1].partition(",")
    return f"{name}({others.strip()})" if others else name, float(share)
