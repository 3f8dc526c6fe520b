"""How a round's cost grows: with the cohort, the number of clients, the local steps, and by client map; memory too.

    python -m benchmarks.scaling --cohorts=10,30,100,300,1000 --num_clients=100,1000,10000

Cost should be linear in the cohort and in the steps (time a client and time a step stay), and flat in the number of
clients. Memory is what XLA allocates for the compiled round beside its arguments (`temp`); with `chunked` it should be
a chunk's plus the n stacked updates, so `temp - n updates` stays. Every group is interleaved, the limit with it.
--out: a JSON file.
"""

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from absl import flags

from benchmarks.tools import flops, limit, measure
from benchmarks.tools.work import Work, compile_round, make_round, random_data
from experiments.command import cli
from experiments.execution import session

FLAGS = flags.FLAGS
flags.DEFINE_list("cohorts", ["10", "30", "100", "300", "1000"], "Cohort sizes n, among 1,000 clients.")
flags.DEFINE_list("num_clients", ["100", "1000", "10000"], "Numbers of clients M, 10 sampled.")
flags.DEFINE_list("num_steps", ["10", "1", "50"], "Local steps K.")
flags.DEFINE_list("maps", ["auto", "map", "vmap", "chunked(5)", "sharded", "sharded(vmap)"], "Client maps.")
flags.DEFINE_integer("chunk", 10, "Chunk of the memory table.")
for _flag in (*measure.WORK_FLAGS, "repeats", "seconds", "out"):
    flags.declare_key_flag(_flag)

AMONG = 1000


class Group(NamedTuple):
    """Works that are compared with the first of them."""

    title: str
    works: dict[str, Work]
    size: Callable[[Work], float]  # what time is divided by


def groups(work: Work) -> list[Group]:
    def change(**changes: Any) -> Work:
        return dataclasses.replace(work, **changes)

    cohorts, clients, steps = (list(map(int, texts)) for texts in (FLAGS.cohorts, FLAGS.num_clients, FLAGS.num_steps))
    among = max([AMONG, *cohorts])
    return [
        Group("cohort, a client", {f"n={n}": change(cohort=n, clients=among) for n in cohorts}, lambda w: w.cohort),
        Group("clients, a round", {f"M={m}": change(clients=m) for m in clients}, lambda w: 1),
        Group("steps, a step", {f"K={k}": change(steps=k) for k in steps}, lambda w: w.steps),
        Group("client map, a round", {name: change(client_map=name) for name in FLAGS.maps}, lambda w: 1),
    ]


def measure_group(group: Group) -> tuple[list[dict[str, Any]], dict[str, measure.Ratio]]:
    compiled = {name: compile_round(work, random_data(work)) for name, work in group.works.items()}
    seconds = measure.interleaved({name: c.run for name, c in compiled.items()} | limit.products())
    best = limit.rate(seconds)
    each = {name: seconds[name] / group.size(work) for name, work in group.works.items()}
    first = next(iter(each))
    rows, ratios = [], {}
    for name, work in group.works.items():
        found = measure.ratio(each[name], each[first], "lower")
        label = f"{work.model} {work.algorithm} {group.title}"
        if name != first:
            ratios[f"{label}: {name} / {first}"] = found
        rows.append({
            "group": label, "what": name, "seconds": float(np.median(seconds[name])),
            "seconds_each": float(np.median(each[name])), "over_first": found._asdict(),
            "share": flops.needed(work) / best / float(np.median(seconds[name])),
            "temp_bytes": compiled[name].temp_bytes, "compile_seconds": compiled[name].compile_seconds,
        })  # fmt: skip
    return rows, ratios


def memory(work: Work) -> list[dict[str, Any]]:
    """Temporary memory by cohort size, one chunk at a time; nothing runs."""
    rows = []
    for n in (int(text) for text in FLAGS.cohorts):
        sized = dataclasses.replace(work, cohort=n, clients=max(AMONG, n), client_map=f"chunked({FLAGS.chunk})")
        updates = 4 * n * make_round(sized).sizes.model_size
        temp = compile_round(sized, random_data(sized)).temp_bytes
        rows.append({"model": work.model, "algorithm": work.algorithm, "cohort": n, "chunk": FLAGS.chunk,
                     "temp_bytes": temp, "stacked_updates_bytes": updates})  # fmt: skip
    return rows


def main() -> None:
    session.set_up()
    measure.warn_if_busy()
    rows: list[dict[str, Any]] = []
    ratios: dict[str, measure.Ratio] = {}
    sizes: list[dict[str, Any]] = []
    for work in measure.works():
        for group in groups(work):
            if not group.works:
                continue
            new, found = measure_group(group)
            rows, ratios = rows + new, ratios | found
            shown = [
                [r["what"], f"{r['seconds'] * 1e3:.1f}", f"{r['seconds_each'] * 1e3:.3f}",
                 str(measure.Ratio(**r["over_first"])), f"{r['share']:.2f}", f"{r['temp_bytes'] / 1e6:.1f}"]
                for r in new
            ]  # fmt: skip
            headings = [new[0]["group"], "ms a round", "ms each", "each / first", "share of limit", "temp MB"]
            print(measure.table(headings, shown), flush=True)
        new = memory(work)
        sizes += new
        shown = [
            [f"n={r['cohort']}", *(f"{r[key] / 1e6:.1f}" for key in ("temp_bytes", "stacked_updates_bytes")),
             f"{(r['temp_bytes'] - r['stacked_updates_bytes']) / 1e6:.1f}"]
            for r in new
        ]  # fmt: skip
        title = f"{work.model} {work.algorithm} chunked({FLAGS.chunk})"
        print(measure.table([title, "temp MB", "n updates MB", "temp - n updates MB"], shown), flush=True)
    measure.write(FLAGS.out, "scaling", rows, ratios, memory=sizes)


if __name__ == "__main__":
    cli.run(main)
