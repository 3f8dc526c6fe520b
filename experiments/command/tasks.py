"""Tasks by name: a data set, a model, and the paper's setting for them as the default."""

import dataclasses
from collections.abc import Mapping
from typing import Any

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


SGD = _option("server", "sgd(1.0)")
CROSS_ENTROPY = _option("objective", "cross_entropy")
NO_PRIVACY = _option("privacy", "none")


@dataclasses.dataclass(frozen=True)
class Task:
    """Everything about a run that is not the algorithm; each field is also a flag."""

    dataset: str
    model: str
    clients: int = 100
    cohort_size: int = 10
    steps: int = 10  # K
    local_epochs: int = 0  # 0: K steps
    batch_size: int = 50  # B; 0: the whole local set
    lr: float = Traced(0.1)
    lr_decay: float = Traced(0.999)
    server: Call = SGD
    objective: Call = CROSS_ENTROPY
    privacy: Call = NO_PRIVACY
    partition: str = "shards"
    shards_per_client: int = 2
    dirichlet: float = 0.1
    test_split: str = "auto"  # sharded_official for shards, holdout for Dirichlet
    label_noise: float = 0.0
    loss_eval: str = "full"
    rounds: int = 2000
    eval_every: int = 50


FIELDS: dict[str, Any] = {field.name: field.type for field in dataclasses.fields(Task)}
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

HELP = {
    "dataset": "data set",
    "model": "network",
    "clients": "number of clients M",
    "cohort_size": "clients sampled in each round, n",
    "steps": "local SGD steps K",
    "local_epochs": "if not 0: passes over the local data instead of K steps",
    "batch_size": "examples of a local step B; 0 is the whole local set",
    "lr": "local learning rate of the first round",
    "lr_decay": "factor of the local learning rate from round to round; 1 turns it off",
    "server": "how an update becomes the next model",
    "objective": "what clients minimise",
    "privacy": "what is clipped and noised, for examples or for clients",
    "partition": "how training data is dealt",
    "shards_per_client": "label shards that each client gets (partition=shards)",
    "dirichlet": "concentration of the label mixtures (partition=dirichlet)",
    "test_split": "the official test set dealt as the training data is, or 20% of each client's own data",
    "label_noise": "share of training (and validation) labels that are wrong: flipped to another at random",
    "loss_eval": "what the losses that weigh clients are measured on",
    "rounds": "rounds T",
    "eval_every": "rounds between evaluations of all clients",
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
