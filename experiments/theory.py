"""The theory of FedEBA+ put to the test: the toy case, the variance theorem, the temperature, and convergence.

    python -m experiments.theory --out=runs/theory

For many random federations of regression and strongly convex clients it counts how often FedEBA+'s variance is below
FedAvg's, over temperatures and heterogeneity; see docs/theory.md. It prints tables and what each claim of the paper
comes to, and writes theory.json, theory.md and pictures to --out. The default of --out is runs/theory.
"""

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np
from absl import flags
from rich.console import Console

from experiments.claims import convergence, fairness, temperature, toy
from experiments.claims.convergence import Course
from experiments.claims.fairness import Map
from experiments.command import cli
from experiments.command import flags as common_flags
from experiments.paper import proofs
from experiments.reporting import tables
from experiments.reporting.pictures import shaded
from experiments.reporting.style import drawn, figure, line

FLAGS = flags.FLAGS
flags.DEFINE_integer("federations", 2000, "Random federations of each cell of a map.", lower_bound=1)
flags.DEFINE_integer("courses", 16, "Random federations that convergence is measured on.", lower_bound=1)
flags.DEFINE_integer("longest", 16384, "Rounds of the longest course; the others have a quarter, ...", lower_bound=16)
common_flags.declare("out", "random_seed")
COURSES = 4


def main() -> None:
    jax.config.update("jax_enable_x64", True)  # differences of variances at a large tau are small
    seed = common_flags.seed("random_seed", FLAGS.random_seed)
    out = Path(FLAGS.out or "runs/theory")
    out.mkdir(parents=True, exist_ok=True)
    key = jax.random.key(seed)
    lengths = tuple(FLAGS.longest // 4**n for n in reversed(range(COURSES)))
    found = proofs.Figures(
        cases=toy.cases(),
        crossings=toy.crossings(),
        maps={
            name: fairness.fairness_map(setting, key, FLAGS.federations, fairness.SPREADS, fairness.TAUS)
            for name, setting in fairness.SETTINGS.items()
        },
        two=fairness.two_equal_clients(1.0),
        three=fairness.three_values(),
        unique=temperature.uniqueness(seed),
        ends=temperature.limits(seed),
        course=convergence.course(jax.random.fold_in(key, 1), FLAGS.courses, lengths),
    )
    proofs.write(out / proofs.FILE, found, federations=FLAGS.federations, random_seed=seed)
    made = proofs.tables(found)
    (out / "theory.md").write_text("\n".join(map(tables.plain_markdown, made)))
    for table in made:
        tables.show_plain(table, Console(highlight=False, width=160))
    drawn(out / "fairness.png", partial(draw_maps, found.maps))
    drawn(out / "convergence.png", partial(draw_course, found.course))
    print(f"figures: {out / proofs.FILE}; tables: {out / 'theory.md'}")


def draw_maps(maps: Mapping[str, Map], out: Path) -> None:
    """One column per setting; above by Definition 3.1, below in the proof's form."""
    title = "% of random federations in which FedEBA's variance is below FedAvg's"
    with figure(out, (title, "bright: FedEBA is fairer"), 4.2 * len(maps), 6, panes=(2, len(maps))) as panes:
        for n, (name, one) in enumerate(maps.items()):
            for row, (form, shares) in enumerate((("Definition 3.1", one.definition), ("weighted", one.proof))):
                _heat(panes[row * len(maps) + n], shares, f"{fairness.SETTINGS[name].title}\n{form}")


def _heat(pane: Any, shares: np.ndarray, title: str) -> None:
    shaded(pane, shares, lambda i, j: f"{100 * shares[i, j]:.0f}", 0, 1)
    pane.set_xticks(range(len(fairness.TAUS)), [f"{tau:g}" for tau in fairness.TAUS], fontsize=8)
    pane.set_yticks(range(len(fairness.SPREADS)), [f"{spread:g}" for spread in fairness.SPREADS], fontsize=8)
    pane.set(xlabel="tau", ylabel="spread of the optima")
    pane.set_title(title, fontsize=9)


def draw_course(course: Course, out: Path) -> None:
    with figure(out, ("smallest squared gradient over T rounds, strongly convex clients",), 9.5, 4.5, (1, 2)) as panes:
        for pane, values, title in (
            (panes[0], course.own, "of the objective of the round's weights"),
            (panes[1], course.average, "of the mean loss over clients"),
        ):
            for n, (tau, own) in enumerate(zip(course.taus, values, strict=True)):
                pane.loglog(course.rounds, own, label=f"FedEBA, tau {tau:g}", **line(n, len(own)))
            if values is course.average:
                pane.loglog(course.rounds, course.fedavg, label="FedAvg", **line(len(course.taus), len(course.fedavg)))
            top = values[:, 0].max()
            reference = top * np.sqrt(course.rounds[0] / np.array(course.rounds))
            pane.loglog(course.rounds, reference, "k:", lw=1, label="1 / sqrt(T)")
            pane.set(xlabel="T", ylabel="min_t |gradient|^2")
            pane.set_title(title, fontsize=10)
            pane.legend(frameon=False, fontsize=8)


if __name__ == "__main__":
    cli.run(main)
