"""What `experiments.theory` counted, as results/ has it."""

import functools

from docs.parts import ROOT
from experiments.execution import folder
from experiments.paper import evidence, proofs
from experiments.reporting import tables
from experiments.reporting.tables import grid

FIGURES = evidence.RESULTS_DIR / "theory" / proofs.FILE
COMMAND = ".venv/bin/python -m experiments.theory --out=runs/theory"


@functools.cache
def record() -> proofs.Record:
    """What `experiments.theory` counted, as results/ has it."""
    return proofs.read(ROOT / FIGURES)


def plain_grid(table: tables.Plain) -> str:
    """A table of texts without its title."""
    head, *rows = [list(map(tables.markdown, row)) for row in (table.head, *table.rows)]
    return grid(head, rows)


def origin() -> str:
    """Which command made the figures on theory, where, and of which code."""
    made = record()
    where = made.environment
    return (
        f"Figures of `{FIGURES}`, made by `{COMMAND}`: {made.federations:,} federations for each cell, random "
        f"seed {made.random_seed}; commit {where['commit'][:10]}, {folder.told_machine(where)}."
    )


def statements() -> str:
    """Every statement of the paper's theory, with a verdict."""
    return plain_grid(proofs.claims_table(proofs.judged(record().figures)))


def maps() -> str:
    """Shares of federations that FedEBA+ makes fairer, setting by setting."""
    made = [proofs.map_table(name, one) for name, one in record().figures.maps.items()]
    return "\n\n".join(f"{table.title[0].upper()}{table.title[1:]}:\n\n{plain_grid(table)}" for table in made)


def toy() -> str:
    """The toy case, and the temperatures that matter there."""
    figures = record().figures
    average, at_one, *_ = figures.cases
    tau = {name: f"{value:.3f}" for name, value in figures.crossings.items()}
    return (
        f"{plain_grid(proofs.toy_table(figures.cases))}\n\nAt tau = 1, which the paper names, the variance is "
        f"{at_one.variance:.2f} against FedAvg's {average.variance:.2f}. The printed x = -0.1 belongs to tau = "
        f"{tau['as_printed']}; every tau above {tau['fairer_above']} is fairer than FedAvg, and at tau = "
        f"{tau['fairest']} both losses are equal."
    )


def temperature() -> str:
    """How far weights are from the closed form, and from the ends of the temperature."""
    unique, ends = record().figures.unique, record().figures.ends
    return (
        f"{unique.problems} random problems, each from {unique.starts} random starts: weights of two starts differ by "
        f"{unique.between_starts:.1g} at most, and from exp(F_i / tau) by {unique.to_closed_form:.1g}. At tau = 1e6 "
        f"the weights are the prior's to {max(ends.to_uniform, ends.to_prior):.1g}, and at tau = 1e-3 the worst client "
        f"has {ends.on_the_worst:.4f} or more ({ends.problems} vectors of losses)."
    )


def course() -> str:
    """Squared gradients over rounds."""
    return plain_grid(proofs.course_table(record().figures.course))


def claim(number: int) -> str:
    """What the committed figures say to a claim on theory."""
    of_claim = {18: proofs.on_fairness, 19: proofs.on_convergence}[number]
    return f"{origin()}\n\n{plain_grid(proofs.claims_table(of_claim(record().figures)))}"
