"""The nouns of the simulator, and the letters of its axes.

Axes: M clients, n clients of a cohort, K local steps, B examples of a batch, C the most examples
that one client holds (capacity), N examples of a flat data set, T rounds.
"""

import math
from collections.abc import Callable
from typing import Annotated, Any, NamedTuple

import jax

from fedeba_jax.examples import Examples

Params = Any  # a pytree of arrays
Key = jax.Array
Scalar = jax.Array | float  # a *traced* hyper-parameter: changing its value never recompiles
Schedule = Callable[[jax.Array], jax.Array]  # round -> value


class Bounds(NamedTuple):
    """The valid values of a number; checked at the edge, where it is not traced yet."""

    low: float
    high: float = math.inf
    open: bool = False  # whether `low` itself is excluded

    def __contains__(self, value: object) -> bool:
        if not isinstance(value, int | float):
            return False
        return (value > self.low if self.open else value >= self.low) and value <= self.high

    def __str__(self) -> str:
        if self.high == math.inf:
            return f"{'>' if self.open else '>='} {self.low:g}"
        return f"in {'(' if self.open else '['}{self.low:g}, {self.high:g}]"


Positive = Annotated[Scalar, Bounds(0, open=True)]
NonNegative = Annotated[Scalar, Bounds(0)]
Fraction = Annotated[Scalar, Bounds(0, 1)]
Degrees = Annotated[Scalar, Bounds(0, 180)]
Temperature = Annotated[Scalar, Bounds(0, open=True), "temperature"]  # or a rule, `weights.solve`
Natural = Annotated[int, Bounds(0)]
Count = Annotated[int, Bounds(1)]  # static, as Natural
Info = dict[str, jax.Array]  # diagnostics of a round, apart from its state


class Batch(NamedTuple):
    """Examples as a model takes them; rows with mask 0 are padding and must not count."""

    x: jax.Array  # [B, ...] in [0, 1]
    y: jax.Array  # [B, ...]
    mask: jax.Array  # [B] of 0. and 1.


Objective = Callable[[Params, Batch, Key, jax.Array, bool], jax.Array]
"""(params, batch, key, round, train) -> the mean loss over the batch's unmasked examples."""

Apply = Callable[[Params, jax.Array], jax.Array]
"""(params, x [B, ...] in [0, 1]) -> logits [B, ..., classes]."""

ClientMap = Callable[..., Callable[..., Any]]
"""The type of `jax.vmap`: (function, in_axes=0) -> function of stacked arguments."""


class Model(NamedTuple):
    """A network as two functions. `apply` takes x in [0, 1] and normalises it itself."""

    init: Callable[[Key], Params]
    apply: Apply


class Federation(NamedTuple):
    """Flat examples, and who owns which: row i of `index` lists client i's, `count[i]` of them."""

    x: Examples  # [N, ...]
    y: jax.Array  # [N, ...]
    index: jax.Array  # type: ignore[assignment]  # [M, C] int32; beyond the count: any valid entry
    count: jax.Array  # type: ignore[assignment]  # [M] int32


class HeldOut(NamedTuple):
    """Held-out examples by client, and the same as one flat list: evaluation runs over the list."""

    federation: Federation
    example: jax.Array  # [E] rows of federation.x
    owner: jax.Array  # [E] client of each; M marks padding


class Sizes(NamedTuple):
    """What is static about a federation and its cohorts."""

    num_clients: int
    cohort_size: int
    capacity: int
    model_size: int  # numbers in one model


class Shard(NamedTuple):
    """One client's view of the federation: the flat arrays, and its own row of the index."""

    x: Examples
    y: jax.Array
    index: jax.Array  # type: ignore[assignment]  # [C]
    count: jax.Array  # type: ignore[assignment]  # []


class Client(NamedTuple):
    """One client inside an exchange."""

    id: jax.Array
    key: Key  # differs by round and by client
    data: Shard
    state: Any  # its row of `State.clients`
    round: jax.Array


class Private(NamedTuple):
    """A part of a client's reply that stays with the client: its new state, for `update` to hand back unseen."""

    state: Any


class State(NamedTuple):
    """What an algorithm keeps across rounds; every leaf of `clients` is [M, ...]."""

    server: Any
    clients: Any


class Mixture(NamedTuple):
    """A client's own prediction: the weighted mean of k models' class probabilities."""

    params: Params  # [k, ...]
    weights: jax.Array  # [k]


class Algorithm(NamedTuple):
    """A federated method as pure functions (see `fedeba_jax.algorithms`)."""

    init: Callable[[Key, Callable[[Key], Params], Sizes], State]
    update: Callable[[Any, Any], tuple[Any, Any, Info]]  # (server, cohort) -> (server, cohort_state, info)
    models: Callable[[State], dict[str, Params]]  # what is evaluated on all clients: "global", where there is one
    personalize: Callable[[Any, Any], Mixture] | None = None
    """(server, client_state) -> a client's own prediction; None: the global model is everybody's."""
    everyone: bool = False
    """Whether all clients are the cohort of each round; who was sampled is then `cohort.sampled`."""
