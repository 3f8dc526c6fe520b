"""How everything is measured: contestants in turns, each long enough, ratios within a turn.

A noisy machine hurts all contestants of a turn alike, so ratios are taken within turns and reported as their median
with quartiles; absolute times are medians too and belong to their run only. Times are monotonic wall-clock times.
"""

import datetime
import os
import time
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from absl import flags

from benchmarks.tools.work import IMAGES, Work
from benchmarks.tools.worker import PAUSE, PEERS
from experiments.execution import folder, processes
from fedeba_jax import ALGORITHMS

FLAGS = flags.FLAGS
WORK_FLAGS = ("models", "algorithms", "clients", "cohort_size", "steps", "batch_size")  # of the work, for `works`
flags.DEFINE_integer("repeats", 9, "Turns of all contestants.", lower_bound=1)
flags.DEFINE_list("models", ["mlp", "cnn"], "Networks: mlp (28x28, 600 examples a client), cnn (32x32x3, 500).")
flags.DEFINE_list("algorithms", ["fedavg", "fedeba_plus"], "Algorithms.")
flags.DEFINE_list("peers", ["torch_loop"], f"Libraries to compare with: {', '.join(PEERS)}, or all, or none.")
flags.DEFINE_float("seconds", 1.0, "Least time of one measurement; what is shorter is repeated to fill it.")


def _known(flag: str, names: Collection[str]) -> None:
    """Only these values in a list flag; said when flags are parsed."""

    def check(values: list[str]) -> bool:
        if unknown := [value for value in values if value not in names]:
            raise flags.ValidationError(f"{unknown[0]} is not known; choose from {', '.join(names)}")
        return True

    flags.register_validator(flag, check)


_known("models", IMAGES)
_known("algorithms", ALGORITHMS)

BUSY = 0.2  # share of the machine that others may use without a warning
Seconds = dict[str, np.ndarray]  # contestant -> seconds a unit of work, [repeats]


class Ratio(NamedTuple):
    """The median of paired ratios, with quartiles. `better` is what a larger value means to us, or a smaller one."""

    value: float
    low: float
    high: float
    better: str = "higher"

    def __str__(self) -> str:
        return f"{self.value:.2f} ({self.low:.2f} to {self.high:.2f})"


def interleaved(contestants: Mapping[str, Callable[[int], float]]) -> Seconds:
    """Seconds of one unit of work of each contestant, a function (units) -> seconds, in every turn."""
    units = {name: _units(run) for name, run in contestants.items()}
    seconds: dict[str, list[float]] = {name: [] for name in contestants}
    names = list(contestants)
    for turn in range(FLAGS.repeats):
        start = turn % len(names)  # nobody always follows the same neighbour
        for name in names[start:] + names[:start]:
            seconds[name].append(contestants[name](units[name]) / units[name])
            time.sleep(PAUSE)
    return {name: np.array(values) for name, values in seconds.items()}


def ratio(above: np.ndarray, below: np.ndarray, better: str = "higher") -> Ratio:
    """Of paired measurements: the median of above / below."""
    ratios = np.asarray(above) / np.asarray(below)
    return Ratio(float(np.median(ratios)), *map(float, np.quantile(ratios, [0.25, 0.75])), better)


def work_of(model: str, algorithm: str) -> Work:
    """The paper's round, with what --clients, --cohort_size, --steps and --batch_size change."""
    given = {"clients": FLAGS.clients, "cohort": FLAGS.cohort_size, "steps": FLAGS.steps, "batch": FLAGS.batch_size}
    return Work(model, algorithm, **{name: value for name, value in given.items() if value is not None})


def works() -> list[Work]:
    """Of --models and --algorithms."""
    return [work_of(model, algorithm) for model in FLAGS.models for algorithm in FLAGS.algorithms]


def peers(algorithm: str) -> list[str]:
    """Those of --peers that have the algorithm."""
    chosen = list(PEERS) if FLAGS.peers == ["all"] else [] if FLAGS.peers == ["none"] else FLAGS.peers
    if unknown := set(chosen) - set(PEERS):
        raise ValueError(f"--peers={unknown.pop()} is not known; choose from {', '.join(PEERS)}, or all, or none")
    return [name for name in chosen if algorithm in PEERS[name].algorithms]


def environment() -> dict[str, Any]:
    """Versions, commit, devices and machine, with its load before we began."""
    known = folder.environment()
    machine = known["machine"] | {"load": os.getloadavg()}
    return known | {"machine": machine, "date": datetime.date.today().isoformat()}


def warn_if_busy() -> None:
    if (busy := busy_share()) > BUSY:
        print(f"warning: the machine is {busy:.0%} busy: absolute times, and ratios to a degree, mean little")


def busy_share(seconds: float = 0.5) -> float:
    """Share of all cores at work in the next moment (Linux); the load average would remember the last benchmark."""
    stat = Path("/proc/stat")
    if not stat.exists():
        return os.getloadavg()[0] / (os.cpu_count() or 1)

    def ticks() -> np.ndarray:
        return np.array(stat.read_text().split("\n", 1)[0].split()[1:9], float)  # user nice system idle iowait ...

    before = ticks()
    time.sleep(seconds)
    used = ticks() - before
    return float(1 - (used[3] + used[4]) / max(used.sum(), 1))


def write(
    path: str | None, benchmark: str, rows: list[dict[str, Any]], ratios: Mapping[str, Ratio], **more: Any
) -> None:
    """All of a benchmark's results as JSON, if there is a path; `ratios` are what `benchmarks.check` compares."""
    if not path:
        return
    content = {"benchmark": benchmark, "environment": environment(), "rows": rows} | more
    content["ratios"] = {name: r._asdict() for name, r in ratios.items()}
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    folder.write_json(Path(path), content)
    print(f"results: {path}")


def table(headings: list[str], rows: list[list[str]]) -> str:
    """Lines with aligned columns, the first to the left."""
    lines = [headings, *rows]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]

    def line(cells: list[str]) -> str:
        sized = zip(cells[1:], widths[1:], strict=True)
        return "  ".join([f"{cells[0]:{widths[0]}}", *(f"{cell:>{width}}" for cell, width in sized)])

    return "\n".join(map(line, lines))


def _units(run: Callable[[int], float]) -> int:
    """How many units fill a measurement; also warms up. Several processes need the same number."""
    run(1)
    units = max(1, round(FLAGS.seconds / run(1)))
    return int(processes.agreed(lambda: units))
