"""The limit: how fast this machine multiplies large float32 matrices, in the run that the rounds are timed in."""

import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedeba_jax import client_map as maps

SIZE = 2048
FLOPS = 2 * SIZE**3


def products() -> dict[str, Callable[[int], float]]:
    """Ways to multiply: (number of products) -> seconds. The limit is the fastest of them in any repeat."""
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal((SIZE, SIZE)).astype(np.float32) for _ in range(2))
    ways = {"numpy": lambda: a @ b, "jax": _jax(a, b)}
    if jax.device_count() > 1:
        ways["jax sharded"] = _sharded(a, b)
    return {f"GEMM {name}": _timed(way) for name, way in ways.items()}


def rate(seconds: dict[str, Any]) -> float:
    """Operations a second of the best product, from `measure.interleaved`'s seconds."""
    return FLOPS / min(float(np.min(values)) for name, values in seconds.items() if name.startswith("GEMM"))


def _jax(a: np.ndarray, b: np.ndarray) -> Callable[[], Any]:
    x, y = (jax.device_put(m, jax.devices()[0]) for m in (a, b))
    multiply = jax.jit(jnp.matmul)
    return lambda: jax.block_until_ready(multiply(x, y))


def _sharded(a: np.ndarray, b: np.ndarray) -> Callable[[], Any]:
    """Each device multiplies a slab of the rows."""
    mesh = maps.device_mesh()
    rows = jax.device_put(a, jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec(maps.AXIS)))
    whole = jax.device_put(b, maps.replicated(mesh))
    multiply = jax.jit(jnp.matmul)
    return lambda: jax.block_until_ready(multiply(rows, whole))


def _timed(way: Callable[[], Any]) -> Callable[[int], float]:
    def run(count: int) -> float:
        begun = time.perf_counter()
        for _ in range(count):
            way()
        return time.perf_counter() - begun

    return run
