"""Floating-point operations of a round: from shapes (what the work needs), and from its program (what it does).

Only matrix products and convolutions count, two operations a multiply-add. The count of a program walks its jaxpr and
multiplies by the lengths of loops, which XLA's own count does not: it takes a loop's body once.
"""

import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.extend.core import ClosedJaxpr, Jaxpr
from jax.interpreters.partial_eval import dce_jaxpr

from benchmarks.tools.work import CLASSES, IMAGES, Work, make_round

HIDDEN = {"mlp": (200, 200), "cnn": (384, 192)}
CHANNELS = {"mlp": (), "cnn": (64, 64)}
KERNEL = 5


class Passes(NamedTuple):
    """What every client of a round computes."""

    training: float = 1  # K steps of batch B
    steps: float = 0  # single steps besides, on the side of a gate that is rarely taken
    losses: float = 0  # F_i at one model, over all its data
    gradients: float = 0  # the same with the gradient
    products: float = 0  # of its model with other vectors of that size, where they are more than averaging


PROGRAM = {
    "fedavg": Passes(),
    "fedsgd": Passes(training=0, gradients=1),
    "fedprox": Passes(),
    "qffl": Passes(losses=1),
    "fedmgda_plus": Passes(),
    "fedfv": Passes(losses=1),
    "ditto": Passes(training=2),
    "focus": Passes(training=2, losses=2),  # for 2 clusters
    "lp_proj": Passes(training=10, products=5 * (20 * 2 * 60 + 60)),  # 5 x 20 steps, a projection to 60 numbers
    "rank_core_fed": Passes(losses=20),  # of the candidates of 10 clients
    "mime_lite": Passes(gradients=1),
    "fedeba": Passes(losses=1),
    "fedeba_plus": Passes(steps=1, losses=2, gradients=1),  # one step: the closed gate's
    "prac_fedeba_plus": Passes(losses=2),
    "robust_fedeba_plus": Passes(steps=1, losses=2, gradients=1, products=3 * 10),  # products of 10 clients' vectors
    "fedavg_align": Passes(steps=1, losses=1, gradients=1),
    "afl": Passes(losses=1),
    "term": Passes(losses=1),
    "propfair": Passes(),
    "aaggff": Passes(losses=1),
    "corefed": Passes(losses=1),
    "fedwavg": Passes(losses=2),  # forward passes, to see what is classified correctly
    "feddisco": Passes(),
    "local_only": Passes(),
    "sampling": Passes(training=0),
    "training": Passes(),
    "losses": Passes(training=0, losses=1),
    "gradient": Passes(training=0, gradients=1),
}
"""What the program of each algorithm (and part) holds, in the paper's round; both sides of a gate count.

The suite checks every entry, up to a few percent for averaging and solvers.
"""

NEEDED = {
    "fedeba_plus": Passes(losses=1, gradients=1),
    "fedavg_align": Passes(gradients=1),
    "robust_fedeba_plus": Passes(losses=1, gradients=1, products=2 * 10),
}
"""What the method needs where its program does more: F_i(x_t) comes with the full gradient, and of the two sides of
the gate one is taken. Shares of the limit rest on this."""


def passes_needed(algorithm: str) -> Passes:
    return NEEDED.get(algorithm) or PROGRAM[algorithm]


def needed(work: Work) -> float:
    """Operations that the work needs: those that its share of the limit is reckoned with."""
    return of_passes(work, passes_needed(work.algorithm))


def of_passes(work: Work, passes: Passes) -> float:
    """Operations of a round with these passes."""
    forward, gradient = per_example(work.model)
    trained = (passes.training * work.steps + passes.steps) * work.batch
    passed = work.images.per_client
    examples = trained * gradient + passes.losses * passed * forward + passes.gradients * passed * gradient
    products = 2 * passes.products * make_round(work).sizes.model_size if passes.products else 0
    return work.cohort * (examples + products)


def per_example(model: str) -> tuple[int, int]:
    """Operations of one example: forward, and with the gradient, which the images themselves do not need."""
    layers = list(_layers(model))
    forward = sum(layers)
    return forward, 3 * forward - layers[0]


def _layers(model: str) -> Iterator[int]:
    """Operations of each layer's forward pass."""
    height, width, features = IMAGES[model].shape
    for channels in CHANNELS[model]:
        height, width = height - KERNEL + 1, width - KERNEL + 1
        yield 2 * height * width * KERNEL**2 * features * channels
        height, width, features = height // 2, width // 2, channels
    features *= height * width
    for units in (*HIDDEN[model], CLASSES):
        yield 2 * features * units
        features = units


def of_round(work: Work, platform: str | None = None) -> float:
    """Operations that the round's program holds; `platform` as in `of_program`."""
    made = make_round(work)
    return of_program(made.function, *made.shapes, platform=platform, trips=made.blocks)


def of_program(function: Callable[..., Any], *arguments: Any, platform: str | None = None, trips: int = 1) -> float:
    """Operations of a call, from its jaxpr without dead code.

    Args:
      function: what is called.
      *arguments: arrays or their shapes.
      platform: which branch of platform-dependent code counts; None is the code for other platforms than the CPU.
      trips: how often a loop of unknown length runs. Only passes over a client's data, block by block, are such
        loops with matrix products in them, and solvers' small ones.
    """
    return _count(jax.make_jaxpr(function)(*arguments).jaxpr, platform, trips)


def _count(jaxpr: Jaxpr, platform: str | None, trips: int) -> float:
    jaxpr, _ = dce_jaxpr(jaxpr, [True] * len(jaxpr.outvars))  # dead code inside loops as well
    total = 0.0
    platforms: dict[Any, tuple[Any, ...]] = {}  # a variable that holds the number of the platform -> their names
    for equation in jaxpr.eqns:
        name, parameters = equation.primitive.name, equation.params
        inner = [_count(sub, platform, trips) for sub in _subjaxprs(parameters)]
        if name == "dot_general":
            (contracted, _), _ = parameters["dimension_numbers"]
            shape = equation.invars[0].aval.shape
            total += 2 * math.prod(equation.outvars[0].aval.shape) * math.prod(shape[d] for d in contracted)
        elif name == "conv_general_dilated":
            total += _convolution(equation)
        elif name == "platform_index":
            platforms[equation.outvars[0]] = parameters["platforms"]
        elif name == "cond":
            index = equation.invars[0]
            names = platforms.get(index) if not hasattr(index, "val") else None
            total += max(inner) if names is None else inner[_branch(names, platform)]
        elif name == "scan":
            total += parameters["length"] * sum(inner)
        elif name == "while":
            total += trips * sum(inner)
        elif name == "shard_map":
            total += parameters["mesh"].size * sum(inner)
        else:
            total += sum(inner)
    return total


def _convolution(equation: Any) -> int:
    """Products with padding and with the zeros of a dilated input do not count, as in XLA's count."""
    x, kernel = (variable.aval.shape for variable in equation.invars)
    y, parameters = equation.outvars[0].aval.shape, equation.params
    numbers = parameters["dimension_numbers"]
    products = y[numbers.out_spec[0]] * y[numbers.out_spec[1]] * kernel[numbers.rhs_spec[1]]
    for d, (low, _) in enumerate(parameters["padding"]):
        stride, spread, dilation = (parameters[n][d] for n in ("window_strides", "lhs_dilation", "rhs_dilation"))
        outputs, taps = y[numbers.out_spec[2 + d]], kernel[numbers.rhs_spec[2 + d]]
        place = stride * np.arange(outputs)[:, None] + dilation * np.arange(taps) - low
        inside = (place >= 0) & (place <= spread * (x[numbers.lhs_spec[2 + d]] - 1)) & (place % spread == 0)
        products *= int(inside.sum())
    return 2 * products


def _branch(platforms: tuple[Any, ...], platform: str | None) -> int:
    for number, names in enumerate(platforms):
        if names is None or platform in names:
            return number
    return len(platforms) - 1


def _subjaxprs(parameters: dict[str, Any]) -> Iterator[Jaxpr]:
    for value in parameters.values():
        for item in value if isinstance(value, tuple | list) else (value,):
            if isinstance(item, ClosedJaxpr):
                yield item.jaxpr
            elif isinstance(item, Jaxpr):
                yield item
