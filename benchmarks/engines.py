"""What other engines cost beside one process: rounds over two processes, and batches as Ray's tasks.

    python -m benchmarks.engines --repeats=3

Both on this machine, where they can only cost. "processes": rounds/s of the MLP's FedAvg with two processes of one
device each, over one process with two devices; runs of both in turn, compilation left out. "ray": seconds that a batch
of 16 runs takes beyond the start, as a task with all cores over the same batch in a plain sweep; from sweeps of two and
of four batches, in turn. --out: a JSON file.
"""

import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from absl import flags

from benchmarks.tools import measure
from experiments.command import cli
from experiments.command import flags as common_flags
from experiments.execution import folder

FLAGS = flags.FLAGS
flags.DEFINE_integer("num_rounds", 1000, "Rounds of a run.", lower_bound=10)
flags.DEFINE_list("engines", ["processes", "ray"], "What to measure.")
flags.declare_key_flag("repeats")
common_flags.declare("out")
TASK = ("--task=fashion_mnist_mini_mlp", "--algorithm=fedavg")
RUNS = 16  # of a batch


def run(*arguments: str) -> float:
    """Seconds of a binary."""
    begun = time.perf_counter()
    done = subprocess.run([sys.executable, "-m", *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        raise cli.RunError(f"{' '.join(arguments)}: {done.stderr.strip() or 'failed'}")
    return time.perf_counter() - begun


def rate(out: Path) -> float:
    """Rounds/s of a run without the chunks that were compiled."""
    timed = [row for row in folder.read_rows(out / folder.TIMINGS) if not row["compiled"]]
    return sum(row["rounds"] for row in timed) / sum(row["seconds"] for row in timed)


def processes(place: Path, turns: int) -> np.ndarray:
    """Two processes over one: rounds/s, [turns]."""
    settings = [*TASK, f"--rounds={FLAGS.num_rounds}", f"--eval_every={FLAGS.num_rounds // 5}", "--noplot"]
    ratios = []
    for turn in range(turns):
        one, two = place / f"one{turn}", place / f"two{turn}"
        run("experiments.train", *settings, "--host_devices=2", f"--out={one}")
        run("experiments.launch", "--processes=2", "--", "train", *settings, "--host_devices=1", f"--out={two}")
        ratios.append(rate(two) / rate(one))
    return np.array(ratios)


def ray(place: Path, turns: int) -> np.ndarray:
    """Seconds of a batch as a task over its seconds in a plain sweep, [turns]."""
    rounds = FLAGS.num_rounds
    settings = ["experiments.sweep", *TASK, f"--rounds={rounds}", f"--eval_every={rounds // 5}", f"--batch_runs={RUNS}"]
    ways = {"plain": ["--host_devices=2"], "ray": ["--ray", "--cpus_per_task=2"]}
    ratios = []
    for turn in range(turns):
        each = {}
        for way, flags_of_way in ways.items():
            few, many = (
                run(*settings, *flags_of_way, f"--seeds=0:{n * RUNS}", f"--out={place / f'{way}{n}_{turn}'}")
                for n in (2, 4)
            )
            each[way] = (many - few) / 2
        ratios.append(each["ray"] / each["plain"])
    return np.array(ratios)


MEASURES = {"processes": (processes, "higher"), "ray": (ray, "lower")}


def main() -> None:
    if unknown := set(FLAGS.engines) - set(MEASURES):
        raise ValueError(f"--engines={','.join(sorted(unknown))} is not valid; give {' or '.join(MEASURES)}")
    measure.warn_if_busy()
    ratios = {}
    for name in FLAGS.engines:
        measured, better = MEASURES[name]
        with tempfile.TemporaryDirectory() as place:
            found = measured(Path(place), FLAGS.repeats)
        ratios[name] = measure.ratio(found, np.ones_like(found), better)
        print(
            f"{name}: {np.median(found):.2f} ({found.min():.2f} to {found.max():.2f}) of {len(found)} turns", flush=True
        )
    measure.write(FLAGS.out, "engines", [], ratios)


if __name__ == "__main__":
    cli.run(main)
