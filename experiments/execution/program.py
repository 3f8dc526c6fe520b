"""A batch of runs as two compiled programs: `init`, and `chunk` of rounds with an evaluation.

Whatever may differ between the runs of a batch is in `Runs`, stacked; everything else is static.
"""

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import fedeba_jax
from experiments.command.runs import Run
from experiments.command.tasks import Task
from experiments.command.values import Call, Hole, Static, join
from experiments.execution import devices
from fedeba_jax import client_map as maps
from fedeba_jax import evaluate, ownership, tree
from fedeba_jax.attacks import Attack
from fedeba_jax.data.dealing import assemble
from fedeba_jax.evaluate import Judgement, Scores
from fedeba_jax.hyperparameters import collaborators, is_whole
from fedeba_jax.method import supposed_rule
from fedeba_jax.sampling import Sampler
from fedeba_jax.types import Algorithm, Federation, Info, Model, PerDevice, Sizes, State

REMARKABLE = 100_000
"""Programs with a number so large in them are traced before anything is compiled, to see what memory they take."""
Evaluation = dict[str, dict[str, Scores]]  # by split and model, [R, M] each


class Runs(NamedTuple):
    """What the R runs of a batch may differ in; every leaf is [R, ...]."""

    numbers: list[Any]  # of hyper-parameters and task, in the order of `values.split`
    init_seed: Any
    sample_seed: Any


class Data(NamedTuple):
    """The examples of a batch of runs (`supply`)."""

    own: Any  # [R, ...] what each run has: the tables of who holds what, or the clients that are asked
    shared: Any  # the examples that such tables are of; () otherwise


def stack(runs: Sequence[Run]) -> Runs:
    """Runs of one compilation as one batch."""
    numbers = zip(*(run.parts[0] for run in runs), strict=True)
    return Runs(
        [np.array(values, np.float32) for values in numbers],
        np.array([run.seeds.init for run in runs], np.uint32),
        np.array([run.seeds.sample for run in runs], np.uint32),
    )


@dataclasses.dataclass(frozen=True)
class Program:
    """The static part of a batch of runs, and its compiled functions."""

    static: Static
    model: Model
    sizes: Sizes
    client_map: str
    run_map: str
    state_dtype: str = "float32"
    num_classes: int = 0

    @property
    def placement(self) -> Any:
        """Where arrays live: a copy on every device that takes part, made once; None for a single device."""
        several = "sharded" in self.client_map or "sharded" in self.run_map
        return maps.replicated(maps.device_mesh()) if several else None

    @property
    def copies(self) -> int:
        """How often the memory holds what is placed: every device of a CPU has a copy in the same memory."""
        return jax.local_device_count() if self.placement and jax.default_backend() == "cpu" else 1

    @property
    def state_placement(self) -> Any:
        """Where states live: as other arrays, but for the rows of clients that devices divide among themselves."""
        if "sharded" not in self.client_map:
            return self.placement
        return ownership.placement(maps.by_name(self.client_map), self.state_shapes(), leading=1)

    def state_shapes(self) -> State:
        """Of one run's state, without padding."""
        numbers = [np.zeros((), np.float32) for leaf in self.static.leaves if leaf is Hole.NUMBER]
        return jax.eval_shape(self._start, Runs(numbers, np.uint32(0), np.uint32(0)))

    def _start(self, run: Runs) -> State:
        key = jax.random.key(run.init_seed)
        return fedeba_jax.start(
            self.algorithm(run), self.model.init, key, sizes=self.sizes, state_dtype=self.state_dtype
        )

    def init(self) -> Any:
        """Runs -> their states before the first round, with as many rows as fill the devices."""
        client_map, run_map = maps.by_name(self.client_map), maps.by_name(self.run_map)

        def one(run: Runs) -> State:
            return ownership.padded(client_map, self._start(run))

        return jax.jit(lambda runs: fedeba_jax.sweep(one, (runs,), run_map=run_map), out_shardings=self.state_placement)

    def chunk(self, rounds: int) -> Any:
        """(runs, state, first round, data) -> state, diagnostics [R, rounds, ...], scores after the last round.

        There are no scores where the data holds no test examples.
        """
        client_map, run_map = maps.by_name(self.client_map), maps.by_name(self.run_map)

        def one(run: Runs, state: State, own: Any, shared: Any, first: jax.Array) -> tuple[State, Info, Evaluation]:
            train, held_out = assemble(shared, own) if shared else (own, {})
            state, info, scores = fedeba_jax.simulate(
                self.algorithm(run),
                train,
                self.model.init,
                jax.random.key(run.sample_seed),
                sizes=self.sizes,
                rounds=rounds,
                eval_every=rounds,
                test=held_out,
                apply=self.model.apply,
                client_map=client_map,
                sample=self.sampler,
                attack=self.attack(run),
                state=state,
                first_round=first,
            )
            return state, info, tree.rows(scores, 0)

        def train_chunk(runs: Runs, state: State, first: jax.Array, data: Data) -> Any:
            return fedeba_jax.sweep(one, (runs, state, data.own), shared=(data.shared, first), run_map=run_map)

        # States come out where they go in, or the second call would compile again.
        return jax.jit(
            train_chunk, donate_argnums=1, out_shardings=(self.state_placement, self.placement, self.placement)
        )

    def judge(self, block: int) -> Any:
        """(runs, state, federations) -> what each model makes of every example, {model: [R, E]}."""
        client_map, run_map = maps.by_name(self.client_map), maps.by_name(self.run_map)

        def one(run: Runs, state: State, given: Federation | PerDevice) -> dict[str, Judgement]:
            held, every = as_mapped(given)
            models = self.algorithm(run).models(ownership.of_clients(state, self.sizes.num_clients))
            return {
                name: evaluate.judge(self.model.apply, params, held, every, client_map=client_map, block=block)
                for name, params in models.items()
            }

        return jax.jit(lambda *rows: fedeba_jax.sweep(one, rows, run_map=run_map), out_shardings=self.placement)

    def judge_personally(self) -> Any:
        """(runs, state, federations) -> scores of their clients' own predictions, [R, clients]; None without any."""
        client_map, run_map = maps.by_name(self.client_map), maps.by_name(self.run_map)

        def one(run: Runs, state: State, given: Federation | PerDevice) -> Scores | None:
            held, _ = as_mapped(given)
            personalize = self.algorithm(run).personalize
            if personalize is None or held.ids is None:
                return None
            seats = ownership.seated(held.ids, self.sizes.num_clients, ownership.owners(client_map, state))
            known = state._replace(clients=ownership.rows(client_map, seats, state.clients))
            return evaluate.score_personal(self.model.apply, personalize, known, held, client_map=client_map)

        return jax.jit(lambda *rows: fedeba_jax.sweep(one, rows, run_map=run_map), out_shardings=self.placement)

    def algorithm(self, run: Runs) -> Algorithm:
        """The algorithm of one run, its numbers possibly traced."""
        name, hparams, task = join(run.numbers, self.static)
        return make_algorithm(name, hparams, task, self.model)

    @property
    def sampler(self) -> Sampler:
        """How the clients of a round are drawn."""
        _, _, task = jax.tree.unflatten(self.static.structure, self.static.leaves)
        return task.sampling.make()

    def attack(self, run: Runs) -> Attack | None:
        """Who lies in one run, and how; its numbers possibly traced."""
        name, hparams, task = join(run.numbers, self.static)
        rule = task.aggregator.make() or supposed_rule(fedeba_jax.ALGORITHMS[name], _values(hparams))
        return _make(task.attack, aggregator=rule, num_classes=self.num_classes)

    def check_memory(self, runs: Runs) -> None:
        """An error if the states of these runs alone take more than there is, before anything is compiled."""
        state, free = jax.eval_shape(self.init(), runs), devices.free_memory()
        needed = self.copies * self._bytes_of_device(state)
        if needed <= free:
            return
        copies = round(needed / tree.num_bytes(state)) or 1
        count, large = len(runs.init_seed), self.large_number(runs)
        remedies = [f"a smaller {large}"] if large else []
        remedies += ["--state_dtype=bfloat16"] * (self.state_dtype == "float32") + ["fewer --clients"]
        remedies += ["fewer runs at once"] * (count > 1) + ["--host_devices=1"] * (copies > 1)
        raise ValueError(
            f"--algorithm={join(runs.numbers, self.static)[0]} keeps {needed / 2**30:.2f} GiB of state "
            f"({self.sizes.num_clients} clients x {count} runs x {copies} copies), and {free / 2**30:.2f} GiB are "
            f"free; give {' or '.join(remedies)}"
        )

    def _bytes_of_device(self, state: State) -> float:
        """What one device has of states with these shapes."""
        whole = tree.num_bytes(state)
        if "sharded" not in self.client_map:
            return whole
        copied = jax.tree.map(
            lambda leaf, where: leaf if where.is_fully_replicated else None, state, self.state_placement
        )
        kept = tree.num_bytes(copied)
        return kept + (whole - kept) / jax.device_count()

    def large_number(self, runs: Runs) -> str:
        """The largest of the settings that arrays may be as long as, as NAME=NUMBER; "" if it is below REMARKABLE."""
        _, hparams, task = join(runs.numbers, self.static)
        numbers = {name: value for name, value in hparams.items() if is_whole(value)}
        numbers |= {"--eval_every": min(task.eval_every, task.rounds), "--local_epochs": task.local_epochs}
        numbers["--steps"] = task.steps
        name = max(numbers, key=lambda name: numbers[name])
        return f"{name}={numbers[name]}" if numbers[name] >= REMARKABLE else ""

    def check_arrays(self, runs: Runs, data: Data, rounds: int) -> None:
        """An error if one array of a chunk of rounds alone takes more than there is; it is traced, not compiled."""
        large, free = self.large_number(runs), devices.free_memory()
        state, data = jax.eval_shape(self.init(), runs), jax.eval_shape(lambda data: data, data)
        try:
            needed = largest_array(self.chunk(rounds).trace(runs, state, round_number(0), data).jaxpr.jaxpr)
        except OverflowError:
            raise ValueError(f"{large}: the program cannot count so far; give a smaller number") from None
        if needed > free:
            raise ValueError(
                f"{large}: one array of the program takes {needed / 2**30:.2f} GiB, and {free / 2**30:.2f} GiB are "
                "free; give a smaller number"
            )


def as_mapped(held: Federation | PerDevice) -> tuple[Federation, jax.Array]:
    """A federation as evaluations map over it, and all of its examples; of parts, the examples stay where they are."""
    if not isinstance(held, PerDevice):
        return held, jnp.arange(held.y.shape[0])
    x, y, *tables = held.parts
    examples: list[Any] = [PerDevice(x), PerDevice(y)]
    joined = jax.tree.map(lambda table: table.reshape(-1, *table.shape[2:]), tables)
    return Federation(*examples, *joined), jnp.tile(jnp.arange(y.shape[1]), y.shape[0])


def largest_array(jaxpr: Any) -> int:
    """Bytes of the largest array that a program makes, in all of its parts."""
    made = [variable.aval for equation in jaxpr.eqns for variable in equation.outvars]
    sizes = [aval.size * getattr(aval.dtype, "itemsize", 4) for aval in made if hasattr(aval, "size")]
    parts = [leaf for equation in jaxpr.eqns for leaf in jax.tree.leaves(list(equation.params.values()))]
    inner = [getattr(part, "jaxpr", part) for part in parts]
    return max([0, *sizes, *(largest_array(part) for part in inner if hasattr(part, "eqns"))])


def make_algorithm(name: str, hparams: dict[str, Any], task: Task, model: Model) -> Algorithm:
    """The algorithm as settings describe it."""
    local = fedeba_jax.LocalTraining(
        objective=_make(task.objective, model=model, rounds=task.rounds),
        learning_rate=fedeba_jax.schedules.decay(task.lr, task.lr_decay),
        steps=task.steps,
        epochs=task.local_epochs or None,
        batch_size=task.batch_size or None,
        loss_on=task.loss_eval,
        apply=model.apply,
    )
    privacy = task.privacy.make()
    server = privacy.server(fedeba_jax.robust(task.server.make(), task.aggregator.make()))
    make = functools.partial(fedeba_jax.ALGORITHMS[name], privacy.local(local), server)
    return fedeba_jax.scheduled(make, **_values(hparams))


def _values(hparams: dict[str, Any]) -> dict[str, Any]:
    """Hyper-parameters with what calls make in their place."""
    return {key: value.make() if isinstance(value, Call) else value for key, value in hparams.items()}


def _make(call: Call, **supplied: Any) -> Any:
    """What a call makes, given those of the supplied collaborators that its function takes."""
    return call.make(**{name: supplied[name] for name in collaborators(call.function)})


def round_number(done: int) -> jax.Array:
    """A round number as an array: a Python int would be a new program each time."""
    return jnp.asarray(done, jnp.int32)
