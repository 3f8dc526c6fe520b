"""Tasks by name: a data set, a model, and the paper's setting for them as the default."""

import dataclasses
from typing import Any

from experiments import calls
from fedeba_jax.objectives import OBJECTIVES
from fedeba_jax.privacy import MODES
from fedeba_jax.server import SERVERS


@dataclasses.dataclass(frozen=True)
class Task:
    """Everything about a run that is not the algorithm; each field is also a flag of `train`."""

    dataset: str
    model: str
    clients: int = 100
    cohort_size: int = 10
    steps: int = 10  # K
    local_epochs: int = 0  # 0: K steps
    batch_size: int = 50  # B; 0: the whole local set
    lr: float = 0.1
    lr_decay: float = 0.999
    server: str = "sgd(1.0)"
    objective: str = "cross_entropy"
    privacy: str = "none"
    partition: str = "shards"
    shards_per_client: int = 2
    dirichlet: float = 0.1
    test_split: str = "auto"  # sharded_official for shards, holdout for Dirichlet
    label_noise: float = 0.0
    loss_eval: str = "full"
    rounds: int = 2000
    eval_every: int = 50


TASKS = {
    "fashion_mnist_mlp": Task("fashion_mnist", "mlp"),
    "fashion_mnist_mini_mlp": Task("fashion_mnist_mini", "mlp", clients=50, cohort_size=5, rounds=300, eval_every=20),
    "mnist_mlp": Task("mnist", "mlp"),
    "cifar10_cnn": Task("cifar10", "cnn"),
    "cifar10_mlp": Task("cifar10", "mlp"),
}

OPTIONS: dict[str, calls.Table] = {"server": SERVERS, "objective": OBJECTIVES, "privacy": MODES}
"""Fields that name a function with arguments, as sgd(1.0), and the functions that each may name."""

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
    "cohort_size": "clients sampled a round, n",
    "steps": "local SGD steps K",
    "local_epochs": "if not 0: passes over the local data instead of K steps",
    "batch_size": "examples of a local step B; 0 is the whole local set",
    "lr": "local learning rate of the first round",
    "lr_decay": "factor of the local learning rate a round; 1 turns it off",
    "server": "how an update becomes the next model",
    "objective": "what clients minimise",
    "privacy": "what is clipped and noised, for examples or for clients",
    "partition": "how training data is dealt",
    "shards_per_client": "label shards a client gets (partition=shards)",
    "dirichlet": "concentration of the label mixtures (partition=dirichlet)",
    "test_split": "the official test set dealt as the training data is, or 20% of each client's own data",
    "label_noise": "share of training (and validation) labels that are wrong: flipped to another at random",
    "loss_eval": "what the losses that weigh clients are measured on",
    "rounds": "rounds T",
    "eval_every": "rounds between evaluations of all clients",
}


def resolve(name: str, changes: dict[str, object]) -> Task:
    """The task with the given fields changed, checked."""
    if name not in TASKS:
        raise ValueError(f"--task={name} is not known; choose one of {', '.join(TASKS)}")
    task = dataclasses.replace(TASKS[name], **changes)  # type: ignore[arg-type]
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
    texts = {
        field: calls.write(table, calls.parse(table, getattr(task, field), f"--{field}"))
        for field, table in OPTIONS.items()
    }
    if task.test_split == "auto":
        texts["test_split"] = "sharded_official" if task.partition == "shards" else "holdout"
    return dataclasses.replace(task, **texts)


def traced(task: Task) -> tuple[dict[str, Any], dict[str, Any]]:
    """A task's fields apart: numbers that may be traced (of an option, a dict of them), and what is static."""
    static = dataclasses.asdict(task)
    numbers: dict[str, Any] = {field: static.pop(field) for field in RATES}
    for field, table in OPTIONS.items():
        numbers[field], static[field] = calls.traced(table, calls.parse(table, static[field], f"--{field}"))
    return numbers, static


def _require(holds: bool, task: Task, field: str, remedy: str) -> None:
    if not holds:
        raise ValueError(f"--{field}={getattr(task, field)} is not valid; {remedy}")
