"""One run: everything that its result depends on, as values."""

import dataclasses
import functools
import hashlib
import json
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from experiments.command.tasks import Task
from experiments.command.values import Static, Traced, plain, short, split
from fedeba_jax.data.dealing import Dealing
from fedeba_jax.hyperparameters import collaborators

LATER = {"attack": "none", "aggregator": "weighted_sum", "sampling": "uniform", "weigh_by": "after"}
"""Fields of tasks that came later, and their defaults."""


class Seeds(NamedTuple):
    """One seed per source of randomness: how data is split, where training starts, whom and what it samples."""

    data: int
    init: int
    sample: int


@dataclasses.dataclass(frozen=True)
class Run:
    """An algorithm with its hyper-parameters on a task, with one seed.

    `data_seed`, `init_seed` and `sample_seed` follow the seed where they are None.
    """

    algorithm: str
    hparams: dict[str, Any]
    task_name: str
    task: Task
    seed: int = 0
    data_seed: int | None = None
    init_seed: int | None = None
    sample_seed: int | None = None
    validation: float = 0.0
    state_dtype: str = "float32"

    @property
    def dealing(self) -> Dealing:
        """How the run's data is dealt to its clients."""
        names = {field.name for field in dataclasses.fields(Dealing)} - {"validation"}
        return Dealing(**{name: getattr(self.task, name) for name in names}, validation=self.validation)

    @property
    def seeds(self) -> Seeds:
        chosen = (self.data_seed, self.init_seed, self.sample_seed)
        return Seeds(*(self.seed if seed is None else seed for seed in chosen))

    @functools.cached_property
    def settings(self) -> dict[str, Any]:
        """All but the algorithm, its hyper-parameters and the seed, as JSON has it."""
        others = ("data_seed", "init_seed", "sample_seed", "validation", "state_dtype")
        return plain(self.task) | {name: getattr(self, name) for name in others}

    @functools.cached_property
    def record(self) -> dict[str, Any]:
        """The run as JSON has it."""
        hparams = plain(self.hparams)
        return {"algorithm": self.algorithm, "hparams": hparams, "settings": self.settings, "seed": self.seed}

    @functools.cached_property
    def id(self) -> str:
        """Names everything that the result depends on: a run is the same in whichever sweep it stands.

        What came later, of tasks or methods, counts where it is not at its default: earlier runs keep their names.
        """
        named = {
            part: {name: value for name, value in self.record[part].items() if (name, value) not in LATER.items()}
            for part in ("settings", "hparams")
        }
        content = [self.task_name, self.record | named]
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:12]

    @functools.cached_property
    def parts(self) -> tuple[list[Traced], Static]:
        """The run's numbers, and all else that its program depends on.

        A program is a chunk of rounds. How many rounds a run has in all it knows where the objective depends on it.
        """
        task = self.task
        if "rounds" not in collaborators(task.objective.function):
            task = dataclasses.replace(task, rounds=min(task.rounds, task.eval_every))
        numbers, static = split((self.algorithm, self.hparams, task))
        return numbers, static

    def label(self, names: Iterable[str]) -> str:
        """The run by what varies."""
        values = self.record["settings"] | self.record["hparams"]
        return " ".join([self.algorithm, *(f"{name}={short(values[name])}" for name in names if name in values)])


def grouped(runs: Sequence[Run]) -> list[list[Run]]:
    """Runs that share a compilation and their number of rounds together, in the order of their first appearance."""
    groups: list[tuple[Any, list[Run]]] = []
    for run in runs:
        key = (run.parts[1], run.task.rounds, run.validation, run.state_dtype)
        members = next((members for other, members in groups if other == key), None)
        if members is None:
            groups.append((key, members := []))
        members.append(run)
    return [members for _, members in groups]


def varying(runs: Sequence[Run]) -> list[str]:
    """Names of hyper-parameters and settings that differ between runs of one algorithm."""
    names: dict[str, None] = {}
    for algorithm in {run.algorithm: None for run in runs}:
        rows = [run.record["settings"] | run.record["hparams"] for run in runs if run.algorithm == algorithm]
        names |= {name: None for name in rows[0] if any(row[name] != rows[0][name] for row in rows)}
    return list(names)
