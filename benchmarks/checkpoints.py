"""What a run costs beside its rounds: rows, tables on the disk, checkpoints.

    python -m benchmarks.checkpoints --task=fashion_mnist_mini_mlp --rounds=2000

Runs `experiments`' own runner in a temporary folder, --repeats times, and takes the time between the chunks of rounds
as a share of all time after the first chunk (which compiles). --out: a JSON file.
"""

import tempfile
import time
from pathlib import Path

import numpy as np
from absl import flags

from benchmarks.tools import measure
from experiments.command import cli, grids
from experiments.command import flags as common_flags
from experiments.execution import runner, session
from experiments.execution.runner import Chunk, Plan

FLAGS = flags.FLAGS
common_flags.declare("task", "algorithm", "rounds", "eval_every", "checkpoint_every", "data_dir", "repeats", "out")
DEFAULTS = {"task": "fashion_mnist_mini_mlp", "algorithm": "fedavg", "rounds": 2000, "repeats": 3}


def share(algorithm: str) -> tuple[float, int]:
    """The share of a run's time that is not spent in chunks, and the number of checkpoints."""
    (run,) = grids.make([algorithm], [{}], task_name=FLAGS.task, changes=common_flags.changes(), seeds=[0])
    times: list[tuple[float, float]] = []  # when a chunk was told, and how long it took

    def tell(event: Plan | Chunk) -> None:
        if isinstance(event, Chunk):
            times.append((time.perf_counter(), event.seconds))

    with tempfile.TemporaryDirectory() as folder:
        runner.execute(
            [run], Path(folder) / "out", tell, data_dir=FLAGS.data_dir, checkpoint_every=FLAGS.checkpoint_every
        )
    if len(times) < 2:
        raise ValueError(f"--rounds={run.task.rounds} is one chunk; give more rounds, or a smaller --eval_every")
    told, seconds = np.array(times).T
    return 1 - seconds[1:].sum() / (told[-1] - told[0]), -(-len(times) // FLAGS.checkpoint_every)


def main() -> None:
    session.set_up()
    measure.warn_if_busy()
    shown, rows, ratios = [], [], {}
    for algorithm in FLAGS.algorithm:
        shares, checkpoints = zip(*(share(algorithm) for _ in range(FLAGS.repeats)), strict=True)
        low, median, high = np.quantile(shares, (0.25, 0.5, 0.75))
        ratio = measure.Ratio(float(median), float(low), float(high), "lower")
        ratios[f"checkpoints: share of time beside the rounds, {algorithm}"] = ratio
        rows.append({"algorithm": algorithm, "checkpoints": checkpoints[0], "share": ratio._asdict()})
        told = f"{100 * median:.2f} % ({100 * low:.2f} to {100 * high:.2f})"
        shown.append([algorithm, str(checkpoints[0]), told])
    print(measure.table([FLAGS.task, "checkpoints", "beside the rounds"], shown))
    measure.write(FLAGS.out, "checkpoints", rows, ratios)


if __name__ == "__main__":
    common_flags.set_defaults(DEFAULTS)
    cli.run(main)
