"""Rounds per second beside other libraries: the same work, interleaved in one run, each in a process of its own.

    python -m benchmarks.round_throughput --models=mlp,cnn --algorithms=fedavg,fedeba_plus --peers=all

Work: the paper's round (100 clients, 10 sampled, K = 10 steps of batch 50) on random images of the model's data set.
Peers get their best setting (benchmarks/peers says which; of several, the winner of a short trial, shown). Share: the
time that the round's operations would take at this machine's best GEMM rate in the same run, over the time it took
(in brackets: of the fastest repeat). Peak memory: resident sets of all processes, data included. Compilation is timed
apart. --profile=FOLDER instead traces our round and times its parts. Give it an idle machine. --out: a JSON file.
"""

from typing import Any

import numpy as np
from absl import flags

from benchmarks.tools import flops, limit, measure, profiling, worker
from benchmarks.tools.work import Work, random_data
from experiments.command import cli
from experiments.execution import session

FLAGS = flags.FLAGS
flags.DEFINE_string("profile", None, "Folder of a profiler trace: trace and time the parts of our rounds, no peers.")
for _flag in (*measure.WORK_FLAGS, "peers", "repeats", "seconds", "out"):
    flags.declare_key_flag(_flag)

HEADINGS = ["", "ms", "rounds/s", "examples/s", "share of limit", "peer / ours", "compile s", "peak MB", "setting"]


def measure_round(work: Work) -> tuple[list[dict[str, Any]], dict[str, measure.Ratio]]:
    """A row a contestant, and the ratios."""
    with worker.save(random_data(work)) as folder:
        contestants = {"ours": worker.Worker(worker.OURS, work.spec(folder))}
        try:
            for name in measure.peers(work.algorithm):
                try:
                    contestants[name] = worker.best(name, work.spec(folder))
                except cli.RunError as error:
                    print(f"{name} is left out: {error}", flush=True)
            runs = {name: contestant.run for name, contestant in contestants.items()}
            seconds = measure.interleaved(runs | limit.products())
            memory = {name: contestant.peak_memory() for name, contestant in contestants.items()}
        finally:
            for contestant in contestants.values():
                contestant.close()
    needed, best = flops.needed(work), limit.rate(seconds)
    rows, ratios = [], {}
    for name, contestant in contestants.items():
        taken = seconds[name]
        share = measure.ratio(np.full_like(taken, needed / best), taken)
        rows.append({
            "model": work.model, "algorithm": work.algorithm, "contestant": name, **contestant.facts,
            "seconds": float(np.median(taken)), "fastest_seconds": float(taken.min()), "all_seconds": taken,
            "examples_per_second": work.examples / float(np.median(taken)),
            "share": share.value, "fastest_share": needed / best / float(taken.min()),
            "gflop": needed / 1e9, "gemm_gflops": best / 1e9, "peak_bytes": memory[name],
        })  # fmt: skip
        label = f"{work.model} {work.algorithm}"
        if name == "ours":
            ratios[f"{label}: share of the limit"] = share
        else:
            ratios[f"{label}: {name} / ours"] = measure.ratio(taken, seconds["ours"])
    return rows, ratios


def cells(row: dict[str, Any], ratios: dict[str, measure.Ratio]) -> list[str]:
    ratio = ratios.get(f"{row['model']} {row['algorithm']}: {row['contestant']} / ours", "")
    compiling = f"{row['compile_seconds']:.1f}" if "compile_seconds" in row else ""
    setting = " ".join(f"{key}={value}" for key, value in row["setting"].items())
    return [
        row["contestant"], f"{row['seconds'] * 1e3:.1f}", f"{1 / row['seconds']:.2f}",
        f"{row['examples_per_second']:.0f}", f"{row['share']:.2f} ({row['fastest_share']:.2f})", str(ratio),
        compiling, f"{row['peak_bytes'] / 1e6:.0f}", setting,
    ]  # fmt: skip


def main() -> None:
    session.set_up()
    works = measure.works()
    if FLAGS.profile:
        for work in works:
            profiling.profile(work, FLAGS.profile)
        return
    for name in {name for work in works for name in measure.peers(work.algorithm)}:
        worker.python_of(name)  # what is missing is said before anything is measured
    measure.warn_if_busy()
    rows, ratios = [], {}
    for work in works:
        new, found = measure_round(work)
        rows += new
        ratios |= found
        print(f"{work.model} {work.algorithm}, {new[0]['gflop']:.2f} GFLOP, GEMM {new[0]['gemm_gflops']:.0f} GFLOP/s")
        print(measure.table(HEADINGS, [cells(row, ratios) for row in new]), flush=True)
    measure.write(FLAGS.out, "round_throughput", rows, ratios)


if __name__ == "__main__":
    cli.run(main)
