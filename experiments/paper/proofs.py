"""The paper's proofs, counted: what `experiments.theory` measures, as a file, as statements and as tables.

The tables of docs/theory.md and of the claims on theory in FINDINGS.md are made from the committed file.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from experiments.claims import fairness, statements
from experiments.claims.convergence import Course
from experiments.claims.fairness import Map
from experiments.claims.statements import Statement
from experiments.claims.temperature import Limits, Uniqueness
from experiments.claims.toy import Case
from experiments.execution import folder
from experiments.reporting.tables import Plain

FORMAT, VERSION = "fedeba_jax theory", 2
FILE = "theory.json"


class Figures(NamedTuple):
    """Everything that is measured."""

    cases: Sequence[Case]  # of the toy case
    crossings: Mapping[str, float]
    maps: Mapping[str, Map]  # by the name of the setting
    two: Mapping[str, float]
    three: Mapping[str, float]
    unique: Uniqueness
    ends: Limits
    course: Course


class Record(NamedTuple):
    """A file of figures."""

    federations: int
    random_seed: int
    environment: dict[str, Any]
    claims: list[Statement]  # as they were judged when the file was written
    figures: Figures


def on_fairness(figures: Figures) -> list[Statement]:
    """What the figures say to claim 18 of FINDINGS.md: the toy case, theorem 5.4 and the steps of its proof."""
    titles = {name: fairness.SETTINGS[name].title for name in figures.maps}
    return [
        *statements.toy(figures.cases, figures.crossings),
        *statements.fairness(figures.maps, titles, figures.two),
        statements.extension(figures.three),
    ]


def on_temperature(figures: Figures) -> list[Statement]:
    return statements.temperature(figures.unique, figures.ends)


def on_convergence(figures: Figures) -> list[Statement]:
    """What the figures say to claim 19 of FINDINGS.md: theorem 5.1."""
    return statements.convergence(figures.course)


def judged(figures: Figures) -> list[Statement]:
    """What the figures say to each statement of the paper."""
    return [*on_fairness(figures), *on_temperature(figures), *on_convergence(figures)]


def write(path: Path, figures: Figures, *, federations: int, random_seed: int) -> None:
    maps = {name: {"about": fairness.SETTINGS[name].about, **one._asdict()} for name, one in figures.maps.items()}
    content = {
        "format": FORMAT,
        "version": VERSION,
        "federations": federations,
        "random_seed": random_seed,
        "environment": folder.environment(),
        "claims": [claim._asdict() for claim in judged(figures)],
        "toy": {"cases": [case._asdict() for case in figures.cases], **figures.crossings},
        "fairness": {
            "taus": fairness.TAUS,
            "spreads": fairness.SPREADS,
            "two_equal_clients": figures.two,
            "three_values": figures.three,
            "maps": maps,
        },
        "uniqueness": figures.unique._asdict(),
        "limits": figures.ends._asdict(),
        "convergence": figures.course._asdict(),
    }
    folder.write_json(path, content)


def read(path: Path) -> Record:
    """A file that `write` wrote; an error, in one line, if it is another."""
    content = json.loads(path.read_text())
    if (content.get("format"), content.get("version")) != (FORMAT, VERSION):
        raise ValueError(f"{path} is no file of this version's experiments.theory; run it again")
    toy, shares, course = content["toy"], content["fairness"], content["convergence"]
    figures = Figures(
        cases=[Case(**case) for case in toy["cases"]],
        crossings={name: value for name, value in toy.items() if name != "cases"},
        maps={name: Map(*(np.array(one[field]) for field in Map._fields)) for name, one in shares["maps"].items()},
        two=shares["two_equal_clients"],
        three=shares["three_values"],
        unique=Uniqueness(**content["uniqueness"]),
        ends=Limits(**content["limits"]),
        course=Course(
            tuple(course["rounds"]),
            tuple(course["taus"]),
            *(np.array(course[field]) for field in ("own", "average", "fedavg")),
        ),
    )
    claims = [Statement(**claim) for claim in content["claims"]]
    return Record(content["federations"], content["random_seed"], content["environment"], claims, figures)


def toy_table(cases: Sequence[Case]) -> Plain:
    head = ["method", "weights", "x", "gap of losses", "variance", "entropy, bits"]
    rows = [
        [
            c.method,
            f"{c.weights[0]:.4f}, {c.weights[1]:.4f}",
            *(f"{n:z.4f}" for n in (c.x, c.gap, c.variance, c.entropy)),
        ]
        for c in cases
    ]
    return Plain("The toy case (appendix I.1)", head, rows)


def map_table(name: str, one: Map) -> Plain:
    """Shares in percent, by Definition 3.1 / by the proof's form."""
    head = ["spread", *(f"tau {tau:g}" for tau in fairness.TAUS)]
    rows = [
        [f"{spread:g}", *(f"{100 * a:.1f} / {100 * b:.1f}" for a, b in zip(*shares, strict=True))]
        for spread, *shares in zip(fairness.SPREADS, one.definition, one.proof, strict=True)
    ]
    title = (
        f"{fairness.SETTINGS[name].title}: % of federations with a variance below FedAvg's, by Definition 3.1 / proof"
    )
    return Plain(title, head, rows)


def course_table(course: Course) -> Plain:
    head = ["min_t of", *(f"T = {count}" for count in course.rounds), "slope"]

    def row(name: str, values: np.ndarray) -> list[str]:
        return [name, *(f"{value:.3g}" for value in values), f"{course.slopes(values):.2f}"]

    rows = [row(f"|sum p grad F|^2, tau {tau:g}", own) for tau, own in zip(course.taus, course.own, strict=True)]
    rows += [row(f"|mean grad F|^2, tau {tau:g}", own) for tau, own in zip(course.taus, course.average, strict=True)]
    return Plain("Gradients over T rounds (theorem 5.1)", head, [*rows, row("|mean grad F|^2, FedAvg", course.fedavg)])


def claims_table(claims: Sequence[Statement]) -> Plain:
    return Plain("Claims", ["claim", "place", "verdict", "evidence"], claims)


def tables(figures: Figures) -> list[Plain]:
    """Everything, as tables."""
    return [
        toy_table(figures.cases),
        *(map_table(name, one) for name, one in figures.maps.items()),
        course_table(figures.course),
        claims_table(judged(figures)),
    ]
