"""A FedAvg round of the larger models beside the same work as a PyTorch loop, in turns.

    python -m benchmarks.models --models=resnet18,mobilenet_v2,lstm_words

Work: two clients a round on random examples (`WORKS`): few steps, so that a turn takes seconds. PyTorch runs with one
thread and with one a core; its best is the one with the shorter median. Share: the time that the round's operations
would take at this machine's best GEMM rate, over the time it took; convolutions are counted as plain sums, so
Winograd's method may pass 1. --trace=FOLDER instead traces our round and shows its operations. --out: a JSON file.
"""

from typing import Any, NamedTuple

import jax
import numpy as np
import optax
from absl import flags

import fedeba_jax
from benchmarks.peers.protocol import Data, Spec
from benchmarks.tools import flops, limit, measure, tracing, worker
from benchmarks.tools.work import Round, compile_made, federation_of
from experiments.command import cli
from experiments.execution import session
from fedeba_jax import client_map as maps
from fedeba_jax.local import LocalTraining
from fedeba_jax.models import NORMALIZATION, make_model
from fedeba_jax.models.normalization import IDENTITY
from fedeba_jax.rounds import sizes_from

FLAGS = flags.FLAGS
flags.DEFINE_string(
    "trace", None, "Folder of a profiler trace: trace our rounds and show their operations, no PyTorch."
)
for _flag in ("repeats", "seconds", "out"):
    flags.declare_key_flag(_flag)

SHOWN = 25  # operations of a trace
RATE = 0.01
TORCH = worker.Entrant("benchmarks.peers.torch_deep", None, "torch", settings=tuple(worker.THREADS))
HEADINGS = ["", "ms", "fastest", "examples/s", "share of limit", "PyTorch / ours", "compile s", "temp MB"]


class Work(NamedTuple):
    """What a round trains, and on what."""

    shape: tuple[int, ...]  # of an example: an image, or tokens
    num_classes: int
    dataset: str  # whose normalisation the model takes
    batch: int
    steps: int = 1
    clients: int = 2  # all of them in each round


WORKS = {
    "resnet18": Work((32, 32, 3), 100, "cifar100", batch=128),
    # Batches of 128 would keep 4 GB of activations a client.
    "mobilenet_v2": Work((64, 64, 3), 200, "tiny_imagenet", batch=32),
    "lstm_words": Work((10,), 10_000, "reddit", batch=20, steps=10),
}


def random_data(work: Work) -> Data:
    """As many examples a client as it trains on in a round."""
    rng = np.random.default_rng(0)
    each = work.batch * work.steps
    count = work.clients * each
    if len(work.shape) == 1:
        x, y = (rng.integers(0, work.num_classes, (count, *work.shape), dtype=np.int32) for _ in range(2))
    else:
        x = rng.integers(0, 256, (count, *work.shape), dtype=np.uint8)
        y = rng.integers(0, work.num_classes, count, dtype=np.int32)
    y.flat[0] = work.num_classes - 1  # peers take the number of classes from the labels
    return Data(x, y, np.arange(count, dtype=np.int32).reshape(work.clients, each), x[:1], y[:1])


def make_round(name: str, work: Work) -> Round:
    """Our FedAvg round, not compiled."""
    model = make_model(name, work.dataset, work.shape, work.num_classes)
    sizes = sizes_from(model.init, work.clients, work.clients, work.batch * work.steps)
    local = LocalTraining(
        objective=fedeba_jax.cross_entropy(model), learning_rate=RATE, steps=work.steps, batch_size=work.batch
    )
    algorithm = fedeba_jax.ALGORITHMS["fedavg"](local, fedeba_jax.descent(optax.sgd(1.0)))
    client_map = maps.by_name(maps.choose("auto", "map", 1)[0])

    def function(federation: Any, state: Any, t: Any, seed: Any = 1) -> Any:
        key = jax.random.key(seed)
        return fedeba_jax.run_round(algorithm, federation, state, key, t, sizes=sizes, client_map=client_map)

    def init(seed: Any = 0) -> Any:
        return algorithm.init(jax.random.key(seed), model.init, sizes)

    return Round(function, init, model, algorithm, sizes, 1, ())


def operations(made: Round, data: Data) -> float:
    """Of a round, counted with plain convolutions."""
    arguments = jax.eval_shape(lambda: (federation_of(data, None), made.init(), np.int32(0)))
    return flops.of_program(made.function, *arguments)


def measure_model(name: str, work: Work) -> tuple[list[dict[str, Any]], dict[str, measure.Ratio]]:
    """A row a contestant, and the ratios of PyTorch's settings and of its best."""
    data = random_data(work)
    made = make_round(name, work)
    ours = compile_made(made, data, "auto")
    needed = operations(made, data)
    mean, std = NORMALIZATION.get(work.dataset, IDENTITY)
    with worker.save(data) as folder:
        spec = Spec(name, "fedavg", work.clients, work.steps, work.batch, RATE, mean, std, folder, {})
        peers = {
            f"PyTorch, {setting['threads']} threads": worker.Worker(TORCH, spec._replace(setting=setting))
            for setting in TORCH.settings
        }
        try:
            runs = {"ours": ours.run} | {peer: contestant.run for peer, contestant in peers.items()}
            seconds = measure.interleaved(runs | limit.products())
        finally:
            for contestant in peers.values():
                contestant.close()
    best_peer = min(peers, key=lambda peer: float(np.median(seconds[peer])))
    rate = limit.rate(seconds)
    ratios = {f"{name} fedavg: {peer} / ours": measure.ratio(seconds[peer], seconds["ours"]) for peer in peers}
    ratios[f"{name} fedavg: PyTorch / ours"] = ratios[f"{name} fedavg: {best_peer} / ours"]
    compiling = {"compile_seconds": ours.compile_seconds, "temp_bytes": ours.temp_bytes}
    rows = [
        {
            "model": name, "contestant": who, **work._asdict(), "seconds": float(np.median(seconds[who])),
            "fastest_seconds": float(seconds[who].min()), "all_seconds": seconds[who], "gflop": needed / 1e9,
            "gemm_gflops": rate / 1e9, "share": needed / rate / float(np.median(seconds[who])),
            **(compiling if who == "ours" else {}),
        }
        for who in runs
    ]  # fmt: skip
    return rows, ratios


def cells(row: dict[str, Any], ratios: dict[str, measure.Ratio]) -> list[str]:
    examples = row["clients"] * row["steps"] * row["batch"]
    ours = "compile_seconds" in row
    return [
        row["contestant"], f"{row['seconds'] * 1e3:.0f}", f"{row['fastest_seconds'] * 1e3:.0f}",
        f"{examples / row['seconds']:.0f}", f"{row['share']:.2f}",
        str(ratios.get(f"{row['model']} fedavg: {row['contestant']} / ours", "")),
        f"{row['compile_seconds']:.0f}" if ours else "", f"{row['temp_bytes'] / 1e6:.0f}" if ours else "",
    ]  # fmt: skip


def show_trace(name: str, work: Work, folder: str) -> None:
    """Trace our round, and print its operations by time."""
    traced = tracing.trace(compile_made(make_round(name, work), random_data(work), "auto"), tracing.Path(folder) / name)
    busy = sum(operation.seconds for operation in traced)
    print(f"{name}; trace: {folder}/{name} (open it with xprof, or ui.perfetto.dev)")
    shown = [
        [o.name, f"{o.times:.0f}", f"{o.seconds * 1e3:.1f}", f"{100 * o.seconds / busy:.1f} %", o.source]
        for o in traced[:SHOWN]
    ]
    print(measure.table(["operation", "times", "ms a round", "of all", "what"], shown), flush=True)


def main(names: list[str]) -> None:
    session.set_up()
    if unknown := [name for name in names if name not in WORKS]:
        raise ValueError(f"--models={unknown[0]} is not known; choose from {', '.join(WORKS)}")
    if FLAGS.trace:
        for name in names:
            show_trace(name, WORKS[name], FLAGS.trace)
        return
    measure.warn_if_busy()
    rows, ratios = [], {}
    for name in names:
        new, found = measure_model(name, WORKS[name])
        rows += new
        ratios |= found
        work = WORKS[name]
        print(f"{name}: {work.clients} clients, {work.steps} steps of batch {work.batch}, {new[0]['gflop']:.0f} GFLOP")
        print(measure.table(HEADINGS, [cells(row, ratios) for row in new]), flush=True)
    measure.write(FLAGS.out, "models", rows, ratios)


if __name__ == "__main__":
    # Other benchmarks' --models knows their networks alone.
    flags.DEFINE_list("models", list(WORKS), f"Networks: {', '.join(WORKS)}.", allow_override=True)
    cli.run(lambda: main(FLAGS.models))
