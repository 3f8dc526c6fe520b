"""How a round's cost grows with the number of clients, examples on the devices or on the host.

    python -m benchmarks.clients --num_clients=1000,10000,100000,1000000

FedAvg with logistic regression on `synthetic_uniform` clients (30 examples of 20 features each), 100 sampled in each
round. "on the host", a chunk of rounds gets the examples of its cohorts, gathered while the chunk before it runs. The
rounds of all numbers of clients are interleaved; the ratio is to the first number, on the devices. Memory is the peak
of this process so far: give --places=host, or one number, to see it alone. --out: a JSON file.
"""

import resource
import time
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import optax
from absl import flags

import fedeba_jax
from benchmarks.tools import measure
from experiments.command import cli
from experiments.execution import session
from fedeba_jax import client_map as maps
from fedeba_jax.data import synthetic
from fedeba_jax.data.hosting import Stored, most_examples, part
from fedeba_jax.rounds import cohorts, run_rounds, sizes_from, start
from fedeba_jax.types import Federation

FLAGS = flags.FLAGS
flags.DEFINE_list("num_clients", ["1000", "10000", "100000", "1000000"], "Numbers of clients M.")
flags.DEFINE_list("places", ["devices", "host"], "Where the examples lie: devices, host.")
flags.DEFINE_integer("chunk", 50, "Rounds of a chunk.", lower_bound=1)
for _flag in ("cohort_size", "steps", "batch_size", "data_dir", "repeats", "seconds", "out"):
    flags.declare_key_flag(_flag)

EXAMPLES, FEATURES, CLASSES = 30, 20, 10
SEED = 0


class Simulation:
    """FedAvg on so many clients, a chunk of rounds at a time."""

    def __init__(self, clients: int) -> None:
        data = synthetic.uniform(clients, EXAMPLES, FEATURES, tests=1, data_dir=FLAGS.data_dir)
        rows = np.arange(clients * EXAMPLES, dtype=np.int32).reshape(clients, EXAMPLES)
        self.stored = Stored(data.x_train, data.y_train, rows, np.full(clients, EXAMPLES, np.int32))
        model = fedeba_jax.make_model("logistic", "synthetic_uniform", (FEATURES,), CLASSES)
        self.sizes = sizes_from(model.init, clients, FLAGS.cohort_size or 100, EXAMPLES)
        self.mesh = maps.device_mesh()
        local = fedeba_jax.LocalTraining(
            fedeba_jax.cross_entropy(model), 0.1, steps=FLAGS.steps or 10, batch_size=FLAGS.batch_size or 10
        )
        algorithm = fedeba_jax.fedavg(local, fedeba_jax.descent(optax.sgd(1.0)))
        self.state = start(algorithm, model.init, jax.random.key(SEED), sizes=self.sizes)

        def chunk(federation: Federation, state: Any, first: jax.Array) -> Any:
            client_map = maps.auto()
            return run_rounds(
                algorithm, federation, state, jax.random.key(SEED), first,
                rounds=FLAGS.chunk, sizes=self.sizes, client_map=client_map,
            )[0]  # fmt: skip

        self.chunk = jax.jit(chunk)

    def put(self, federation: Any) -> Any:
        """On every device."""
        return jax.device_put(federation, maps.replicated(self.mesh))

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
        clients = min(self.sizes.num_clients, FLAGS.chunk * self.sizes.cohort_size)
        examples = most_examples(self.stored.num_examples, clients)
        draw = jax.jit(lambda first: cohorts(jax.random.key(SEED), first, FLAGS.chunk, self.sizes))

        def feed(i: int) -> Any:
            return self.put(part(self.stored, np.asarray(draw(np.int32(i * FLAGS.chunk))), clients, examples))

        def run(chunks: int) -> float:
            begun, state = time.perf_counter(), self.state
            data = feed(0)
            for i in range(chunks):
                asked = np.asarray(draw(np.int32((i + 1) * FLAGS.chunk)))
                state = self.chunk(data, state, np.int32(i * FLAGS.chunk))
                if i + 1 < chunks:
                    data = self.put(part(self.stored, asked, clients, examples))  # while the chunk runs
                jax.block_until_ready(state)
            return time.perf_counter() - begun

        return run


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
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    shown = [
        [name, f"{row['seconds'] * 1e3:.2f}", f"{1 / row['seconds']:.1f}", str(measure.Ratio(**row["over_first"]))]
        for name, row in zip(named, rows, strict=True)
    ]
    print(measure.table(["fedavg, logistic", "ms a round", "rounds/s", f"rounds/s over {first}"], shown))
    print(f"peak memory {peak / 2**30:.2f} GiB")
    measure.write(FLAGS.out, "clients", rows, ratios, peak_bytes=peak)


if __name__ == "__main__":
    cli.run(main)
