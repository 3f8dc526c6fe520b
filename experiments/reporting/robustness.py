"""What is left of each method under attack: tables of the worst case over attacks, and a heat map."""

import math
from collections.abc import Iterable, Sequence
from pathlib import Path

from experiments.execution.folder import averaged
from experiments.reporting import pictures
from experiments.reporting.attacked import (
    LEFT,
    NEAR,
    OF_CLIENTS,
    Outcome,
    Setting,
    chosen_on,
    collapses,
    method_of,
    recovery,
    same_clients,
    shares,
    tuned,
    without_lie,
)
from experiments.reporting.attacked import settings_of as settings_of  # what a report is made of
from experiments.reporting.selection import ON_TEST
from experiments.reporting.series import grouped
from experiments.reporting.tables import Plain, plain_markdown

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
SAME_HEAD = ("method", "attack", "accuracy", "variance", "worst 5 %", "minority")
COLLAPSED = (
    f"collapses: a seed diverged, or the honest clients are left with less than {100 * LEFT:g} % of the accuracy that "
    "they have without the attack"
)
NOTES = (
    "accuracy in %, variance, worst 5 % and the minority's accuracy are of honest clients, `without attack` is of all; "
    "the parameters of a method are those with the best worst case",
    "without → with: the honest clients of the attacked run, in the run of the same seed without the attack and in the "
    "attacked one",
    f"rounds to recover: the round from which on its accuracy, the mean of as many evaluations as figures are, stays "
    f"within {NEAR:g} points of what the same clients have without the attack",
    COLLAPSED,
)
OLDER = (
    "what clients have without the attack, and what is compared with it, is of the last evaluation alone: these rows "
    "are older than those that have single clients in each evaluation that counts"
)
ON_VALIDATION = "the choice used validation data, not the test data that the tables show"
AT_MOST = "≤: not all attacks were run yet, so that the worst case may be lower"
DIVERGED = "diverged"  # one seed or more, so that there is no mean over seeds
NAMED = 3  # attacks that a note on what is missing names


def report(settings: Sequence[Setting], title: str) -> str:
    """Tables in Markdown: two of the worst case for each share of attackers, then one of what collapses."""
    made = [table for share in filter(None, shares(settings)) for table in _tables(settings, share, title)]
    last = _what_collapses(settings, title) if made else Plain(title, HEAD, ())
    return "\n".join(map(plain_markdown, [*made, last._replace(notes=_notes(settings))]))


def draw(settings: Sequence[Setting], title: str, out: Path) -> None:
    """The heat maps: the worst case by share of attackers, and each attack at the largest share."""
    every, methods = shares(settings), list(dict.fromkeys(setting.method for setting in settings))[::-1]
    chosen = [{setting.method: setting for setting in tuned(settings, share)} for share in every]
    attacks = _lies_beside(dict.fromkeys(attack for setting in settings for attack in setting.at(every[-1])))

    def worst(method: str, here: dict[str, Setting], share: float) -> tuple[float, str]:
        return _cell(here[method].worst(share)[1], here[method]) if method in here else _cell(None)

    def under(method: str, attack: str) -> tuple[float, str]:
        return _cell(chosen[-1][method].outcomes.get((attack, every[-1])) if method in chosen[-1] else None)

    by_share = [[worst(method, *at) for at in zip(chosen, every, strict=True)] for method in methods]
    by_attack = [[under(method, attack) for attack in attacks] for method in methods]
    panels = {
        "worst case over attacks": ([*map(_share, every)], by_share),
        f"each attack, {_share(every[-1])}": (attacks, by_attack),
    }
    pictures.heat_tables(panels, methods, [title], "accuracy of honest clients, %", out)


def _tables(settings: Sequence[Setting], share: float, title: str) -> tuple[Plain, Plain]:
    title, chosen = f"{title}, {100 * share:g} % of the clients attack", tuned(settings, share)
    attacks = {attack for setting in settings for attack in setting.at(share)}
    same = f"{title}: the same clients without → with it"
    return (
        Plain(title, HEAD, [_line(setting, share, attacks) for setting in chosen]),
        Plain(same, SAME_HEAD, [_same_line(setting, share) for setting in chosen]),
    )


def _line(setting: Setting, share: float, attacks: set[str]) -> tuple[str, ...]:
    attack, outcome = setting.worst(share)
    recovered = recovery(outcome, setting.without)
    at_most = "≤ " * (setting.at(share).keys() != attacks)
    return (
        f"`{setting.label}`",
        _number(setting.without.accuracy if setting.without else math.nan),
        DIVERGED if math.isnan(outcome.accuracy) else at_most + _number(outcome.accuracy),
        f"`{attack}`",
        _number(outcome.figure("variance"), 0),
        _number(outcome.figure("worst5")),
        _number(outcome.figure("minority_accuracy")),
        _number(outcome.mean("attacker_weight"), 2),
        "never" if recovered is None else _number(recovered, 0),
    )


def _same_line(setting: Setting, share: float) -> tuple[str, ...]:
    attack, outcome = setting.worst(share)
    pairs = same_clients(outcome, setting.without)
    digits = {"variance": 0}
    told = {metric: " → ".join(_number(one, digits.get(metric, 1)) for one in pairs[metric]) for metric in OF_CLIENTS}
    if math.isnan(outcome.accuracy):
        told["mean"] = f"{_number(pairs['mean'][0])} → {DIVERGED}"
    return f"`{setting.label}`", f"`{attack}`", *told.values()


def _what_collapses(settings: Sequence[Setting], title: str) -> Plain:
    every = [*filter(None, shares(settings))]

    def told(setting: Setting | None, share: float) -> str:
        if setting is None:
            return "not run"
        found = collapses(setting, share)
        return f"{len(found) or 'none'} of {len(setting.at(share))}" + ": " * bool(found) + ", ".join(found)

    by_share = [{setting.method: setting for setting in tuned(settings, share)} for share in every]
    methods = dict.fromkeys(setting.method for setting in settings)
    rows = [
        (f"`{method}`", *(told(of.get(method), share) for of, share in zip(by_share, every, strict=True)))
        for method in methods
    ]
    return Plain(f"{title}: under which attacks methods collapse", ("method", *map(_share, every)), rows)


def _lies_beside(attacks: Iterable[str]) -> list[str]:
    """Attacks that differ only in their lie, one beside the other."""
    found = grouped(attacks, without_lie)
    return [attack for alike in found.values() for attack in alike]


def _share(share: float) -> str:
    return f"f = {100 * share:g} %"


def _notes(settings: Sequence[Setting]) -> list[str]:
    """What a reader has to know of the figures: what they are, how parameters were chosen, what was left out."""
    every = list(filter(None, shares(settings)))
    used = [run for setting in settings for outcome in setting.outcomes.values() for run in outcome.runs]
    most = max((averaged(len(run.traffic)) for run in used), default=1)
    figures = f"figures average the last {most} evaluations of a seed" if most > 1 else ""
    whole = [run for run in used if run.diverged is None]  # one that diverged has fewer, of whatever age
    older = OLDER * any(len(curve) < averaged(len(run.traffic)) for run in whole for curve in run.client_curve.values())
    choices = len({setting.method for setting in settings}) < len(settings)
    on = {"test": ON_TEST, "validation": ON_VALIDATION}[chosen_on(settings)] if choices else ""
    gaps = missing(settings)
    incomplete = any({*one.at(f)} < {*other.at(f)} for f in every for one in tuned(settings, f) for other in settings)
    return [note for note in (*NOTES, figures, older, on, _left_out(settings), AT_MOST * incomplete, *gaps) if note]


def missing(settings: Sequence[Setting]) -> list[str]:
    """What an incomplete study lacks: what is planned and not begun, and what each setting has not of the others'."""
    runs = [run for setting in settings for outcome in setting.outcomes.values() for run in outcome.runs]
    sources = dict.fromkeys(run.source for run in runs)
    begun = {method_of(run.algorithm, run.settings["aggregator"]) for run in runs}
    planned = dict.fromkeys(method_of(*method) for source in sources for method in source.planned)
    lines = [f"not complete: {source.missing}" for source in sources if source.missing]
    if later := [f"`{method}`" for method in planned if method not in begun]:
        lines.append(f"not begun: {', '.join(later)}")
    attacks = dict.fromkeys(attack for setting in settings for attack in setting.outcomes)
    seeds = {run.seed for run in runs}
    for setting in settings:
        lacking = [_told(*attack) for attack in attacks if attack not in setting.outcomes]
        if lacking:
            lines.append(f"not run yet: `{setting.label}` {_some(lacking)}")
        few = [_told(*key) for key, outcome in setting.outcomes.items() if outcome.seeds != seeds]
        if few:
            lines.append(f"fewer seeds than others: `{setting.label}` {_some(few)}")
    return lines


def _left_out(settings: Sequence[Setting]) -> str:
    """Where replies were not finite and left out, with their share of all; "" if nowhere."""
    found: dict[tuple[str, str], list[str]] = {}
    for share in filter(None, shares(settings)):
        for setting in tuned(settings, share):
            for attack, outcome in setting.at(share).items():
                if outcome.excluded > 0:
                    told = f"{100 * outcome.excluded:.1f} % at {_share(share)}"
                    found.setdefault((setting.method, attack), []).append(told)
    each = [f"`{method}` under `{attack}` {', '.join(told)}" for (method, attack), told in found.items()]
    return f"left out because they were not finite, of all replies: {'; '.join(each)}" if each else ""


def _told(attack: str, share: float) -> str:
    return f"under `{attack}` ({_share(share)})" if share else "without attack"


def _some(names: Sequence[str]) -> str:
    more = f", and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return ", ".join(names[:NAMED]) + more


def _cell(outcome: Outcome | None, setting: Setting | None = None) -> tuple[float, str]:
    """A number, and what is written below it or in its place."""
    if outcome is None:
        return math.nan, "not run"
    below = f"\n{setting.parameters}" if setting and setting.parameters else ""
    return (-math.inf, f"div.{below}") if math.isnan(outcome.accuracy) else (outcome.accuracy, below)


def _number(value: float, digits: int = 1) -> str:
    return "n/a" if math.isnan(value) else f"{value:.{digits}f}"
