"""Evaluation of one model for all clients: 10,000 test images of 100 clients, scored flat with shared weights.

    python -m benchmarks.evaluation --models=mlp,cnn

Shown: time, images a second, and the share of the GEMM limit. --out: a JSON file.
"""

import time
from collections.abc import Callable
from typing import NamedTuple

import jax
import numpy as np
from absl import flags

from benchmarks.tools import flops, limit, measure
from benchmarks.tools.work import Work, federation_of, make_round, placement, random_data
from experiments.command import cli
from experiments.execution import session
from fedeba_jax import client_map as maps
from fedeba_jax.data.federation import held_out
from fedeba_jax.evaluate import score_model

FLAGS = flags.FLAGS
for _flag in ("models", "repeats", "seconds", "out"):
    flags.declare_key_flag(_flag)

IMAGES, CLIENTS = 10_000, 100


class Evaluation(NamedTuple):
    run: Callable[[int], float]  # (times) -> seconds
    compile_seconds: float
    temp_bytes: int


def operations(model: str) -> float:
    return IMAGES * flops.per_example(model)[0]


def compile_evaluation(model: str) -> Evaluation:
    work, place = Work(model), placement("auto")
    data = random_data(work)
    data = data._replace(
        x=data.x[:IMAGES], y=data.y[:IMAGES], index=np.arange(IMAGES, dtype=np.int32).reshape(CLIENTS, -1)
    )
    test = jax.device_put(held_out(federation_of(data, place)), place)
    made = make_round(work)
    params = jax.device_put(made.model.init(jax.random.key(0)), place)
    client_map = maps.by_name(maps.choose("auto", "map", 1)[0], "client_map")
    begun = time.perf_counter()
    score = jax.jit(lambda params, test: score_model(made.model.apply, params, test, client_map=client_map))
    compiled = score.lower(params, test).compile()
    seconds = time.perf_counter() - begun

    def run(count: int) -> float:
        begun = time.perf_counter()
        for _ in range(count):
            jax.block_until_ready(compiled(params, test))
        return time.perf_counter() - begun

    return Evaluation(run, seconds, compiled.memory_analysis().temp_size_in_bytes)


def main() -> None:
    session.set_up()
    measure.warn_if_busy()
    compiled = {model: compile_evaluation(model) for model in FLAGS.models}
    seconds = measure.interleaved({model: c.run for model, c in compiled.items()} | limit.products())
    best = limit.rate(seconds)
    rows, ratios = [], {}
    for model, c in compiled.items():
        taken = seconds[model]
        share = measure.ratio(np.full_like(taken, operations(model) / best), taken)
        ratios[f"{model} evaluation: share of the limit"] = share
        rows.append({
            "model": model, "seconds": float(np.median(taken)), "images_per_second": IMAGES / float(np.median(taken)),
            "share": share.value, "compile_seconds": c.compile_seconds, "temp_bytes": c.temp_bytes,
        })  # fmt: skip
    shown = [
        [r["model"], f"{r['seconds'] * 1e3:.1f}", f"{r['images_per_second']:.0f}", f"{r['share']:.2f}",
         f"{r['compile_seconds']:.1f}", f"{r['temp_bytes'] / 1e6:.1f}"]
        for r in rows
    ]  # fmt: skip
    print(measure.table([f"{IMAGES} images", "ms", "images/s", "share of limit", "compile s", "temp MB"], shown))
    measure.write(FLAGS.out, "evaluation", rows, ratios)


if __name__ == "__main__":
    cli.run(main)
