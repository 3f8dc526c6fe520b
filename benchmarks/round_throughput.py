"""Rounds per second beside a PyTorch loop over clients: the same work, interleaved in one run.

    python -m benchmarks.round_throughput --models=mlp,cnn --algorithms=fedavg,fedeba_plus

Work: the paper's round (100 clients, 10 sampled, K = 10 steps of batch 50) on random images of the model's
data set. Every repeat times ours and torch with 1 and with all threads, one after the other; the ratio of a
repeat is the faster torch over ours, so a noisy machine hurts both. Reported: median of the ratios with their
quartiles. Compilation is timed apart. Needs the `bench` extra; give it an idle machine. --out: a JSON file.
"""

import json
import os
import time
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import optax
from absl import flags

import fedeba_jax
from benchmarks import torch_loop
from experiments import cli, common_flags, run_folder
from fedeba_jax import client_map as maps
from fedeba_jax.data.federation import federate
from fedeba_jax.models import make_model

FLAGS = flags.FLAGS
flags.DEFINE_list("models", ["mlp", "cnn"], "Networks: mlp (28x28, 600 examples a client), cnn (32x32x3, 500).")
flags.DEFINE_list("algorithms", ["fedavg", "fedeba_plus"], "Algorithms that the PyTorch loop has too.")
flags.DEFINE_integer("repeats", 9, "Interleaved repeats.")
flags.DEFINE_float("seconds", 1.0, "Least time of one measurement of ours; short rounds are repeated to fill it.")
flags.declare_key_flag("out")

CLIENTS, COHORT = 100, 10
WORK = {"mlp": ((28, 28, 1), 600, "fashion_mnist"), "cnn": ((32, 32, 3), 500, "cifar10")}


def ours(model_name: str, algorithm: str, x: np.ndarray, y: np.ndarray, index: np.ndarray) -> tuple[Any, float]:
    """A function of a number of rounds that runs them in one program each, and its compile time."""
    shape, _, dataset = WORK[model_name]
    model = make_model(model_name, dataset, shape, 10)
    client_map = maps.auto()
    place = maps.replicated(maps.device_mesh()) if jax.device_count() > 1 else None
    federation = jax.device_put(federate(x, y, list(index)), place)
    sizes = fedeba_jax.sizes_of(federation, model.init, COHORT)
    local = fedeba_jax.LocalTraining(objective=fedeba_jax.cross_entropy(model), learning_rate=0.1)
    method = fedeba_jax.ALGORITHMS[algorithm](local, fedeba_jax.descent(optax.sgd(1.0)))
    state = jax.device_put(method.init(jax.random.key(0), model.init, sizes), place)

    @jax.jit
    def one_round(federation: Any, state: Any, t: Any) -> Any:
        key = jax.random.key(1)
        return fedeba_jax.run_round(method, federation, state, key, t, sizes=sizes, client_map=client_map)[0]

    begun = time.perf_counter()
    compiled = one_round.lower(federation, state, np.int32(0)).compile()
    seconds = time.perf_counter() - begun

    def rounds(count: int) -> None:
        nonlocal state
        for t in range(count):
            state = compiled(federation, state, np.int32(t))
        jax.block_until_ready(state)

    return rounds, seconds


def timed(function: Callable[[], Any]) -> float:
    begun = time.perf_counter()
    function()
    return time.perf_counter() - begun


def measure(model_name: str, algorithm: str) -> dict[str, Any]:
    """Interleaved seconds a round, ours and torch's, and the paired ratios."""
    shape, per_client, _ = WORK[model_name]
    rng = np.random.default_rng(0)
    x = rng.integers(0, 256, (CLIENTS * per_client, *shape), dtype=np.uint8)
    y = rng.integers(0, 10, len(x)).astype(np.int32)
    index = rng.permutation(len(x)).reshape(CLIENTS, per_client)
    rounds, compile_seconds = ours(model_name, algorithm, x, y, index)
    threads = sorted({1, len(os.sched_getaffinity(0))})
    peers = {n: torch_loop.make_round(model_name, x, y, index, num_threads=n, algorithm=algorithm) for n in threads}

    def torch_round(n: int) -> float:
        return timed(lambda: peers[n](rng.permutation(CLIENTS)[:COHORT], int(rng.integers(1 << 30))))

    rounds(1)
    for n in threads:
        torch_round(n)
    count = max(1, round(FLAGS.seconds / timed(lambda: rounds(1))))
    seconds: dict[str, list[float]] = {"ours": [], **{f"torch_{n}": [] for n in threads}}
    for _ in range(FLAGS.repeats):
        seconds["ours"].append(timed(lambda: rounds(count)) / count)
        for n in threads:
            seconds[f"torch_{n}"].append(float(np.mean([torch_round(n) for _ in range(max(1, count // 2))])))
    torch = np.min([seconds[f"torch_{n}"] for n in threads], axis=0)
    ratios = torch / np.array(seconds["ours"])
    return {
        "model": model_name, "algorithm": algorithm, "compile_seconds": compile_seconds,
        "ratio_median": float(np.median(ratios)), "ratio_quartiles": np.quantile(ratios, [0.25, 0.75]).tolist(),
        "seconds_a_round": {name: float(np.median(values)) for name, values in seconds.items()},
        "fastest_seconds_a_round": {name: float(np.min(values)) for name, values in seconds.items()},
    }  # fmt: skip


def main() -> None:
    common_flags.set_up_devices()
    try:
        import torch
    except ImportError as error:
        raise ValueError('PyTorch is not installed; run: pip install -e ".[bench]"') from error
    results = []
    print(f"{'round':18} {'ours ms':>9} {'torch ms':>9}   torch / ours (quartiles)   compile s")
    for model_name in FLAGS.models:
        for algorithm in FLAGS.algorithms:
            row = measure(model_name, algorithm)
            results.append(row)
            mine = row["seconds_a_round"]["ours"]
            peer = min(v for k, v in row["seconds_a_round"].items() if k != "ours")
            low, high = row["ratio_quartiles"]
            ratio = f"{row['ratio_median']:.2f} ({low:.2f} to {high:.2f})"
            name = f"{model_name} {algorithm}"
            line = f"{name:18} {mine * 1e3:9.1f} {peer * 1e3:9.1f}   {ratio:26} {row['compile_seconds']:9.1f}"
            print(line, flush=True)
    if FLAGS.out:
        environment = run_folder.environment() | {"torch": torch.__version__}
        with open(FLAGS.out, "w") as file:
            json.dump({"environment": environment, "results": results}, file, indent=1)


if __name__ == "__main__":
    cli.run(main)
