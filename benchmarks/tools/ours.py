"""Ours as a worker, so that it is measured as its peers are (`peers.protocol`). Setting: `client_map`."""

import numpy as np

from benchmarks.peers.protocol import Data, Peer, Spec, serve
from benchmarks.tools import work
from experiments.execution import devices


def make(spec: Spec, data: Data) -> Peer:
    devices.set_up(cache="")  # compilation is timed
    wanted = work.Work(
        spec.model, spec.algorithm, len(data.index), spec.cohort, spec.steps, spec.batch, spec.rate,
        spec.setting.get("client_map", "auto"),
    )  # fmt: skip
    compiled = work.compile_round(wanted, data)
    made = work.make_round(wanted)

    def predict(images: np.ndarray) -> np.ndarray:
        return work.predict(made.model, made.algorithm.models(compiled.state())["global"], images)

    facts = {"compile_seconds": compiled.compile_seconds, "temp_bytes": compiled.temp_bytes}
    return Peer(compiled.run, predict, ["jax", "jaxlib", "numpy"], facts)


if __name__ == "__main__":
    serve(make)
