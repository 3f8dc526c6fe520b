"""Tasks by name: a data set, a model, and the paper's setting for them as the default."""

import dataclasses
from collections.abc import Mapping
from typing import Annotated, Any, get_args

import jax

from experiments.command import calls
from experiments.command.values import Call, Traced
from fedeba_jax.data.sources import DATASETS
from fedeba_jax.models import MODELS
from fedeba_jax.objectives import OBJECTIVES
from fedeba_jax.privacy import MODES
from fedeba_jax.server import SERVERS

OPTIONS: dict[str, calls.Table] = {"server": SERVERS, "objective": OBJECTIVES, "privacy": MODES}
"""Fields that are calls, as sgd(1.0), and the functions that each may name."""


def _option(field: str, written: str) -> Call:
    return calls.parse(OPTIONS[field], written, f"--{field}")


SGD, CROSS_ENTROPY = _option("server", "sgd(1.0)"), _option("objective", "cross_entropy")
NO_PRIVACY = _option("privacy", "none")


@dataclasses.dataclass(frozen=True)
class Task:
    """Everything about a run that is not the algorithm; each field is also a flag."""

    dataset: Annotated[str, "data set"]
    model: Annotated[str, "network"]
    clients: Annotated[int, "number of clients M"] = 100
    cohort_size: Annotated[int, "clients sampled in each round, n"] = 10
    steps: Annotated[int, "local SGD steps K"] = 10
    local_epochs: Annotated[int, "if not 0: passes over the local data instead of K steps"] = 0
    batch_size: Annotated[int, "examples of a local step B; 0 is the whole local set"] = 50
    lr: Annotated[float, "local learning rate of the first round"] = Traced(0.1)
    lr_decay: Annotated[float, "factor of the local learning rate from round to round; 1 turns it off"] = Traced(0.999)
    server: Annotated[Call, "how an update becomes the next model"] = SGD
    objective: Annotated[Call, "what clients minimise"] = CROSS_ENTROPY
    privacy: Annotated[Call, "what is clipped and noised, for examples or for clients"] = NO_PRIVACY
    partition: Annotated[str, "how training data is dealt"] = "shards"
    shards_per_client: Annotated[int, "label shards that each client gets (partition=shards)"] = 2
    dirichlet: Annotated[float, "concentration of the label mixtures (partition=dirichlet)"] = 0.1
    test_split: Annotated[str, "the official test set, dealt like the training data, or 20% of each client's own"] = (
        "auto"
    )
    label_noise: Annotated[float, "share of training (and validation) labels that are flipped to another"] = 0.0
    loss_eval: Annotated[str, "what the losses that weigh clients are measured on"] = "full"
    rounds: Annotated[int, "rounds T"] = 2000
    eval_every: Annotated[int, "rounds between evaluations of all clients"] = 50


_FIELDS = [(field.name, *get_args(field.type)) for field in dataclasses.fields(Task)]
FIELDS: dict[str, Any] = {name: kind for name, kind, _ in _FIELDS}
HELP: dict[str, str] = {name: meaning for name, _, meaning in _FIELDS}
jax.tree_util.register_dataclass(Task, data_fields=list(FIELDS), meta_fields=[])

TASKS = {
    "fashion_mnist_mlp": Task("fashion_mnist", "mlp"),
    "fashion_mnist_mini_mlp": Task("fashion_mnist_mini", "mlp", clients=50, cohort_size=5, rounds=300, eval_every=20),
    "mnist_mlp": Task("mnist", "mlp"),
    "cifar10_cnn": Task("cifar10", "cnn"),
    "cifar10_mlp": Task("cifar10", "mlp"),
}

RATES = ("lr", "lr_decay")
"""Fields that are numbers in the program: runs that differ in them, or in numbers of OPTIONS, share a compilation."""

CHOICES = {
    "partition": ("shards", "dirichlet"),
    "test_split": ("auto", "sharded_official", "holdout"),
    "loss_eval": ("full", "last_batch"),
}


def resolve(name: str, changes: Mapping[str, Any]) -> Task:
    """The task with the given fields changed, checked; a change is a value or the text of one."""
    if name not in TASKS:
        raise ValueError(f"--task={name} is not known; choose one of {', '.join(TASKS)}")
    return checked(dataclasses.replace(TASKS[name], **{field: read(field, value) for field, value in changes.items()}))


def read(field: str, value: Any) -> Any:
    """The value of a field, from itself or from its text."""
    if field in OPTIONS:
        return value if isinstance(value, Call) else _option(field, value)
    kind: Any = Traced if field in RATES else FIELDS[field]
    try:
        return kind(value)
    except ValueError:
        takes = FIELDS[field].__name__
        raise ValueError(f"--{field}={value} is not valid; {field} takes {takes} values") from None


def checked(task: Task) -> Task:
    """The task, with what is automatic resolved; an error in one line if a field is wrong."""
    for field, known in (("dataset", DATASETS), ("model", MODELS)):
        if getattr(task, field) not in known:
            raise ValueError(f"--{field}={getattr(task, field)} is not known; choose one of {', '.join(known)}")
    for field in ("clients", "cohort_size", "steps", "rounds", "eval_every", "shards_per_client"):
        _require(getattr(task, field) >= 1, task, field, "give at least 1")
    for field in ("local_epochs", "batch_size"):
        _require(getattr(task, field) >= 0, task, field, "give 0 or more")
    for field in (*RATES, "dirichlet"):
        _require(0 < getattr(task, field) < float("inf"), task, field, "give a positive number")
    _require(0 <= task.label_noise <= 1, task, "label_noise", "give a share in [0, 1]")
    for field, valid in CHOICES.items():
        _require(getattr(task, field) in valid, task, field, f"choose one of {', '.join(valid)}")
    if task.cohort_size > task.clients:
        raise ValueError(f"--cohort_size={task.cohort_size} exceeds --clients={task.clients}; lower --cohort_size")
    if task.test_split == "auto":
        split = "sharded_official" if task.partition == "shards" else "holdout"
        return dataclasses.replace(task, test_split=split)
    return task


def _require(holds: bool, task: Task, field: str, remedy: str) -> None:
    if not holds:
        raise ValueError(f"--{field}={getattr(task, field)} is not valid; {remedy}")
