"""The nouns of the simulator, and the letters of its axes.

Axes: M clients, n clients of a cohort, K local steps, B examples of a batch, C the most examples
that one client holds (capacity), N examples of a flat data set, T rounds.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax

Params = Any  # a pytree of arrays
Key = jax.Array
Scalar = jax.Array | float  # a *traced* hyper-parameter: changing its value never recompiles
Schedule = Callable[[jax.Array], jax.Array]  # round -> value
Info = dict[str, jax.Array]  # diagnostics of a round, apart from its state


class Batch(NamedTuple):
    """Examples as a model takes them; rows with mask 0 are padding and must not count."""

    x: jax.Array  # [B, ...] in [0, 1]
    y: jax.Array  # [B, ...]
    mask: jax.Array  # [B] of 0. and 1.


Objective = Callable[[Params, Batch, Key, jax.Array, bool], jax.Array]
"""(params, batch, key, round, train) -> the mean loss over the batch's unmasked examples."""

ClientMap = Callable[..., Callable[..., Any]]
"""The type of `jax.vmap`: (function, in_axes=0) -> function of stacked arguments."""


class Model(NamedTuple):
    """A network as two functions. `apply` takes x in [0, 1] and normalises it itself."""

    init: Callable[[Key], Params]
    apply: Callable[[Params, jax.Array], jax.Array]  # (params, x [B, ...]) -> logits [B, ...]


class Federation(NamedTuple):
    """Flat examples, and who owns which: row i of `index` lists client i's, `count[i]` of them."""

    x: jax.Array  # [N, ...] uint8
    y: jax.Array  # [N, ...]
    index: jax.Array  # [M, C] int32; entries beyond the count repeat a valid one
    count: jax.Array  # [M] int32


class TestSet(NamedTuple):
    """Held-out examples by client, and the same as one flat list: evaluation runs over the list."""

    __test__ = False  # not a test case, whatever pytest thinks of its name

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

    x: jax.Array
    y: jax.Array
    index: jax.Array  # [C]
    count: jax.Array  # []


class Client(NamedTuple):
    """One client inside an exchange."""

    id: jax.Array
    key: Key  # differs by round and by client
    data: Shard
    state: Any  # its row of `State.clients`
    round: jax.Array


class State(NamedTuple):
    """What an algorithm keeps across rounds; every leaf of `clients` is [M, ...]."""

    server: Any
    clients: Any


class Mixture(NamedTuple):
    """A client's own prediction: the weighted mean of k models' class probabilities."""

    params: Params  # [k, ...]
    weights: jax.Array  # [k]


class Algorithm(NamedTuple):
    """A federated method as four pure functions (see `fedeba_jax.algorithms`)."""

    init: Callable[[Key, Callable[[Key], Params], Sizes], State]
    update: Callable[[Any, Any], tuple[Any, Any, Info]]  # (server, cohort) -> (server, cohort_state, info)
    models: Callable[[Any], dict[str, Params]]  # server -> what is evaluated as "global"
    personalize: Callable[[Any, Any], Mixture]  # (server, client_state) -> a client's own prediction
