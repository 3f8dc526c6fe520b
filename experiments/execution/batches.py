"""Runs that share a compilation: their data, their program, and the batches in which they are run."""

import dataclasses
import functools
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax

from experiments.command.opening import naming_flags
from experiments.command.runs import Run, grouped
from experiments.execution import devices
from experiments.execution.program import Data, Program, Runs, round_number, stack
from experiments.execution.supply import Hosted, Resident, Supply
from fedeba_jax import client_map as maps
from fedeba_jax import tree
from fedeba_jax.data.dealing import Tables
from fedeba_jax.data.dealing import stack as stack_tables
from fedeba_jax.data.sources import Dataset
from fedeba_jax.models import accelerator_map, make_model
from fedeba_jax.rounds import sizes_from

TIMED = 10  # rounds at most that an estimate trains
MOST_MAPPED = 0.5  # of the mappings that the system allows, before programs are forgotten
BATCH_ON_CPU = 16  # runs at once: enough to fill the cores, few enough to stream and to bound the memory


class How(NamedTuple):
    """How runs are executed; results depend on it in their last bits at most."""

    client_map: str = "auto"
    run_map: str = "auto"
    batch_runs: int = 0  # runs at once; 0: chosen
    data_budget: float | None = None  # bytes of examples that may lie on the devices; None: chosen


@dataclasses.dataclass(frozen=True)
class Kept:
    """What a call of the runner has made that the next one in the same process may use."""

    datasets: dict[str, Dataset] = dataclasses.field(default_factory=dict)  # by the texts that name them
    programs: dict[Any, Any] = dataclasses.field(default_factory=dict)  # compiled, by all that they depend on

    def make_room(self) -> None:
        """Forget all programs before there are more than the system lets a process map: about a hundred on Linux."""
        if devices.mapped() > MOST_MAPPED:
            self.programs.clear()


class Group:
    """Runs of one compilation: one program, batches of equal size.

    Shapes and batches follow from all runs, finished or not, so that resumed runs go through the same programs.
    """

    def __init__(self, runs: list[Run], missing: list[Run], dataset: Dataset, how: How, programs: dict) -> None:
        self.missing, self._programs = missing, programs
        first = runs[0]
        self.task = first.task
        dealing = first.dealing
        with naming_flags():
            self.splits = {run.seeds.data: dealing.split(dataset, run.seeds.data) for run in runs}
        self.pools = dealing.pools(dataset)
        model = _model(self.task.model, dataset.name, dataset.x_train.shape[1:], dataset.num_classes)
        capacity = max(int(split.train.counts.max()) for split in self.splits.values())
        sizes = sizes_from(model.init, self.task.clients, self.task.cohort_size, capacity)

        def set_batch(batch_runs: int) -> None:
            chosen = maps.choose(how.client_map, how.run_map, batch_runs, accelerator_map(self.task.model))
            self.batch_runs = batch_runs
            self.program = Program(first.parts[1], model, sizes, *chosen, first.state_dtype, dataset.num_classes)

        def memory_of(batch_runs: int) -> int:
            set_batch(batch_runs)
            return self.memory()

        by_memory = not how.batch_runs and jax.default_backend() != "cpu"
        chosen = min(how.batch_runs, len(runs)) or batch_size(len(runs), jax.device_count())
        set_batch(1 if by_memory else chosen)
        some = runs[: self.batch_runs]
        self.program.check_memory(self.stacked(some))
        self.hosted = self._stays_on_host(how.data_budget)
        if not self.hosted and self.program.large_number(self.stacked(some)):
            self.program.check_arrays(self.stacked(some), Data(self.tables(some), self.pools), self.chunk_after(0))
        if by_memory:
            set_batch(fitting(len(runs), memory_of, jax.local_devices()[0].memory_stats()["bytes_limit"]))

    @property
    def algorithm(self) -> str:
        return self.missing[0].algorithm

    def batches(self, stopped: Sequence[str] = ()) -> list[list[Run]]:
        """What is left to run, batch by batch; the one that was stopped as it was then, if it still can be run so."""
        again = [run for run in self.missing if run.id in stopped]
        if [run.id for run in again] != [*stopped] or len(again) > self.batch_runs:
            again = []
        others, size = [run for run in self.missing if run not in again], self.batch_runs
        return [*[again] * bool(again), *(others[i : i + size] for i in range(0, len(others), size))]

    def stacked(self, runs: Sequence[Run]) -> Runs:
        """The runs as a batch of full size."""
        return stack(self._padded(runs))

    def tables(self, runs: Sequence[Run]) -> Tables:
        """Who holds what in each run of such a batch."""
        splits = [self.splits[run.seeds.data] for run in self._padded(runs)]
        return stack_tables(splits, list(self.splits.values()))

    def placed(self, runs: Sequence[Run]) -> tuple[Runs, Supply]:
        """The stacked runs, where the program wants them, and their examples."""
        stacked, tables = self.stacked(runs), self.tables(runs)
        placed = maps.place(stacked, self.program.placement)
        if not self.hosted:
            return placed, Resident(self.program, tables, self.pools)
        hosted = Hosted(self.program, stacked, tables, self.pools, self.task.rounds)
        self._check_chunk(hosted.num_bytes(self.chunk_after(0)))
        return placed, hosted

    def _check_chunk(self, num_bytes: int) -> None:
        """An error if the examples of a chunk, and of the next one, are more than there is room for."""
        needed, free = 2 * self.program.copies * num_bytes, devices.free_memory()
        if needed > free:
            raise ValueError(
                f"--eval_every={self.task.eval_every}: the clients of so many rounds hold {needed / 2**30:.2f} GiB of "
                f"examples ({self.batch_runs} runs at once), and {free / 2**30:.2f} GiB are free; give fewer rounds "
                "between evaluations, fewer runs at once, or a smaller --cohort_size"
            )

    def _padded(self, runs: Sequence[Run]) -> list[Run]:
        """A short batch repeats its last run."""
        return [*runs, *[runs[-1]] * (self.batch_runs - len(runs))]

    def _stays_on_host(self, budget: float | None) -> bool:
        """Whether the examples, and the tables of who holds them, are more than may lie on the devices."""
        sizes = self.program.sizes
        tables = 4 * self.batch_runs * sizes.num_clients * sizes.capacity
        needed = self.program.copies * (tree.num_bytes(self.pools) + tables)
        return needed > (devices.free_memory() / 2 if budget is None else budget)

    def start(self, runs: Any) -> Any:
        """The states before the first round."""
        if self.program not in self._programs:
            self._programs[self.program] = self.program.init()
        return self._programs[self.program](runs)

    def chunk_after(self, done: int) -> int:
        """How many rounds the chunk after so many has; 0 after the last."""
        return min(self.task.eval_every, self.task.rounds - done)

    def is_compiled(self, rounds: int, *arguments: Any) -> bool:
        return self._key(rounds, arguments) in self._programs

    def chunk(self, rounds: int, *arguments: Any) -> Any:
        """The compiled chunk of so many rounds; compiled at its first call."""
        key = self._key(rounds, arguments)
        if key not in self._programs:
            self._programs[key] = self.program.chunk(rounds).lower(*arguments).compile()
        return self._programs[key]

    def _key(self, rounds: int, arguments: Any) -> Any:
        leaves, structure = jax.tree.flatten(arguments)
        return self.program, rounds, structure, tuple((leaf.shape, leaf.dtype) for leaf in leaves)

    def memory(self, rounds: int | None = None) -> int:
        """Bytes of the program of so many rounds (None: a chunk), arguments included, by XLA's own account."""
        runs, supply = self.placed(self.missing[: self.batch_runs])
        rounds = rounds or self.chunk_after(0)
        compiled = self.chunk(rounds, runs, self.start(runs), round_number(0), supply.feed(0, rounds))
        analysis = compiled.memory_analysis()
        return analysis.temp_size_in_bytes + analysis.argument_size_in_bytes + analysis.output_size_in_bytes


def groups(
    runs: Sequence[Run], done: set[str], datasets: dict[str, Dataset], how: How, programs: dict[Any, Any]
) -> list[Group]:
    """What is left to run, by compilation; programs that are there already are not compiled again."""
    members = [(group, [run for run in group if run.id not in done]) for group in grouped(runs)]
    return [
        Group(group, missing, datasets[group[0].task.dataset], how, programs) for group, missing in members if missing
    ]


_model = functools.cache(make_model)  # one function for one network: programs are found again by it


def batch_size(runs: int, device_count: int) -> int:
    """Runs at once on a CPU: a multiple of the cores, at most 16 or so, that wastes least on the last batch."""
    if runs <= device_count:
        return runs
    sizes = range(device_count, max(BATCH_ON_CPU, device_count) + 1, device_count)
    return min(sizes, key=lambda size: (-(-runs // size) * size, -size))


def fitting(runs: int, memory_of: Callable[[int], int], limit: int) -> int:
    """Runs at once on an accelerator: all, halved until the program takes at most 80 % of the memory."""
    while runs > 1 and memory_of(runs) > 0.8 * limit:
        runs = -(-runs // 2)
    return runs


class Cost(NamedTuple):
    """What the first rounds of a full batch of runs took."""

    memory: int  # bytes
    rounds: int
    seconds: float  # of these rounds with an evaluation

    def of(self, rounds: int) -> float:
        """Seconds of so many rounds; where evaluations are rarer than here, too many rather than too few."""
        return self.seconds * rounds / self.rounds


def measured(group: Group) -> Cost:
    """The cost of a group's batches, from a few rounds, trained once, after compilation."""
    rounds = min(group.chunk_after(0), TIMED)
    memory = group.memory(rounds)
    runs, supply = group.placed(group.missing[: group.batch_runs])
    state = group.start(runs)
    begun = time.perf_counter()
    arguments = (runs, state, round_number(0), supply.feed(0, rounds))
    state, *_ = jax.block_until_ready(group.chunk(rounds, *arguments)(*arguments))
    jax.block_until_ready(supply.score(runs, state))
    return Cost(memory, rounds, time.perf_counter() - begun)


def estimate(group: Group) -> str:
    """Memory, and time from the first rounds."""
    cost = measured(group)
    total = cost.of(group.task.rounds) * len(group.batches())
    at_most = " at most" if cost.rounds < group.chunk_after(0) else ""
    told = f"{cost.seconds:.2f} s for {cost.rounds} round{'s' * (cost.rounds != 1)} and an evaluation"
    return f"{cost.memory / 2**20:.0f} MiB, about {total:.0f} s{at_most} ({told})"
