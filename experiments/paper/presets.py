"""One preset for each table and figure of the paper: which rows it has, on which tasks, and what is drawn of them.

The rows of tables follow from what the paper prints (`rows.translated`). Here is what is added to them, and the rows of
figures. A row is written as in `rows.written`. `experiments.reproduce --list` shows what each preset needs and costs.
"""

import functools
from typing import NamedTuple

from experiments.paper import printed
from experiments.paper.rows import MEASURES, Row, translated, written

SEEDS = 6  # that a preset asks for unless it says otherwise: with fewer, no verdict is possible

# Rows of ours beside the paper's, by table and task.
BESIDE: dict[str, dict[str, tuple[str, ...]]] = {
    "performance": {
        "fashion_mnist_mlp": (
            # Controls for FedEBA+'s step: of K local steps (1 - alpha) is left, of the fair part alpha / K is added.
            "fedavg; lr=0.019",  # as a shorter local step
            "fedavg; server=sgd(0.19)",  # as a shorter step of the server
            "fedfv; alpha=0.1; window=10",
            "fedeba; tau=0.1,1",
            "fedeba_plus; tau=0.5,1; alpha=0.9",
            "fedeba_plus; tau=0.1,1; alpha=0.9; fair_scale=1",  # the literal reading
            "prac_fedeba_plus; tau=1,5; alpha=0.9",
            "prac_fedeba_plus; tau=0.1,1,5; alpha=0.9; theta=15",
            "prac_fedeba_plus; tau=0.1,1; alpha=0.9; theta=90",  # the gate never opens
            "prac_fedeba_plus; tau=0.1; alpha=0.9; server=sgd(0.19)",  # the fair part about once, as FedEBA+ has it
            "afl; gamma=0.7",
            "fedprox; mu=0.1",
            "fedavg_align; tau=0.1; alpha=0.9",
            "mime_lite",
            "corefed",
            "fedwavg; alpha=0.3",
            "feddisco; a=0.1; b=0.1",
        ),
    },
    # What each client reaches by itself, which FAA measures losses from.
    "faa": {"fashion_mnist_mlp": ("local_only",), "cifar10_cnn": ("local_only",)},
    "tau_alpha": {"fashion_mnist_mlp": ("fedeba; tau=0.1", "fedeba_plus; tau=0.1; alpha=0.5,0.9")},
}
ANGLES = "fedeba_plus; tau=0.1; alpha=0.9; theta=0,15,30,45,90"
SCHEDULES = "anneal(1, 0.01),anneal(1, 0.01, shape=concave),anneal(1, 0.01, shape=convex)"
NOISY = (
    "fedeba_plus; tau=0.1; alpha=0.9",
    "fedeba_plus; tau=0.1; alpha=0.9; privacy=paper(2),paper(5),paper(10),paper(50)",
)
MIXTURES = "partition=dirichlet; dirichlet=0.1,0.3,0.5,0.8,1.0"


class Panel(NamedTuple):
    """A part of a figure.

    Kinds: plane (variance against accuracy), curves (a measure by round), bars (measures of each row), line (a measure
    over a parameter).
    """

    kind: str
    task: str
    rows: tuple[Row, ...]
    measures: tuple[str, ...]
    over: str = ""


class Preset(NamedTuple):
    """A table or a figure of the paper, as it is reproduced."""

    name: str
    kind: str  # table or figure
    what: str
    errata: tuple[str, ...]
    rows: tuple[Row, ...]  # each once
    measures: tuple[str, ...] = ()  # of a table, as the paper orders them
    panels: tuple[Panel, ...] = ()  # of a figure
    seeds: tuple[int, ...] = tuple(range(SEEDS))
    not_here: str = ""  # why no rows can show it

    @property
    def tasks(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(row.task for row in self.rows))


@functools.cache
def presets() -> dict[str, Preset]:
    """All by name, tables first, in the order of the paper."""
    found = [*map(_table, printed.tables().values()), *map(_figure, printed.figures().values())]
    return {preset.name: preset for preset in found}


@functools.cache
def rows_on(task: str) -> tuple[Row, ...]:
    """The rows of all tables on a task, each once."""
    return _once(
        [row for preset in presets().values() if preset.kind == "table" for row in preset.rows if row.task == task]
    )


def on_task(preset: Preset, task: str) -> Preset:
    """A preset with all its rows on another task, each once; what the paper prints is not for it."""
    panels = [
        panel._replace(task=task, rows=_once([row._replace(task=task, line=None) for row in panel.rows]))
        for panel in preset.panels
    ]
    unique = tuple(panel for number, panel in enumerate(panels) if panel not in panels[:number])
    rows = _once([row._replace(task=task, line=None) for row in preset.rows])
    return preset._replace(rows=rows, panels=unique, errata=())


def _table(table: printed.Table) -> Preset:
    rows = [translated(line) for line in table.lines]
    for task in dict.fromkeys(row.task for row in rows):
        added = _all(task, *BESIDE.get(table.id, {}).get(task, ()), "fedavg")  # what verdicts compare with
        rows += [row._replace(line=_printed_anywhere().get((task, row.label))) for row in added]
    heads = dict.fromkeys(line.likely.get(head, head) for line in table.lines for head in line.values)
    measures = tuple(MEASURES[head] for head in heads if head in MEASURES)
    return Preset(table.id, "table", table.what, table.errata, _once(rows), measures)


def _figure(figure: printed.Figure) -> Preset:
    panels, seeds = PANELS[figure.id](), tuple(range(SEEDS))
    if figure.id == "seed_failure_cifar100":
        seeds = (1234,)
    rows = _once([row for panel in panels for row in panel.rows])
    not_here = ELSEWHERE.get(figure.id, "")
    return Preset(figure.id, "figure", figure.what, figure.errata, rows, (), panels, seeds, not_here)


@functools.cache
def _printed_anywhere() -> dict[tuple[str, str], printed.Line]:
    """The first line of all tables that is printed for a setting, by task and label."""
    found: dict[tuple[str, str], printed.Line] = {}
    for table in printed.tables().values():
        for row in map(translated, table.lines):
            if row.line:
                found.setdefault((row.task, row.label), row.line)
    return found


def _all(task: str, *texts: str) -> tuple[Row, ...]:
    return tuple(row for text in texts for row in written(task, text))


def _once(rows: list[Row]) -> tuple[Row, ...]:
    """Rows that are the same setting once: the first, which has what the paper prints."""
    found: dict[tuple[str, str], Row] = {}
    for row in rows:
        found.setdefault((row.task, row.label), row)
    return tuple(found.values())


def _methods(task: str) -> tuple[Row, ...]:
    """The methods of the first table, at their settings there, on another task."""
    lines = [line for line in printed.tables()["performance"].lines if line.dataset == "fashion_mnist"]
    return _once([translated(line)._replace(task=task, line=None) for line in lines])


def _printed_rows(table: str, task: str) -> tuple[Row, ...]:
    rows = [translated(line) for line in printed.tables()[table].lines]
    return _once([row for row in rows if row.task == task])


def _angles(measure: str) -> tuple[Panel, ...]:
    return tuple(Panel("curves", task, _all(task, ANGLES), (measure,)) for task in ("cifar10_cnn", "fashion_mnist_mlp"))


def _alpha_tau() -> tuple[Panel, ...]:
    task = "fashion_mnist_mlp"  # the paper does not say which
    by_alpha = _all(task, "fedeba; tau=0.1", "fedeba_plus; tau=0.1; alpha=0.1,0.3,0.5,0.7,0.9")
    by_tau = _all(task, "fedeba_plus; tau=0.05,0.1,0.5,1,5; alpha=0.9")
    both = ("mean", "variance")
    return Panel("line", task, by_alpha, both, "alpha"), Panel("line", task, by_tau, both, "tau")


def _annealing() -> tuple[Panel, ...]:
    text = f"fedeba_plus; tau=1,{SCHEDULES}; alpha=0.9"
    return tuple(
        Panel("curves", task, _all(task, text), ("variance", "mean")) for task in ("fashion_mnist_mlp", "mnist_mlp")
    )


def _mixtures() -> tuple[Panel, ...]:
    task = "cifar10_cnn"
    rows = _all(task, f"fedavg; {MIXTURES}", f"fedeba_plus; tau=0.1; alpha=0.9; {MIXTURES}")
    return (Panel("line", task, rows, ("mean", "variance"), "dirichlet"),)


def _one_seed() -> tuple[Panel, ...]:
    task = "cifar100_resnet18"
    rows = _all(task, "fedavg", "fedmgda_plus; eps=0.03", "propfair; M=0.2; eps=0.2", "term; t=0.1")
    return (Panel("curves", task, rows, ("mean",)),)


def _bars(task: str) -> tuple[Panel, ...]:
    return (Panel("bars", task, _printed_rows("performance_hparams", task), ("worst5", "best5")),)


def _by_method(kind: str, *measures: str) -> tuple[Panel, ...]:
    return tuple(Panel(kind, task, _methods(task), measures) for task in ("mnist_mlp", "cifar10_cnn"))


PANELS = {
    "toy_case": lambda: (),
    "gradient_alignment_sketch": lambda: (),
    "fairness_and_convergence": lambda: (*_by_method("plane", "mean", "variance"), *_by_method("curves", "mean")),
    "variance_over_rounds": lambda: _by_method("curves", "variance"),
    "ablation_alpha_tau": _alpha_tau,
    "minmax_cifar10": lambda: _bars("cifar10_cnn"),
    "minmax_fashion_mnist": lambda: _bars("fashion_mnist_mlp"),
    "dp_curves": lambda: tuple(
        Panel("curves", task, _all(task, *NOISY), ("mean",)) for task in ("cifar10_cnn", "fashion_mnist_mlp")
    ),
    "tau_annealing": _annealing,
    "theta_global_acc": lambda: _angles("mean"),
    "theta_best5": lambda: _angles("best5"),
    "theta_worst5": lambda: _angles("worst5"),
    "theta_std": lambda: _angles("std"),
    "noniid_cifar10": _mixtures,
    "seed_failure_cifar100": _one_seed,
}
ELSEWHERE = {
    "toy_case": "it is arithmetic, not training: python -m experiments.theory",
    "gradient_alignment_sketch": "it is a drawing, without data",
}
