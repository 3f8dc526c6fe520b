"""What the paper calls its methods and options, and what we call them: a printed line becomes a row that can be run.

A row is written as the command line has it, one axis after the other:

    fedeba_plus; tau=0.1; theta=0,15,30     three rows
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

from experiments.command import grids, hparams
from experiments.command.runs import Run
from experiments.command.tasks import FIELDS, RATES
from experiments.paper.printed import Line


class Method(NamedTuple):
    """A method of the paper: its name here, its hyper-parameters by theirs and ours, and what holds if none is said."""

    algorithm: str
    names: dict[str, str]
    usual: dict[str, str]


METHODS = {
    "FedAvg": Method("fedavg", {}, {}),
    "FedSGD": Method("fedsgd", {}, {}),
    "FedProx": Method("fedprox", {"mu": "mu"}, {"mu": "0.1"}),
    "q-FFL": Method("qffl", {"q": "q"}, {"q": "0.5"}),
    "AFL": Method("afl", {"lambda": "gamma"}, {"gamma": "0.7"}),
    "TERM": Method("term", {"T": "t"}, {"t": "0.1"}),
    "PropFair": Method("propfair", {"M": "M", "threshold": "eps"}, {"M": "0.2", "eps": "0.2"}),
    "FedMGDA+": Method("fedmgda_plus", {"epsilon": "eps"}, {"eps": "0.03"}),
    "FedFV": Method("fedfv", {"alpha": "alpha", "tau_fv": "window"}, {"alpha": "0.1", "window": "10"}),
    "Ditto": Method("ditto", {"lambda": "lam"}, {"lam": "0.5"}),
    "FOCUS": Method("focus", {}, {}),
    "lp-proj": Method("lp_proj", {}, {}),
    "Rank-Core-Fed": Method("rank_core_fed", {}, {}),
    "AAggFF": Method("aaggff", {}, {}),
    "FedwAvg": Method("fedwavg", {"alpha": "alpha"}, {"alpha": "0.3"}),
    "FedDISCO": Method("feddisco", {"a": "a", "b": "b"}, {"a": "0.1", "b": "0.1"}),
    "FedEBA": Method("fedeba", {"tau": "tau"}, {"tau": "0.1"}),
    "FedEBA+": Method("fedeba_plus", {"tau": "tau", "alpha": "alpha"}, {"tau": "0.1", "alpha": "0.9"}),
    "Prac-FedEBA+": Method("prac_fedeba_plus", {"tau": "tau", "alpha": "alpha"}, {"tau": "0.1", "alpha": "0.9"}),
    "FedAvg+alignment": Method("fedavg_align", {"tau": "tau", "alpha": "alpha"}, {"tau": "0.1", "alpha": "0.9"}),
}

TASKS = {
    ("fashion_mnist", "mlp"): "fashion_mnist_mlp",
    ("cifar10", "cnn"): "cifar10_cnn",
    ("cifar10", "mlp"): "cifar10_mlp",
    ("cifar10", "cnn_narrower"): "cifar10_cnn_narrow",
    ("cifar10", "cnn_wider"): "cifar10_cnn_wide",
    ("cifar10", "cnn_shallower"): "cifar10_cnn_shallow",
    ("cifar10", "cnn_deeper"): "cifar10_cnn_deep",
    ("cifar100", "resnet18"): "cifar100_resnet18",
    ("tiny_imagenet", "mobilenet_v2"): "tiny_imagenet_mobilenet_v2",
    ("tiny_imagenet", "resnet"): "tiny_imagenet_resnet18",
    ("reddit", None): "reddit_lstm",
}

MEASURES = {
    "global_acc": "mean",
    "variance": "variance",
    "std": "std",
    "worst5": "worst5",
    "best5": "best5",
    "additional_cost": "additional_cost",
    "cv": "cv",
    "angle_deg": "angle",
    "kl": "kl",
    "faa": "faa",
}
"""The paper's columns by our names. Left out: cv_improvement, which is the difference of C_V."""

NOISE = {"fedeba_plus": {"privacy": "paper({:g})"}, "fedavg": {"privacy": "client({:g})", "weighting": "uniform"}}
NO_NOISE = "the paper does not say what is noised, and the method has no mode of privacy here"


class Row(NamedTuple):
    """A setting over seeds, and what the paper prints for it."""

    task: str
    algorithm: str
    given: dict[str, str]  # texts of hyper-parameters and of fields of the task
    line: Line | None = None
    impossible: str = ""  # why it cannot be run

    @property
    def label(self) -> str:
        return " ".join([self.algorithm, *(f"{name}={value}" for name, value in self.given.items())])

    @property
    def options(self) -> dict[str, str]:
        """What of the task the row changes."""
        own = hparams.known(self.algorithm)
        return {name: value for name, value in self.given.items() if name in FIELDS and name not in own}

    @property
    def folder(self) -> str:
        """The folder that its runs belong into: of the task, or of the first option, but for rates, that it changes."""
        return "-".join([self.task, *[name for name in self.options if name not in RATES][:1]])

    def runs(self, seeds: Sequence[int], changes: dict[str, Any] | None = None) -> list[Run]:
        """Its runs; fields of the task may be changed. Nothing is chosen, so no data is held back for validation."""
        return grids.make(
            [self.algorithm],
            [self.given],
            task_name=self.task,
            changes=changes or {},
            seeds=seeds,
            flag=f"the row {self.label!r}",
            validation=0.0,
        )


def written(task: str, text: str) -> list[Row]:
    """The rows that a text stands for: ALGORITHM; NAME=VALUE,...; NAME=VALUE,..."""
    algorithm, *axes = (part.strip() for part in text.split(";"))
    assignments = grids.grid([grids.parse_axis(axis) for axis in axes])
    return [Row(task, algorithm, assignment) for assignment in assignments]


def translated(line: Line) -> Row:
    """A printed line as a row of ours.

    Notes:
      FedEBA+ with alpha = 0 is FedEBA, whose runs are cheaper.
    """
    method = METHODS[line.method]
    told = line.inferred | line.hparams
    given = method.usual | {ours: f"{told[theirs]:g}" for theirs, ours in method.names.items() if theirs in told}
    algorithm = method.algorithm
    if algorithm == "fedeba_plus" and float(given["alpha"]) == 0:
        algorithm, given = "fedeba", {"tau": given["tau"]}
    row = Row(TASKS[line.dataset, line.model], algorithm, given, line)
    for option, value in line.options.items():
        row = _with_option(row, option, value)
    return row


def _with_option(row: Row, option: str, value: float) -> Row:
    added = {
        "theta_deg": {"theta": f"{value:g}"},
        "momentum": {"server": f"momentum({value:g})"},
        "varp": {"server": "varp(1.0)"},
        "noise": {"label_noise": f"{value:g}"},
        "lsr": {"objective": "lsr"},
        "dirichlet": {"partition": "dirichlet", "dirichlet": f"{value:g}"},
    }
    if option != "dp_sigma":
        return row._replace(given=row.given | added[option])
    if value == 0:
        return row
    impossible = "" if row.algorithm in NOISE else NO_NOISE
    noise = NOISE.get(row.algorithm, {"privacy": "client({:g})"})
    given = row.given | {name: text.format(value) for name, text in noise.items()}
    return row._replace(given=given, impossible=impossible)
