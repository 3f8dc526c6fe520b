"""The paper's claims, numbered as in FINDINGS.md, and which rows of which tables speak to each.

What a claim says, in our words, and our verdict stand in FINDINGS.md. The figures there are made from results/ by
`docs/generate.py`, so that they agree to the digit.
"""

from typing import NamedTuple

from experiments.paper import comparison
from experiments.paper.comparison import Cell, Sheet
from experiments.paper.evidence import Evidence
from experiments.paper.presets import presets
from experiments.reporting.columns import COLUMNS
from experiments.reporting.series import View
from experiments.reporting.statistics import judged, paired

VERDICTS = ("holds", "holds under conditions", "does not hold", "not testable here", "not yet judged")
OPEN = "not yet judged"
FEDAVG, EBA = "fedavg", "fedeba_plus tau=0.1 alpha=0.9"
ANGLES = tuple(f"{EBA} theta={angle}" for angle in (0, 15, 30, 45, 90))
FASHION, CIFAR = "fashion_mnist_mlp", "cifar10_cnn"


class Witness(NamedTuple):
    """Rows of a table that speak to a claim."""

    table: str
    task: str
    rows: tuple[str, ...]
    measures: tuple[str, ...]
    control: str = ""  # a row that the others are compared with, beside FedAvg


BOTH = ("mean", "variance")
FIRST = (*BOTH, "variance_corrected", "worst5")
EBA_BY_TAU = tuple(f"fedeba_plus tau={tau} alpha=0.9" for tau in ("0.05", "0.1", "0.5", "1", "5"))
EBA_BY_ALPHA = (
    "fedeba tau=0.1",
    *(f"fedeba_plus tau=0.1 alpha={alpha}" for alpha in ("0.1", "0.3", "0.5", "0.7", "0.9")),
)
PRAC = tuple(f"prac_fedeba_plus tau={tau} alpha=0.9{theta}" for theta in ("", " theta=15") for tau in ("0.1", "1", "5"))
PRAC += tuple(f"prac_fedeba_plus tau={tau} alpha=0.9 theta=90" for tau in ("0.1", "1"))
PRAC += ("prac_fedeba_plus tau=0.1 alpha=0.9 server=sgd(0.19)",)
FAIR = (
    *("qffl q=0.5", "fedmgda_plus eps=0.03", "propfair M=0.2 eps=0.2", "term t=0.1", "aaggff", "ditto lam=0.5"),
    *("focus", "lp_proj", "rank_core_fed"),
)
CONTROLS = ("fedavg lr=0.019", "fedavg server=sgd(0.19)")  # steps as short as FedEBA+'s
ADDED = ("afl gamma=0.7", "fedfv alpha=0.1 window=10")  # to the paper's first table, by us
COMPARED_BY_FAA = ("afl gamma=0.7", "qffl q=0.5", "fedfv alpha=0.1 window=10", "focus")
BY_OTHER_WEIGHTS = ("fedwavg alpha=0.3", "feddisco a=0.1 b=0.1")
COMPONENTS = (FEDAVG, "fedeba tau=0.1", "fedavg_align tau=0.1 alpha=0.9", EBA)

CLAIMS: dict[int, tuple[Witness, ...]] = {
    1: tuple(Witness("performance", task, (FEDAVG, EBA), FIRST) for task in (FASHION, CIFAR)),
    2: (
        Witness("performance", FASHION, ("fedsgd", *FAIR, *ADDED, EBA), BOTH, EBA),
        Witness("performance", CIFAR, ("fedsgd", *FAIR, EBA), BOTH, EBA),
    ),
    3: (Witness("performance", FASHION, (*FAIR, *ADDED), BOTH),),
    4: (Witness("performance", FASHION, (FEDAVG, CONTROLS[1], *PRAC), BOTH, CONTROLS[1]),),
    5: (),
    6: (Witness("performance", FASHION, (FEDAVG, *CONTROLS, EBA, f"{EBA} fair_scale=1"), BOTH, CONTROLS[1]),),
    7: (Witness("ablation_components", FASHION, COMPONENTS, BOTH, EBA),),
    8: (Witness("tau_alpha", FASHION, EBA_BY_ALPHA, BOTH),),
    9: (Witness("tau_alpha", FASHION, EBA_BY_TAU, BOTH, "fedeba_plus tau=1 alpha=0.9"),),
    10: tuple(Witness("theta", task, ANGLES, (*BOTH, "additional_cost")) for task in (FASHION, CIFAR)),
    11: (Witness("cv", FASHION, (FEDAVG, "qffl q=0.5", "fedfv alpha=0.1 window=10", EBA), ("cv",), EBA),),
    12: (
        Witness("momentum", FASHION, (f"{FEDAVG} server=momentum(0.9)", f"{EBA} server=momentum(0.9)"), BOTH),
        Witness("varp", FASHION, (f"{FEDAVG} server=varp(1.0)", f"{EBA} server=varp(1.0)"), BOTH),
    ),
    13: (
        Witness(
            "noisy_labels", FASHION,
            tuple(f"{row} label_noise=0.5{lsr}" for lsr in ("", " objective=lsr") for row in (FEDAVG, EBA)), BOTH,
        ),
    ),
    14: (Witness("dp", FASHION, (EBA, *(f"{EBA} privacy=paper({sigma})" for sigma in (2, 5, 10, 50))), ("mean",)),),
    15: (),
    16: (),
    17: tuple(
        Witness(f"cnn_{kind}", f"cifar10_cnn_{size}", (FEDAVG, EBA), BOTH)
        for kind, size in (("widths", "narrow"), ("widths", "wide"), ("depths", "shallow"), ("depths", "deep"))
    ),
    18: (),
    19: (),
    20: (),
    21: (Witness("faa", FASHION, (FEDAVG, *COMPARED_BY_FAA, EBA), ("faa",), EBA),),
    22: (Witness("aggregation_baselines", FASHION, (FEDAVG, *BY_OTHER_WEIGHTS, "fedeba tau=0.1", EBA), BOTH, EBA),),
}  # fmt: skip
"""By number. Claims without witnesses are on data that cannot be had, on figures, or on arithmetic."""


def sheet(table: str, task: str, found: Evidence, view: View = comparison.VIEW) -> Sheet:
    """A table on a task, with all seeds that there are."""
    preset = presets()[table]
    rows = [row for row in preset.rows if row.task == task]
    return comparison.sheet(preset, task, rows, lambda row: comparison.there(row, found), found, view=view)


def cells(witness: Witness, made: Sheet) -> list[tuple[str, str, Cell]]:
    """What the sheet of a witness has on it: (row, measure, cell)."""
    by_label = {entry.row.label: entry.cells for entry in made.entries}
    return [
        (row, measure, by_label[row][measure])
        for row in witness.rows
        for measure in witness.measures
        if measure in by_label[row]
    ]


def lines(witness: Witness, made: Sheet) -> list[tuple[str, ...]]:
    """The same as texts: row, measure, seeds, ours, paper, FedAvg, and the control if the witness has one."""
    written: list[tuple[str, ...]] = []
    controlled = _against_control(witness, made)
    for row, measure, cell in cells(witness, made):
        column = COLUMNS[measure]
        ours, *others = comparison.texts(cell, column.digits)
        paper = next((text.removeprefix("paper ") for text in others if text.startswith("paper ")), "")
        compared = cell.against if others else None  # a row that diverged has none
        against = comparison.verdict_text(compared, column.digits, cell.baseline) if compared else ""
        control = (controlled.get((row, measure), ""),) if witness.control else ()
        written.append((row, column.title, str(cell.seeds), ours, paper, against, *control))
    return written


def folders(witness: Witness, made: Sheet) -> list[str]:
    """The names of the folders whose runs a witness shows."""
    shown = [entry.setting for entry in made.entries if entry.row.label in witness.rows and entry.setting]
    return list(dict.fromkeys(run.source.folder.name for setting in shown for run in setting.runs))


def _against_control(witness: Witness, made: Sheet) -> dict[tuple[str, str], str]:
    """How the rows of a witness compare with its control, corrected over them: by row and measure."""
    by_label = {entry.row.label: entry for entry in made.entries if entry.row.label in witness.rows}
    control = by_label.get(witness.control)
    if control is None or control.setting is None:
        return {}
    found = {}
    for measure in witness.measures:
        column, of_control = COLUMNS[measure], control.setting.values(measure, comparison.VIEW)
        others = {label: entry.setting for label, entry in by_label.items() if entry.setting and entry is not control}
        compared = judged([
            paired(setting.values(measure, comparison.VIEW), of_control, higher=column.higher_is_better)
            for setting in others.values()
        ])  # fmt: skip
        for label, one in zip(others, compared, strict=True):
            assert one is not None
            found[label, measure] = comparison.verdict_text(comparison.scaled(one, column), column.digits)
    return found


def command(witness: Witness) -> str:
    """What shows its rows with all committed seeds; without --norun it runs what is missing."""
    return f".venv/bin/python -m experiments.reproduce --table={witness.table} --panel={witness.task} --norun"
