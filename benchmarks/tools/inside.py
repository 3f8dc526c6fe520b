"""Time of small functions as a program runs them: many times inside one compiled loop, so without dispatch."""

import time
from collections.abc import Callable
from typing import Any

import jax

LENGTH = 100


def repeated(function: Callable[[Any], Any], carry: Any) -> Callable[[int], float]:
    """(count) -> seconds of count calls carry <- function(carry); each needs the last, so none can be left out."""

    @jax.jit
    def loop(carry: Any) -> Any:
        return jax.lax.scan(lambda c, _: (function(c), None), carry, None, length=LENGTH)[0]

    def run(count: int) -> float:
        loops = -(-count // LENGTH)
        begun = time.perf_counter()
        value = carry
        for _ in range(loops):
            value = loop(value)
        jax.block_until_ready(value)
        return (time.perf_counter() - begun) * count / (loops * LENGTH)

    return run
