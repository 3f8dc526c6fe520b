"""Tasks by name: a data set, a model, and the setting that is their default (configs/tasks.toml).

What a task leaves to its data (how many clients it has, for one) is filled in by `opening`, when the data is there.
"""

import dataclasses
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, NamedTuple, get_args

import jax

from experiments.command import calls, datasets
from experiments.command.values import Call, Traced, shown
from fedeba_jax.aggregation import AGGREGATORS
from fedeba_jax.attacks import ATTACKS
from fedeba_jax.data.dealing import PARTITIONS, TEST_SPLITS
from fedeba_jax.hyperparameters import INT32, Bounds, is_finite
from fedeba_jax.models import MODELS
from fedeba_jax.objectives import OBJECTIVES
from fedeba_jax.privacy import MODES
from fedeba_jax.sampling import SAMPLERS
from fedeba_jax.server import SERVERS

OPTIONS: dict[str, calls.Table] = {
    "server": SERVERS,
    "objective": OBJECTIVES,
    "privacy": MODES,
    "aggregator": AGGREGATORS,
    "attack": ATTACKS,
    "sampling": SAMPLERS,
}
"""Fields that are calls, as sgd(1.0), and the functions that each may name."""


def _option(field: str, written: str) -> Call:
    return calls.parse(OPTIONS[field], written, f"--{field}")


SGD, CROSS_ENTROPY = _option("server", "sgd(1.0)"), _option("objective", "cross_entropy")
NO_PRIVACY = _option("privacy", "none")
WEIGHTED_SUM, NO_ATTACK = _option("aggregator", "weighted_sum"), _option("attack", "none")
UNIFORM = _option("sampling", "uniform")
AUTO = "auto"
FILE = Path(__file__).parents[1] / "configs" / "tasks.toml"


@dataclasses.dataclass(frozen=True)
class Task:
    """Everything about a run that is not the algorithm; each field is also a flag."""

    dataset: Annotated[str, "data set"]
    model: Annotated[str, "network; auto goes by the shape of the data"]
    clients: Annotated[int, "number of clients M; 0 is as many as the data has"] = 100
    cohort_size: Annotated[int, "clients sampled in each round, n; 0 is all"] = 10
    steps: Annotated[int, "local SGD steps K"] = 10
    local_epochs: Annotated[int, "if not 0: passes over the local data instead of K steps"] = 0
    batch_size: Annotated[int, "examples of a local step B; 0 is the whole local set"] = 50
    lr: Annotated[float, "local learning rate of the first round"] = Traced(0.1)
    lr_decay: Annotated[float, "factor of the local learning rate from round to round; 1 turns it off"] = Traced(0.999)
    server: Annotated[Call, "how an update becomes the next model"] = SGD
    objective: Annotated[Call, "what clients minimise"] = CROSS_ENTROPY
    privacy: Annotated[Call, "what is clipped and noised, for examples or for clients"] = NO_PRIVACY
    aggregator: Annotated[Call, "robust rule in place of the method's weighted sum"] = WEIGHTED_SUM
    attack: Annotated[Call, "which clients lie, and how"] = NO_ATTACK
    sampling: Annotated[Call, "how the clients of a round are drawn"] = UNIFORM
    partition: Annotated[str, "how training data is dealt; natural: to the clients that it came with"] = "shards"
    shards_per_client: Annotated[int, "label shards that each client gets (partition=shards)"] = 2
    dirichlet: Annotated[float, "concentration of label mixtures (partition=dirichlet) or sizes (quantity)"] = 0.1
    test_split: Annotated[
        str, "the official test set, dealt like the training data, 20% of each client's own, or what it came with"
    ] = AUTO
    label_noise: Annotated[float, "share of training (and validation) labels that are flipped to another"] = 0.0
    loss_eval: Annotated[str, "what the losses that weigh clients are measured on"] = "full"
    rounds: Annotated[int, "rounds T"] = 2000
    eval_every: Annotated[int, "rounds between evaluations of all clients"] = 50


_FIELDS = [(field.name, *get_args(field.type)) for field in dataclasses.fields(Task)]
FIELDS: dict[str, Any] = {name: kind for name, kind, _ in _FIELDS}
HELP: dict[str, str] = {name: meaning for name, _, meaning in _FIELDS}
jax.tree_util.register_dataclass(Task, data_fields=list(FIELDS), meta_fields=[])


class Preset(NamedTuple):
    """A task, and on what it was ever run: --list says so."""

    task: Task
    ran: str


RATES = ("lr", "lr_decay")
"""Fields that are numbers in the program: runs that differ in them, or in numbers of OPTIONS, share a compilation."""

CHOICES = {
    "partition": PARTITIONS,
    "test_split": TEST_SPLITS,
    "loss_eval": ("full", "last_batch"),
}


def _preset(described: dict[str, Any]) -> Preset:
    dataset, ran = described.pop("dataset"), described.pop("ran")
    return Preset(Task(dataset, **{field: read(field, value) for field, value in described.items()}), ran)


def resolve(name: str, changes: Mapping[str, Any]) -> Task:
    """The task with the given fields changed, checked; a change is a value or the text of one."""
    if name not in TASKS:
        raise ValueError(f"--task={shown(name)} is not known; choose one of {', '.join(TASKS)}")
    return checked(dataclasses.replace(TASKS[name], **{field: read(field, value) for field, value in changes.items()}))


def read(field: str, value: Any) -> Any:
    """The value of a field, from itself or from its text."""
    if field in OPTIONS:
        return value if isinstance(value, Call) else _option(field, value)
    if field == "dataset":
        return datasets.read(value)
    kind: Any = Traced if field in RATES else FIELDS[field]
    try:
        return kind(value)
    except ValueError:
        takes = FIELDS[field].__name__
        raise ValueError(f"--{field}={shown(str(value))} is not valid; {field} takes {takes} values") from None


PRESETS = {name: _preset(described) for name, described in tomllib.loads(FILE.read_text()).items()}
TASKS = {name: preset.task for name, preset in PRESETS.items()}


def checked(task: Task) -> Task:
    """The task, with what is automatic resolved; an error in one line if a field is wrong."""
    datasets.read(task.dataset)
    if task.model not in (*MODELS, AUTO):
        raise ValueError(f"--model={shown(task.model)} is not known; choose one of {', '.join(MODELS)}, {AUTO}")
    for field in ("steps", "rounds", "eval_every", "shards_per_client"):
        _require(getattr(task, field) >= 1, task, field, "give at least 1")
    for field in ("clients", "cohort_size", "local_epochs", "batch_size"):
        _require(getattr(task, field) >= 0, task, field, "give 0 or more")
    for field in (name for name, kind in FIELDS.items() if kind is int):
        _require(getattr(task, field) in INT32, task, field, f"give at most {INT32.high}")
    for field in (*RATES, "dirichlet"):
        positive = is_finite(getattr(task, field), Bounds(0, open=True))
        _require(positive, task, field, "give a positive number that float32 can hold")
    _require(0 <= task.label_noise <= 1, task, "label_noise", "give a share in [0, 1]")
    for field, valid in CHOICES.items():
        _require(getattr(task, field) in valid, task, field, f"choose one of {', '.join(valid)}")
    if not task.clients:
        _require(task.partition in (AUTO, "natural"), task, "clients", f"partition {task.partition} needs at least 1")
        return task
    if task.cohort_size > task.clients:
        raise ValueError(f"--cohort_size={task.cohort_size} exceeds --clients={task.clients}; lower --cohort_size")
    task = dataclasses.replace(task, cohort_size=task.cohort_size or task.clients)
    if task.test_split == AUTO and task.partition not in (AUTO, "natural") and datasets.has_test_labels(task.dataset):
        split = "sharded_official" if task.partition in ("shards", "iid") else "holdout"
        return dataclasses.replace(task, test_split=split)
    return task


def _require(holds: bool, task: Task, field: str, remedy: str) -> None:
    if not holds:
        raise ValueError(f"--{field}={shown(str(getattr(task, field)))} is not valid; {remedy}")
