"""Where the time of our round goes: a profiler trace, a table of its operations, and one of its parts timed apart."""

import dataclasses
from pathlib import Path

import numpy as np

from benchmarks import evaluation, overhead
from benchmarks.tools import flops, limit, measure, tracing
from benchmarks.tools.work import Work, compile_round, random_data

SHOWN = 25  # operations
SERVER = ("averaging", "weights", "gate", "mixing")


def profile(work: Work, folder: str) -> None:
    """Trace a few rounds into FOLDER/MODEL_ALGORITHM, and print the time of the round's operations and parts.

    Parts run as programs of their own (`parts`, `overhead`, `evaluation`), so they need not add up: what is left of the
    round is what only shows in the whole, for instance waiting of one device for another.
    """
    data = random_data(work)
    whole = compile_round(work, data)
    place = Path(folder) / f"{work.model}_{work.algorithm}"
    traced = tracing.trace(whole, place)
    busy = sum(operation.seconds for operation in traced)
    print(f"{work.model} {work.algorithm}; trace: {place} (open it with xprof, or ui.perfetto.dev)")
    shown = [
        [o.name, f"{o.times:.0f}", f"{o.seconds / o.times * 1e6:.1f}", f"{100 * o.seconds / busy:.1f} %", o.source]
        for o in traced[:SHOWN]
    ]
    print(measure.table(["operation", "times", "us each", "of all", "what"], shown))
    passes = flops.passes_needed(work.algorithm)
    often = {"training": passes.training, "losses": passes.losses, "gradient": passes.gradients, "sampling": 1}
    parts = {
        name: compile_round(dataclasses.replace(work, algorithm=name), data).run
        for name, times in often.items() if times
    }  # fmt: skip
    server = {name: run for name, run in overhead.functions(work).items() if name in SERVER}
    scoring = {"evaluation": evaluation.compile_evaluation(work.model).run}
    seconds = measure.interleaved({"round": whole.run} | parts | server | scoring | limit.products())
    best, total = limit.rate(seconds), float(np.median(seconds["round"]))
    rows, left = [], total
    for name in ("round", *parts, *server, *scoring):
        times = often.get(name, 1)
        each = float(np.median(seconds[name]))
        if name not in ("round", "evaluation"):
            left -= times * each
        work_done = {"round": flops.of_passes(work, passes), "evaluation": evaluation.operations(work.model)}
        done = work_done.get(name) or flops.of_passes(work, flops.PROGRAM.get(name, flops.Passes(0)))
        share = f"{done / each / best:.2f}" if done else ""
        rows.append([name, f"{times:g}", f"{each * 1e3:.3f}", f"{100 * times * each / total:.1f} %", share])
    rows.append(["left", "", f"{left * 1e3:.3f}", f"{100 * left / total:.1f} %", ""])
    print(measure.table(["part", "times", "ms each", "of the round", "share of limit"], rows), flush=True)
