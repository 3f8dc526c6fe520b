"""What is left of each method under attack: a table of the worst case over attacks, and a heat map.

The protocol is ByzFL's: the attack is the worst for the method, whose own parameters are those with the best worst
case. Figures are of honest clients, means over seeds of the last evaluations; a run that diverged has no accuracy.
"""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from experiments.execution.folder import RESULTS, read_rows
from experiments.reporting import pictures
from experiments.reporting.series import LAST, grouped, text
from experiments.reporting.tables import Plain, plain_markdown

NEAR = 5.0  # points below its accuracy without an attack at which a method counts as recovered
NO_ATTACK = "none"
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
    f"rounds to recover: until its accuracy is within {NEAR:g} points of that without an attack",
)


class Outcome(NamedTuple):
    """One setting under one attack, over its seeds."""

    accuracy: float  # mean over honest clients; NaN if a seed diverged
    variance: float
    worst5: float
    minority: float  # accuracy of the honest minority; NaN without an attack
    weight: float  # the attackers'; NaN if not known
    curves: dict[int, dict[int, float]]  # by seed, the accuracy by round

    @property
    def rank(self) -> float:
        """By which attacks are compared: to diverge is worst."""
        return -math.inf if math.isnan(self.accuracy) else self.accuracy


class Setting(NamedTuple):
    """A method with its own parameters, under all attacks."""

    method: str
    parameters: str
    outcomes: dict[tuple[str, float], Outcome]  # by attack and share; ("none", 0.0) without one

    def at(self, share: float) -> dict[str, Outcome]:
        """By attack, at one share of attackers."""
        return {attack: outcome for (attack, f), outcome in self.outcomes.items() if f == share}

    def worst(self, share: float) -> tuple[str, Outcome]:
        """The attack under which it does worst, and how it does."""
        return min(self.at(share).items(), key=lambda item: item[1].rank)

    @property
    def label(self) -> str:
        return f"{self.method} {self.parameters}".strip()


def load(folder: Path) -> list[Setting]:
    """The settings of a folder of `experiments.robustness`; one for each model that a method is evaluated with."""
    rows = [row for row in read_rows(folder / RESULTS) if row["split"] == "test"]
    varying = _varying(rows)
    settings = []
    for (method, parameters), own in grouped(rows, lambda row: (_method(row), _parameters(row, varying))).items():
        by_attack = grouped(own, _attack)
        settings.append(Setting(method, parameters, {key: _outcome(found) for key, found in by_attack.items()}))
    return settings


def tuned(settings: Sequence[Setting], share: float) -> list[Setting]:
    """Of each method the parameters with the best worst case at this share."""
    methods = grouped(settings, lambda setting: setting.method).values()
    return [max(own, key=lambda setting: setting.worst(share)[1].rank) for own in methods]


def shares(settings: Sequence[Setting]) -> list[float]:
    """The shares of attackers that were tried, ascending; 0 is no attack."""
    return sorted({share for setting in settings for _, share in setting.outcomes})


def report(folder: Path, title: str) -> str:
    """Tables in Markdown, one for each share of attackers."""
    settings = load(folder)
    made = [
        plain_markdown(
            Plain(
                f"{title}, {100 * share:g} % of the clients attack",
                HEAD,
                [_line(setting, share) for setting in tuned(settings, share)],
                NOTES if share == shares(settings)[-1] else (),
            )
        )
        for share in shares(settings)
        if share
    ]
    return "\n".join(made)


def draw(folder: Path, title: str, out: Path) -> None:
    """The heat maps: the worst case by share of attackers, and each attack at the largest share."""
    settings = load(folder)
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
    """Rounds until the accuracy is near that without an attack, the mean over seeds; None if one never is."""
    rounds = []
    for seed, curve in outcome.curves.items():
        goal = _late(without.curves[seed]) - NEAR
        rounds.append(next((t for t, value in sorted(curve.items()) if value >= goal), None))
    return None if None in rounds else float(np.mean([t for t in rounds if t is not None]))


def _line(setting: Setting, share: float) -> tuple[str, ...]:
    without = setting.outcomes[NO_ATTACK, 0.0]
    attack, outcome = setting.worst(share)
    recovered = recovery(outcome, without)
    return (
        f"`{setting.label}`",
        _number(without.accuracy),
        _number(outcome.accuracy),
        f"`{attack}`",
        _number(outcome.variance, 0),
        _number(outcome.worst5),
        _number(outcome.minority),
        _number(outcome.weight, 2),
        "never" if recovered is None else f"{recovered:.0f}",
    )


def _number(value: float, digits: int = 1) -> str:
    return "n/a" if math.isnan(value) else f"{value:.{digits}f}"


def _outcome(rows: Sequence[dict[str, Any]]) -> Outcome:
    by_seed = {seed: sorted(own, key=lambda row: row["round"]) for seed, own in grouped(rows, _seed).items()}
    finite = all(row["status"] == "ok" for row in rows)
    late = [row for own in by_seed.values() for row in own[-LAST:]]
    attacked = [row.get("attacked") or {} for row in late]

    def mean(values: Sequence[Any]) -> float:
        known = [math.nan if value is None else value for value in values]
        return float(np.mean(known)) if known else math.nan

    accuracy, variance, worst5 = (
        mean([row[key] for row in late]) if finite else math.nan for key in ("mean", "variance", "worst5")
    )
    return Outcome(
        accuracy,
        variance,
        worst5,
        mean([found.get("minority_accuracy") for found in attacked]) if finite else math.nan,
        mean([found.get("attacker_weight") for found in attacked]),
        {
            seed: {row["round"]: -math.inf if row["mean"] is None else row["mean"] for row in own}
            for seed, own in by_seed.items()
        },
    )


def _late(curve: dict[int, float]) -> float:
    return float(np.mean([curve[t] for t in sorted(curve)[-LAST:]]))


def _seed(row: dict[str, Any]) -> int:
    return row["seed"]


def _method(row: dict[str, Any]) -> str:
    aggregator, model = row["settings"]["aggregator"], row["model"]
    rule = "" if aggregator == "weighted_sum" else f" with {aggregator}"
    return row["algorithm"] + rule + ("" if model == "global" else f" ({model})")


def _attack(row: dict[str, Any]) -> tuple[str, float]:
    """The attack without its share, and the share."""
    name, _, inside = row["settings"]["attack"].partition("(")
    if not inside:
        return name, 0.0
    share, _, others = inside[:-1].partition(",")
    return f"{name}({others.strip()})" if others else name, float(share)


def _varying(rows: Sequence[dict[str, Any]]) -> dict[str, list[str]]:
    """Of each algorithm, the hyper-parameters that have several values."""
    found = {}
    for algorithm, own in grouped(rows, lambda row: row["algorithm"]).items():
        names = own[0]["hparams"]
        found[algorithm] = [name for name in names if len({str(row["hparams"][name]) for row in own}) > 1]
    return found


def _parameters(row: dict[str, Any], varying: dict[str, list[str]]) -> str:
    return " ".join(f"{name}={text(row['hparams'][name])}" for name in varying[row["algorithm"]])
