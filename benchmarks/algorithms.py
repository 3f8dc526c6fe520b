"""Every algorithm beside FedAvg, in one interleaved run.

    python -m benchmarks.algorithms --models=mlp

Columns: the round's time; rounds, and examples trained on, a second; the time over FedAvg's; over FedAvg's plus the
loss evaluations that the method needs; over all of its passes (trainings, losses, gradients, as `flops.PROGRAM` has
them), each timed alone: 1 means that what the method adds at the server is free. --algorithms: all unless given.
--out: a JSON file.
"""

from typing import Any

import numpy as np
from absl import flags

from benchmarks.tools import flops, limit, measure
from benchmarks.tools.work import compile_round, random_data
from experiments.command import cli
from experiments.execution import session
from fedeba_jax import ALGORITHMS

FLAGS = flags.FLAGS
for _flag in (*measure.WORK_FLAGS, "repeats", "seconds", "out"):
    flags.declare_key_flag(_flag)

BASE = ("fedavg", "losses", "gradient")  # what the columns are reckoned with


def measure_model(model: str, names: list[str]) -> tuple[list[dict[str, Any]], dict[str, measure.Ratio]]:
    works = {name: measure.work_of(model, name) for name in dict.fromkeys([*BASE, *names])}
    data = random_data(works["fedavg"])
    contestants = {name: compile_round(work, data) for name, work in works.items()}
    seconds = measure.interleaved({name: c.run for name, c in contestants.items()} | limit.products())
    best = limit.rate(seconds)
    fedavg, losses, gradient = (seconds[name] for name in BASE)
    rows, ratios = [], {}
    for name in names:
        passes, taken = flops.PROGRAM[name], seconds[name]
        own = passes.training * fedavg + passes.losses * losses + passes.gradients * gradient
        against = {
            "fedavg": measure.ratio(taken, fedavg, "lower"),
            "fedavg_and_losses": measure.ratio(taken, fedavg + passes.losses * losses, "lower"),
            "passes": measure.ratio(taken, own, "lower"),
        }
        ratios[f"{model} {name}: round / its passes"] = against["passes"]
        rows.append({
            "model": model, "algorithm": name, "seconds": float(np.median(taken)),
            "examples_per_second": works[name].examples / float(np.median(taken)),
            "share": flops.needed(works[name]) / best / float(np.median(taken)),
            "compile_seconds": contestants[name].compile_seconds, "temp_bytes": contestants[name].temp_bytes,
            "passes": passes._asdict(), **{f"over_{key}": value._asdict() for key, value in against.items()},
        })  # fmt: skip
    return rows, ratios


def main() -> None:
    session.set_up()
    names = list(FLAGS.algorithms) if FLAGS["algorithms"].present else list(ALGORITHMS)
    measure.warn_if_busy()
    rows: list[dict[str, Any]] = []
    ratios: dict[str, measure.Ratio] = {}
    headings = [
        "ms", "rounds/s", "examples/s", "/ fedavg", "/ (fedavg + losses)", "/ its passes", "share", "compile s",
        "temp MB",
    ]  # fmt: skip
    for model in FLAGS.models:
        new, found = measure_model(model, names)
        rows, ratios = rows + new, ratios | found
        shown = [
            [r["algorithm"], f"{r['seconds'] * 1e3:.1f}", f"{1 / r['seconds']:.2f}", f"{r['examples_per_second']:.0f}",
             *(str(measure.Ratio(**r[f"over_{key}"])) for key in ("fedavg", "fedavg_and_losses", "passes")),
             f"{r['share']:.2f}", f"{r['compile_seconds']:.1f}", f"{r['temp_bytes'] / 1e6:.1f}"]
            for r in new
        ]  # fmt: skip
        print(measure.table([model, *headings], shown), flush=True)
    measure.write(FLAGS.out, "algorithms", rows, ratios)


if __name__ == "__main__":
    cli.run(main)
