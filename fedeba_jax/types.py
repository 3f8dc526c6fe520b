"""The nouns of the simulator, and the letters of its axes.

Axes: M clients, n clients of a cohort, K local steps, B examples of a batch, C the most examples
that one client holds (capacity), N examples of a flat data set, T rounds.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp

from fedeba_jax.examples import Examples

Params = Any  # a pytree of arrays
Key = jax.Array
Scalar = jax.Array | float  # a *traced* hyper-parameter: changing its value never recompiles
Info = dict[str, jax.Array]  # diagnostics of a round, apart from its state


class Schedule(Protocol):
    """A value that changes by round."""

    def __call__(self, round_: jax.Array, /) -> jax.Array:
        """The value of a round; rounds count from 0."""


class InitParams(Protocol):
    """Makes the parameters that training starts from."""

    def __call__(self, key: Key, /) -> Params:
        """x_0 drawn with this key."""


class Apply(Protocol):
    """A network's forward pass."""

    def __call__(self, params: Params, x: jax.Array, /) -> jax.Array:
        """Logits [B, ..., classes] of inputs x [B, ...] in [0, 1]."""


class Model(NamedTuple):
    """A network as two functions. `apply` takes x in [0, 1] and normalises it itself."""

    init: InitParams
    apply: Apply


class Batch(NamedTuple):
    """Examples as a model takes them; rows with mask 0 are padding and must not count."""

    x: jax.Array  # [B, ...] in [0, 1]
    y: jax.Array  # [B, ...]
    mask: jax.Array  # [B] of 0. and 1.


class Objective(Protocol):
    """What clients minimise."""

    def __call__(self, params: Params, batch: Batch, key: Key, round_: jax.Array, train: bool, /) -> jax.Array:
        """The mean loss over the batch's unmasked examples; `train` is false where the loss is only measured."""


class ClientMap(Protocol):
    """How a function of one client becomes a function of stacked clients: the type of `jax.vmap`."""

    def __call__(self, function: Callable[..., Any], /, in_axes: Any = 0) -> Callable[..., Any]:
        """The function of stacked arguments; `in_axes` has 0 (stacked) or None (shared) for each argument."""


class Federation(NamedTuple):
    """Flat examples, and who owns which."""

    x: Examples  # [N, ...]
    y: jax.Array  # [N, ...]
    rows: jax.Array  # [M, C] int32: row i lists client i's examples; beyond its number of examples, any valid entry
    num_examples: jax.Array  # [M] int32
    ids: jax.Array | None = None  # [M] the clients, ascending, if these are not all; others may not be asked

    @property
    def capacity(self) -> int:
        return self.rows.shape[1]

    def place(self, id_: jax.Array) -> jax.Array:
        """Where client `id_` stands in `rows` and `num_examples`."""
        return id_ if self.ids is None else jnp.searchsorted(self.ids, id_)


class PerDevice(NamedTuple):
    """What each device of a sharded client map has for itself: every leaf is [devices, ...], split over them."""

    parts: Any


class Divided(NamedTuple):
    """A federation in parts: each device of a sharded client map has the clients that it will be given, no others."""

    parts: PerDevice  # of a `Federation` for each device
    num_examples: jax.Array  # [m] int32, of all of them: the server knows
    ids: jax.Array  # [m] ascending

    @property
    def capacity(self) -> int:
        return self.parts.parts.rows.shape[-1]

    def place(self, id_: jax.Array) -> jax.Array:
        """Where client `id_` stands in `num_examples`."""
        return jnp.searchsorted(self.ids, id_)


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


class LocalData(NamedTuple):
    """One client's view of the federation: the flat arrays, and which rows of them are its own."""

    x: Examples
    y: jax.Array
    rows: jax.Array  # [C]
    num_examples: jax.Array  # []

    @property
    def capacity(self) -> int:
        return self.rows.shape[0]


class Client(NamedTuple):
    """One client inside an exchange."""

    id: jax.Array
    key: Key  # differs by round and by client
    data: LocalData
    state: Any  # its row of `State.clients`
    round: jax.Array


class Private(NamedTuple):
    """A part of a client's reply that stays with the client: its new state, for `update` to hand back unseen."""

    state: Any


class ByClient(NamedTuple):
    """What a server keeps for each client: the cohort reads and writes its rows (`Cohort.rows`, `Cohort.set_rows`)."""

    rows: Any  # [M, ...]


class ByPlace(NamedTuple):
    """What a server keeps for each place of the cohort; it stays on the device that made it (`Cohort.at_places`)."""

    rows: Any  # [n, ...]


class State(NamedTuple):
    """What an algorithm keeps across rounds; every leaf of `clients` is [M, ...]."""

    server: Any
    clients: Any


class Mixture(NamedTuple):
    """A client's own prediction: the weighted mean of k models' class probabilities."""

    params: Params  # [k, ...]
    weights: jax.Array  # [k]


class Init(Protocol):
    """Makes the state that an algorithm starts from."""

    def __call__(self, key: Key, init_params: InitParams, sizes: Sizes, /) -> State:
        """The state before the first round."""


class Update(Protocol):
    """A round, as the paper's pseudo-code has it."""

    def __call__(self, server: Any, cohort: Any, /) -> tuple[Any, Any, Info]:
        """(server's state, cohort) -> the server's next state, the cohort's next states [n, ...], diagnostics."""


class Models(Protocol):
    """What is evaluated on all clients."""

    def __call__(self, state: State, /) -> dict[str, Params]:
        """Models by name: "global", where there is one, and others that a method names."""


class Personalize(Protocol):
    """A client's own prediction."""

    def __call__(self, server: Any, client_state: Any, /) -> Mixture:
        """The prediction of the client with this state."""


class Algorithm(NamedTuple):
    """A federated method as pure functions (see `fedeba_jax.algorithms`)."""

    init: Init
    update: Update
    models: Models
    personalize: Personalize | None = None
    """None: the global model is everybody's prediction."""
    everyone: bool = False
    """Whether all clients are the cohort of each round; who was sampled is then `cohort.sampled`."""
