"""How a round's cost grows with the number of clients, examples on the devices or on the host.

    python -m benchmarks.clients --num_clients=1000,10000,100000,1000000

FedAvg with logistic regression on `synthetic_uniform` clients (30 examples of 20 features each), 100 sampled in each
round. "on the host", a chunk of rounds gets the examples of its cohorts, gathered while the chunk before it runs; each
device gets those of its own clients. The rounds of all numbers of clients are interleaved; the ratio is to the first
number, on the devices. Memory is the peak of each process so far, with the pages of memory-mapped files that it has
seen, and without them: give --places=host and one number to see it alone. With --distributed, over processes
(docs/scaling.md). --out: a JSON file.
"""

import resource
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
import optax
from absl import flags
from jax.experimental import multihost_utils

import fedeba_jax
from benchmarks.tools import measure
from experiments.command import cli
from experiments.command import flags as common_flags
from experiments.execution import processes, session
from fedeba_jax import client_map as maps
from fedeba_jax.data import synthetic
from fedeba_jax.data.hosting import Stored, enrolled, most_examples, part
from fedeba_jax.rounds import cohorts, run_rounds, sizes_from, start
from fedeba_jax.types import Divided, Federation, PerDevice

FLAGS = flags.FLAGS
flags.DEFINE_list("num_clients", ["1000", "10000", "100000", "1000000"], "Numbers of clients M.")
flags.DEFINE_list("places", ["devices", "host"], "Where the examples lie: devices, host.")
flags.DEFINE_integer("chunk", 50, "Rounds of a chunk.", lower_bound=1)
common_flags.declare("cohort_size", "steps", "batch_size", "data_dir", "repeats", "seconds", "out", "host_devices")
common_flags.declare("distributed", "coordinator_address", "process_id", "num_processes")

EXAMPLES, FEATURES, CLASSES = 30, 20, 10
SEED = 0


class Simulation:
    """FedAvg on so many clients, a chunk of rounds at a time."""

    anonymous = 0  # bytes seen so far that are of no file

    def __init__(self, clients: int) -> None:
        data = synthetic.uniform(clients, EXAMPLES, FEATURES, tests=1, data_dir=FLAGS.data_dir)
        rows = np.arange(clients * EXAMPLES, dtype=np.int32).reshape(clients, EXAMPLES)
        self.stored = Stored(data.x_train, data.y_train, rows, np.full(clients, EXAMPLES, np.int32))
        model = fedeba_jax.make_model("logistic", "synthetic_uniform", (FEATURES,), CLASSES)
        self.sizes = sizes_from(model.init, clients, FLAGS.cohort_size or 100, EXAMPLES)
        self.mesh = maps.device_mesh()
        everywhere = maps.replicated(self.mesh)
        client_map = maps.sharded(self.mesh)
        local = fedeba_jax.LocalTraining(
            fedeba_jax.cross_entropy(model), 0.1, steps=FLAGS.steps or 10, batch_size=FLAGS.batch_size or 10
        )
        algorithm = fedeba_jax.fedavg(local, fedeba_jax.descent(optax.sgd(1.0)))
        state = start(algorithm, model.init, jax.random.key(SEED), sizes=self.sizes)
        self.state = maps.place(jax.tree.map(np.asarray, state), everywhere)

        def chunk(federation: Federation, state: Any, first: jax.Array) -> Any:
            return run_rounds(
                algorithm, federation, state, jax.random.key(SEED), first,
                rounds=FLAGS.chunk, sizes=self.sizes, client_map=client_map,
            )[0]  # fmt: skip

        self.chunk = jax.jit(chunk, out_shardings=everywhere)
        self.put = lambda whole: maps.place(whole, everywhere)

    def on_devices(self) -> Callable[[int], float]:
        """(chunks) -> seconds, all examples on the devices."""
        federation = self.put(Federation(*self.stored))  # type: ignore[arg-type]

        def run(chunks: int) -> float:
            begun, state = time.perf_counter(), self.state
            for i in range(chunks):
                state = self.chunk(federation, state, np.int32(i * FLAGS.chunk))
            jax.block_until_ready(state)
            return time.perf_counter() - begun

        return run

    def from_host(self) -> Callable[[int], float]:
        """(chunks) -> seconds, each chunk with the examples of its own cohorts."""
        num_clients, cohort, devices = self.sizes.num_clients, self.sizes.cohort_size, self.mesh.devices.size
        most, clients = (min(num_clients, FLAGS.chunk * n) for n in (cohort, -(-cohort // devices)))
        examples = most_examples(self.stored.num_examples, clients)
        draw = jax.jit(lambda first: cohorts(jax.random.key(SEED), first, FLAGS.chunk, self.sizes))

        def feed(asked: np.ndarray) -> Divided:
            shares = maps.shares(asked.T, devices)
            parts = maps.place_parts(lambda i: part(self.stored, shares[i], clients, examples), self.mesh)
            ids, num_examples = self.put(enrolled(self.stored.num_examples, asked, most))
            return Divided(PerDevice(parts), num_examples, ids)

        def run(chunks: int) -> float:
            begun, state = time.perf_counter(), self.state
            data = feed(np.asarray(draw(np.int32(0))))
            for i in range(chunks):
                asked = np.asarray(draw(np.int32((i + 1) * FLAGS.chunk)))
                state = self.chunk(data, state, np.int32(i * FLAGS.chunk))
                if i + 1 < chunks:
                    data = feed(asked)  # while the chunk runs
                jax.block_until_ready(state)
            self.anonymous = max(self.anonymous, anonymous_memory())
            return time.perf_counter() - begun

        return run


def anonymous_memory() -> int:
    """Bytes of this process now, without the pages of files."""
    status = Path("/proc/self/status")
    lines = status.read_text().splitlines() if status.exists() else []
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("RssAnon")), 0)


def of_processes(number: int) -> list[int]:
    """A number of each process, to a mebibyte."""
    found = np.asarray(multihost_utils.process_allgather(np.int32(number >> 20)))
    return [int(each) << 20 for each in found.ravel()]


def main() -> None:
    session.set_up()
    measure.warn_if_busy()
    places = {"devices": Simulation.on_devices, "host": Simulation.from_host}
    if unknown := set(FLAGS.places) - set(places):
        raise ValueError(f"--places={unknown.pop()} is not known; choose from {', '.join(places)}")
    simulations = {int(text): Simulation(int(text)) for text in FLAGS.num_clients}
    contestants = {
        (place, clients): places[place](simulation)
        for place in FLAGS.places
        for clients, simulation in simulations.items()
    }
    named = {f"M={clients}, {place}": run for (place, clients), run in contestants.items()}
    seconds = measure.interleaved(named)
    first = next(iter(named))
    rows, ratios = [], {}
    for (place, clients), name in zip(contestants, named, strict=True):
        found = measure.ratio(seconds[first], seconds[name])
        if name != first:
            ratios[f"clients: rounds/s of {name} / {first}"] = found
        median = float(np.median(seconds[name])) / FLAGS.chunk
        rows.append({"place": place, "clients": clients, "seconds": median, "over_first": found._asdict()})
    peaks = of_processes(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)
    anonymous = of_processes(max(simulation.anonymous for simulation in simulations.values()))
    processes.finish()
    shown = [
        [name, f"{row['seconds'] * 1e3:.2f}", f"{1 / row['seconds']:.1f}", str(measure.Ratio(**row["over_first"]))]
        for name, row in zip(named, rows, strict=True)
    ]
    print(measure.table(["fedavg, logistic", "ms a round", "rounds/s", f"rounds/s over {first}"], shown))
    in_all, own = (", ".join(f"{each / 2**30:.2f}" for each in found) for found in (peaks, anonymous))
    print(f"peak memory of each process: {in_all} GiB; without pages of files, after runs from the host: {own} GiB")
    measure.write(FLAGS.out, "clients", rows, ratios, peak_bytes=peaks, anonymous_bytes=anonymous)


if __name__ == "__main__":
    cli.run(main)
