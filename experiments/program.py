"""A run, or a batch of runs, as two compiled programs: `init`, and `chunk` of rounds with an evaluation.

Whatever may differ between the runs of a batch is in `Runs`, stacked; everything else is static.
"""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import fedeba_jax
from experiments import devices, hparams, tasks
from experiments.federations import Pools, Tables, assemble
from experiments.tasks import Task
from fedeba_jax import client_map as maps
from fedeba_jax import tree
from fedeba_jax.algorithms.signature import collaborators
from fedeba_jax.evaluate import Scores
from fedeba_jax.simulate import evaluate, is_finite, stored
from fedeba_jax.types import Algorithm, Info, Model, Sizes, State


class Seeds(NamedTuple):
    """One seed a source of randomness: how data is split, where training starts, whom and what it samples."""

    data: int
    init: int
    sample: int


class Runs(NamedTuple):
    """What the R runs of a batch may differ in; every leaf is [R, ...]."""

    hparams: dict[str, Any]  # the traced ones that are not None; of a schedule, its numbers
    settings: dict[str, Any]  # the traced numbers of the task
    init_seed: Any
    sample_seed: Any
    tables: Tables


class Evaluation(NamedTuple):
    """Scores [R, M] by model name."""

    test: dict[str, Scores]
    validation: dict[str, Scores] | None


@dataclasses.dataclass(frozen=True)
class Program:
    """The static part of a batch of runs, and its compiled functions."""

    task: Task
    algorithm: str
    static_hparams: dict[str, Any]
    model: Model
    sizes: Sizes
    client_map: str
    run_map: str
    state_dtype: str = "float32"

    @property
    def placement(self) -> Any:
        """Where arrays live: a copy on every device that takes part, made once; None for a single device."""
        several = "sharded" in self.client_map or "sharded" in self.run_map
        return maps.replicated(maps.device_mesh()) if several else None

    def init(self) -> Callable[[Runs], State]:
        def one(run: Runs) -> State:
            state = self._algorithm(run).init(jax.random.key(run.init_seed), self.model.init, self.sizes)
            return stored(state, self.state_dtype)

        return jax.jit(devices.by_name(self.run_map, "run_map")(one, in_axes=0), out_shardings=self.placement)

    def check_memory(self, runs: Runs) -> None:
        """An error if the states of these runs alone take more than there is, before anything is compiled.

        Sharded runs and clients have the states on every device; the devices of a CPU share its memory.
        """
        copies = jax.device_count() if self.placement and jax.default_backend() == "cpu" else 1
        needed, free = copies * tree.num_bytes(jax.eval_shape(self.init(), runs)), devices.free_memory()
        if needed <= free:
            return
        count = len(runs.init_seed)
        remedies = ["--state_dtype=bfloat16"] * (self.state_dtype == "float32") + ["fewer --clients"]
        remedies += ["fewer runs at once"] * (count > 1) + ["--host_devices=1"] * (copies > 1)
        raise ValueError(
            f"--algorithm={self.algorithm} keeps {needed / 2**30:.2f} GiB of state ({self.sizes.num_clients} clients x "
            f"{count} runs x {copies} copies), and {free / 2**30:.2f} GiB are free; give {' or '.join(remedies)}"
        )

    def chunk(self, rounds: int) -> Callable[[Runs, State, Any, Pools], tuple[State, Info, Evaluation]]:
        """(runs, state, first round, examples) -> state, diagnostics [R, rounds, ...], scores after the last round.

        A run that diverged before stays as it is and costs nothing more.
        """
        client_map = devices.by_name(self.client_map, "client_map")

        def one(run: Runs, state: State, start: jax.Array, pools: Pools) -> tuple[State, Info, Evaluation]:
            algorithm = self._algorithm(run)
            train, validation, test = assemble(pools, run.tables)
            key = jax.random.key(run.sample_seed)

            def go_on(state: State) -> tuple[State, Info, Evaluation]:
                state, info = fedeba_jax.run_rounds(
                    algorithm, train, state, key, start, rounds=rounds, sizes=self.sizes, client_map=client_map
                )
                scores = [
                    held and evaluate(algorithm, state, held, apply=self.model.apply, client_map=client_map)
                    for held in (test, validation)
                ]
                return state, info, Evaluation(*scores)

            def frozen(state: State) -> tuple[State, Info, Evaluation]:
                _, info, scores = tree.zeros_like(jax.eval_shape(go_on, state))  # among others, finite = False
                return state, info, scores

            return jax.lax.cond(is_finite(algorithm, state), go_on, frozen, state)

        mapped = devices.by_name(self.run_map, "run_map")(one, in_axes=(0, 0, None, None))

        def train_chunk(runs: Runs, state: State, start: jax.Array, pools: Pools) -> Any:
            return mapped(runs, state, start, pools)

        # States come out where they go in, or the second call would compile again.
        return jax.jit(train_chunk, donate_argnums=1, out_shardings=self.placement)

    def _algorithm(self, run: Runs) -> Algorithm:
        task = self.task
        local = fedeba_jax.LocalTraining(
            objective=self._option("objective", run),
            learning_rate=fedeba_jax.schedules.decay(run.settings["lr"], run.settings["lr_decay"]),
            steps=task.steps,
            epochs=task.local_epochs or None,
            batch_size=task.batch_size or None,
            loss_on=task.loss_eval,
            apply=self.model.apply,
        )
        server = self._option("server", run)
        factory = fedeba_jax.ALGORITHMS[self.algorithm]
        make = functools.partial(factory, local, server)
        if "privacy" in collaborators(factory):
            make = functools.partial(make, privacy=self._option("privacy", run))
        return fedeba_jax.scheduled(make, **hparams.together(self.algorithm, run.hparams, self.static_hparams))

    def _option(self, field: str, run: Runs) -> Any:
        """What an option of the task names, made from its static arguments and the run's numbers."""
        call = tasks.traced(self.task)[1][field]
        factory = tasks.OPTIONS[field][call.name]
        supplied = {"model": self.model, "rounds": self.task.rounds}
        wanted = {name: supplied[name] for name in collaborators(factory)}
        return factory(**wanted, **call.arguments, **run.settings[field])


def batch(points: list[tuple[dict[str, Any], Task, Seeds]], tables: Tables) -> Runs:
    """Stack the runs: (traced hyper-parameters, task, seeds) each."""
    numbers, changed, seeds = zip(*points, strict=True)
    return Runs(
        jax.tree.map(_stack, *numbers),
        jax.tree.map(_stack, *(tasks.traced(task)[0] for task in changed)),
        np.array([s.init for s in seeds], np.uint32),
        np.array([s.sample for s in seeds], np.uint32),
        tables,
    )


def _stack(*values: float) -> np.ndarray:
    return np.array(values, np.float32)


def first_round(start: int) -> jax.Array:
    """A round number as an array: a Python int would be a new program each time."""
    return jnp.asarray(start, jnp.int32)
