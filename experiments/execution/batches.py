"""Runs that share a compilation: their data, their program, and the batches in which they are run."""

import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax

from experiments.command.runs import Run, grouped
from experiments.execution.program import Program, round_number, stack
from fedeba_jax import client_map as maps
from fedeba_jax.data.dealing import stack as stack_tables
from fedeba_jax.data.sources import Dataset
from fedeba_jax.models import make_model
from fedeba_jax.rounds import sizes_from

BATCH_ON_CPU = 16  # runs at once: enough to fill the cores, few enough to stream and to bound the memory


class How(NamedTuple):
    """How runs are executed; results depend on it in their last bits at most."""

    client_map: str = "auto"
    run_map: str = "auto"
    batch_runs: int = 0  # runs at once; 0: chosen


class Group:
    """Runs of one compilation: one program, batches of equal size.

    Shapes and batches follow from all runs, finished or not, so that resumed runs go through the same programs.
    """

    def __init__(self, runs: list[Run], missing: list[Run], dataset: Dataset, how: How) -> None:
        self.missing = missing
        first = runs[0]
        self.task = first.task
        dealing = first.dealing
        self.splits = {run.seeds.data: dealing.split(dataset, run.seeds.data) for run in runs}
        self.pools = dealing.pools(dataset)
        model = make_model(self.task.model, self.task.dataset, dataset.x_train.shape[1:], dataset.num_classes)
        capacity = max(len(rows) for split in self.splits.values() for rows in split.train)
        sizes = sizes_from(model.init, self.task.clients, self.task.cohort_size, capacity)

        def set_batch(batch_runs: int) -> None:
            chosen = maps.choose(how.client_map, how.run_map, batch_runs)
            self.batch_runs = batch_runs
            self.program = Program(first.parts[1], model, sizes, *chosen, first.state_dtype)
            self._compiled: dict[int, Any] = {}
            self._init: Any = None

        def memory_of(batch_runs: int) -> int:
            set_batch(batch_runs)
            return self.memory()

        by_memory = not how.batch_runs and jax.default_backend() != "cpu"
        set_batch(1 if by_memory else how.batch_runs or batch_size(len(runs), jax.device_count()))
        self.program.check_memory(self.stacked(runs[: self.batch_runs]))
        if by_memory:
            set_batch(fitting(len(runs), memory_of, jax.devices()[0].memory_stats()["bytes_limit"]))

    @property
    def algorithm(self) -> str:
        return self.missing[0].algorithm

    def batches(self) -> list[list[Run]]:
        """What is left to run, batch by batch."""
        return [self.missing[i : i + self.batch_runs] for i in range(0, len(self.missing), self.batch_runs)]

    def stacked(self, runs: Sequence[Run]) -> Any:
        """The runs as a batch of full size; a short one repeats its last run."""
        padded = [*runs, *[runs[-1]] * (self.batch_runs - len(runs))]
        tables = stack_tables([self.splits[run.seeds.data] for run in padded], list(self.splits.values()))
        return stack(padded, tables)

    def placed(self, runs: Sequence[Run]) -> tuple[Any, Any]:
        """The stacked runs and the examples, where the program wants them."""
        return jax.device_put((self.stacked(runs), self.pools), self.program.placement)

    def start(self, runs: Any) -> Any:
        """The states before the first round."""
        self._init = self._init or self.program.init()
        return self._init(runs)

    def is_compiled(self, rounds: int) -> bool:
        return rounds in self._compiled

    def chunk(self, rounds: int, *arguments: Any) -> Any:
        """The compiled chunk of so many rounds; compiled at its first call."""
        if rounds not in self._compiled:
            self._compiled[rounds] = self.program.chunk(rounds).lower(*arguments).compile()
        return self._compiled[rounds]

    def memory(self) -> int:
        """Bytes of the chunk program, arguments included, by XLA's own account."""
        runs, pools = self.placed(self.missing[: self.batch_runs])
        compiled = self.chunk(self.task.eval_every, runs, self.start(runs), round_number(0), pools)
        analysis = compiled.memory_analysis()
        return analysis.temp_size_in_bytes + analysis.argument_size_in_bytes + analysis.output_size_in_bytes


def groups(runs: Sequence[Run], done: set[str], datasets: dict[str, Dataset], how: How) -> list[Group]:
    """What is left to run, by compilation."""
    members = [(group, [run for run in group if run.id not in done]) for group in grouped(runs)]
    return [Group(group, missing, datasets[group[0].task.dataset], how) for group, missing in members if missing]


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


def estimate(group: Group) -> str:
    """Memory, and time from a timed first chunk (run after a warm-up that compiles it)."""
    task = group.task
    memory = group.memory()
    runs, pools = group.placed(group.missing[: group.batch_runs])
    seconds = []
    for _ in range(2):
        state = group.start(runs)
        begun = time.perf_counter()
        jax.block_until_ready(group.chunk(task.eval_every)(runs, state, round_number(0), pools))
        seconds.append(time.perf_counter() - begun)
    total = min(seconds) * task.rounds / task.eval_every * len(group.batches())
    chunk = f"{min(seconds):.2f} s for {task.eval_every} rounds"
    return f"{memory / 2**20:.0f} MiB, about {total:.0f} s ({chunk})"
