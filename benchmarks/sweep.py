"""A sweep of settings as one program, beside a PyTorch loop that runs them one after another.

    python -m benchmarks.sweep --settings=16 --models=mlp --algorithms=fedavg,fedeba_plus

Settings differ in the learning rate and in the algorithm's traced numbers; each has its own model, cohorts and batches
(settings that share a model would let XLA do some work once for all). Times are of one round of one setting. "single"
is our round without a sweep. --out: a JSON file.
"""

import dataclasses
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from absl import flags

import fedeba_jax
from benchmarks.peers.protocol import Data
from benchmarks.tools import flops, limit, measure, worker
from benchmarks.tools.work import Work, compile_round, federation_of, make_round, random_data, several_rounds
from experiments.command import cli
from experiments.execution import session
from fedeba_jax import client_map as maps
from fedeba_jax.hyperparameters import hyperparameters

FLAGS = flags.FLAGS
flags.DEFINE_integer("settings", 16, "Settings of the sweep.", lower_bound=1)
for _flag in (*measure.WORK_FLAGS, "peers", "run_map", "repeats", "seconds", "out"):
    flags.declare_key_flag(_flag)


class Sweep(NamedTuple):
    run: Callable[[int], float]  # (rounds) -> seconds a setting of them
    compile_seconds: float
    temp_bytes: int
    run_map: str


def compile_sweep(work: Work, data: Data, settings: int) -> Sweep:
    client_map, run_map = maps.choose("auto", FLAGS.run_map, settings)
    several = "sharded" in client_map + run_map
    place = maps.replicated(maps.device_mesh()) if several else None
    work = dataclasses.replace(work, client_map=client_map)
    factor = jnp.linspace(0.5, 1.0, settings)
    traced = [h for h in hyperparameters(fedeba_jax.ALGORITHMS[work.algorithm]).values() if h.traced and h.default]
    points = ({h.name: factor * h.default for h in traced}, factor * work.rate, jnp.arange(settings))
    federation = federation_of(data, place)

    def one(point: Any, state: Any, federation: Any, first: Any, count: Any) -> Any:
        numbers, rate, seed = point
        made = make_round(dataclasses.replace(work, rate=rate), numbers)
        return several_rounds(made, federation, state, first, count, seed)

    over_runs = maps.by_name(run_map, "run_map")
    state = jax.jit(over_runs(make_round(work).init, in_axes=0), out_shardings=place)(jnp.arange(settings))
    program = jax.jit(over_runs(one, in_axes=(0, 0, None, None, None)), donate_argnums=1, out_shardings=place)
    points = jax.device_put(points, place)
    begun = time.perf_counter()
    compiled = program.lower(points, state, federation, np.int32(0), np.int32(1)).compile()
    seconds = time.perf_counter() - begun
    done = 0

    def run(count: int) -> float:
        nonlocal state, done
        begun = time.perf_counter()
        state, _ = jax.block_until_ready(compiled(points, state, federation, np.int32(done), np.int32(count)))
        done += count
        return (time.perf_counter() - begun) / settings

    return Sweep(run, seconds, compiled.memory_analysis().temp_size_in_bytes, run_map)


def measure_sweep(work: Work) -> tuple[list[dict[str, Any]], dict[str, measure.Ratio]]:
    data, settings = random_data(work), FLAGS.settings
    sweep = compile_sweep(work, data, settings)
    runs = {"sweep": sweep.run, "single": compile_round(work, data).run}
    with worker.save(data) as folder:
        peers = {name: worker.best(name, work.spec(folder)) for name in measure.peers(work.algorithm)}
        try:
            seconds = measure.interleaved(runs | {n: p.run for n, p in peers.items()} | limit.products())
        finally:
            for peer in peers.values():
                peer.close()
    needed, best = flops.needed(work), limit.rate(seconds)
    label = f"{work.model} {work.algorithm} sweep of {settings}"
    share = measure.ratio(np.full(FLAGS.repeats, needed / best), seconds["sweep"])
    ratios = {f"{label}: share of the limit": share}
    rows = []
    for name in (*runs, *peers):
        if name != "sweep":
            ratios[f"{label}: {name} / sweep"] = measure.ratio(seconds[name], seconds["sweep"])
        taken, fastest = float(np.median(seconds[name])), float(np.min(seconds[name]))
        rows.append({
            "sweep": label, "contestant": name, "seconds": taken, "fastest_seconds": fastest,
            "share": needed / best / taken, "fastest_share": needed / best / fastest,
            **({"compile_seconds": sweep.compile_seconds, "temp_bytes": sweep.temp_bytes, "run_map": sweep.run_map}
               if name == "sweep" else peers[name].facts if name in peers else {}),
        })  # fmt: skip
    return rows, ratios


def main() -> None:
    session.set_up()
    works = measure.works()
    for name in {name for work in works for name in measure.peers(work.algorithm)}:
        worker.python_of(name)
    measure.warn_if_busy()
    rows: list[dict[str, Any]] = []
    ratios: dict[str, measure.Ratio] = {}
    for work in works:
        new, found = measure_sweep(work)
        rows, ratios = rows + new, ratios | found
        shown = [
            [r["contestant"], f"{r['seconds'] * 1e3:.1f}", f"{r['share']:.2f} ({r['fastest_share']:.2f})",
             str(found.get(f"{r['sweep']}: {r['contestant']} / sweep", "")),
             f"{r['compile_seconds']:.1f}" if "compile_seconds" in r else "",
             f"{r['temp_bytes'] / 1e6:.1f}" if "temp_bytes" in r else ""]
            for r in new
        ]  # fmt: skip
        headings = [new[0]["sweep"], "ms a setting", "share of limit", "/ sweep", "compile s", "temp MB"]
        print(measure.table(headings, shown), flush=True)
    measure.write(FLAGS.out, "sweep", rows, ratios)


if __name__ == "__main__":
    cli.run(main)
