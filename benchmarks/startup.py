"""From the start of `python -m experiments.demo` to its first rounds: cold, and with the compilation cache.

    python -m benchmarks.startup --repeats=3

The clock stops when the demo has written its first rounds (it trains and evaluates in chunks, so the first are on disk
after one evaluation). Cold has an empty cache folder; warm is the same command again. --out: a JSON file.
"""

import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from absl import flags

from benchmarks.tools import measure
from benchmarks.tools.worker import ROOT
from experiments.command import cli
from experiments.execution import session

FLAGS = flags.FLAGS
for _flag in ("repeats", "out"):
    flags.declare_key_flag(_flag)

PATIENCE = 300.0  # seconds until a demo that writes nothing is given up


def first_rounds(folder: Path, cache: Path) -> float:
    """Seconds from the start of the process to the first rounds on disk; the demo is then ended."""
    begun = time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, "-m", "experiments.demo", f"--out={folder}", f"--compilation_cache={cache}"],
        cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        while time.perf_counter() - begun < PATIENCE:
            if any(path.stat().st_size for path in folder.glob("*/rounds.jsonl")):
                return time.perf_counter() - begun
            if process.poll() is not None:
                break
            time.sleep(0.01)
        raise cli.RunError(f"the demo wrote no rounds (exit code {process.poll()}); run `make demo` to see why")
    finally:
        process.kill()
        process.wait()


def main() -> None:
    session.set_up()
    measure.warn_if_busy()
    seconds: dict[str, list[float]] = {"cold": [], "warm": []}
    for _ in range(FLAGS.repeats):
        with tempfile.TemporaryDirectory(prefix="bench_") as folder:
            for name, taken in seconds.items():
                taken.append(first_rounds(Path(folder) / name, Path(folder) / "cache"))
    rows = [
        {"start": name, "seconds": float(np.median(taken)), "all_seconds": taken} for name, taken in seconds.items()
    ]
    shown = [[row["start"], f"{row['seconds']:.2f}", f"{min(row['all_seconds']):.2f}"] for row in rows]
    print(measure.table(["first round of the demo", "seconds", "fastest"], shown))
    found = measure.ratio(np.array(seconds["cold"]), np.array(seconds["warm"]))
    measure.write(FLAGS.out, "startup", rows, {"startup: cold / warm": found})


if __name__ == "__main__":
    cli.run(main)
