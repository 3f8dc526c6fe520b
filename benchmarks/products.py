"""The matrix products of the MLP's layers in a round, each alone: the least time that XLA's libraries leave the round.

    python -m benchmarks.products --algorithms=fedavg,fedeba_plus
    taskset -c 0 python -m benchmarks.products

All devices multiply at once, as they do in a round. With several devices XLA cuts products up for a pool of threads
that are all at work already; on one core (`taskset`) there is one device and one thread, so the difference is what that
costs. Shown: how often a device multiplies in a round, the time of one product and its share of the GEMM limit; then
the time of all of a round's products and of the round itself. --out: a JSON file.
"""

import collections
import itertools
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from absl import flags
from jax.sharding import PartitionSpec

from benchmarks.tools import flops, limit, measure
from benchmarks.tools.work import CLASSES, IMAGES, Work, compile_round, random_data
from experiments.command import cli
from experiments.execution import session
from fedeba_jax import client_map as maps

FLAGS = flags.FLAGS
for _flag in (*measure.WORK_FLAGS[1:], "repeats", "seconds", "out"):
    flags.declare_key_flag(_flag)

CONTRACTED = {"forward": (1, 1), "weights": (0, 0), "inputs": (1, 0)}
"""Of a layer y = x kernel' with gradient d of y: x kernel', d' x and d kernel."""


class Product(NamedTuple):
    """One of a layer's three products, for so many examples."""

    examples: int
    inputs: int
    outputs: int
    kind: str

    def __str__(self) -> str:
        return f"{self.kind}, {self.examples} examples, {self.inputs} to {self.outputs}"

    @property
    def operations(self) -> int:
        return 2 * self.examples * self.inputs * self.outputs

    @property
    def shapes(self) -> tuple[tuple[int, int], tuple[int, int]]:
        x, d, kernel = (self.examples, self.inputs), (self.examples, self.outputs), (self.outputs, self.inputs)
        return {"forward": (x, kernel), "weights": (d, x), "inputs": (d, kernel)}[self.kind]


def of_round(work: Work) -> collections.Counter[Product]:
    """How often one device multiplies what in a round of the MLP."""
    passes = flops.passes_needed(work.algorithm)
    clients = -(-work.cohort // jax.device_count())
    found: collections.Counter[Product] = collections.Counter()
    for examples, times, backward in (
        (work.batch, passes.training * work.steps, True),
        (work.images.per_client, passes.losses, False),
        (work.images.per_client, passes.gradients, True),
    ):
        for product in _products(examples, backward):
            found[product] += round(clients * times)
    return +found


def _products(examples: int, backward: bool) -> Iterator[Product]:
    widths = (int(np.prod(IMAGES["mlp"].shape)), *flops.HIDDEN["mlp"], CLASSES)
    for layer, (inputs, outputs) in enumerate(itertools.pairwise(widths)):
        yield Product(examples, inputs, outputs, "forward")
        if backward:
            yield Product(examples, inputs, outputs, "weights")
        if backward and layer:
            yield Product(examples, inputs, outputs, "inputs")


def alone(product: Product) -> Callable[[int], float]:
    """(count) -> seconds of so many of it on every device, inside a compiled loop."""
    mesh = maps.device_mesh()
    rng = np.random.default_rng(0)
    sides = [rng.standard_normal(shape).astype(np.float32) for shape in product.shapes]
    left, right = jax.device_put(sides, maps.replicated(mesh))
    contracted = tuple((dimension,) for dimension in CONTRACTED[product.kind])

    def loop(left: jax.Array, right: jax.Array, count: jax.Array) -> jax.Array:
        def multiply(left: jax.Array) -> jax.Array:
            return jax.lax.dot_general(left, right, (contracted, ((), ())))

        def once(_: Any, carry: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
            left, last = carry
            changed = left[:1, :1] + (last[:1, :1] > np.inf)  # each needs the last, so none can be left out
            left = jax.lax.dynamic_update_slice(left, changed, (0, 0))
            return left, multiply(left)

        out = jax.eval_shape(multiply, left)
        return jax.lax.fori_loop(0, count, once, (left, jnp.zeros(out.shape, out.dtype)))[1][None]

    whole, split = PartitionSpec(), PartitionSpec(maps.AXIS)
    program = jax.jit(jax.shard_map(loop, mesh=mesh, in_specs=whole, out_specs=split, check_vma=False))

    def run(count: int) -> float:
        begun = time.perf_counter()
        jax.block_until_ready(program(left, right, np.int32(count)))
        return time.perf_counter() - begun

    return run


def main() -> None:
    session.set_up()
    measure.warn_if_busy()
    works = [measure.work_of("mlp", algorithm) for algorithm in FLAGS.algorithms]
    times = {work: of_round(work) for work in works}
    products = sorted({product for counts in times.values() for product in counts}, key=lambda p: -p.operations)
    data = random_data(works[0])
    rounds = {work.algorithm: compile_round(work, data).run for work in works}
    seconds = measure.interleaved({str(p): alone(p) for p in products} | rounds | limit.products())
    best = limit.rate(seconds) / jax.device_count()
    medians = {name: float(np.median(taken)) for name, taken in seconds.items()}
    rows = [
        {
            "product": str(product), "times": {work.algorithm: times[work][product] for work in works},
            "seconds": medians[str(product)], "share": product.operations / medians[str(product)] / best,
        }
        for product in products
    ]  # fmt: skip
    totals = {
        work.algorithm: {
            "products_seconds": sum(n * medians[str(product)] for product, n in times[work].items()),
            "round_seconds": medians[work.algorithm],
        }
        for work in works
    }  # fmt: skip
    headings = ["product", *(f"times, {work.algorithm}" for work in works), "us", "share of limit"]
    shown = [
        [r["product"], *map(str, r["times"].values()), f"{r['seconds'] * 1e6:.1f}", f"{r['share']:.2f}"] for r in rows
    ]
    print(measure.table(headings, shown))
    for name, total in totals.items():
        alone_, whole = (total[key] * 1e3 for key in ("products_seconds", "round_seconds"))
        print(f"mlp {name}: {alone_:.1f} ms of products, {whole:.1f} ms the round ({whole - alone_:.1f} ms more)")
    measure.write(FLAGS.out, "products", rows, {}, totals=totals)


if __name__ == "__main__":
    cli.run(main)
