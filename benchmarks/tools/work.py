"""The work that is measured: the paper's round (100 clients, 10 sampled, K = 10 steps of batch 50) on random images.

Any field of `Work` can be changed. Rounds run as in `experiments.program`: many in one compiled program, state donated,
data an argument, diagnostics returned.
"""

import dataclasses
import functools
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

import fedeba_jax
from benchmarks.peers.protocol import Data, Spec
from benchmarks.tools.parts import PARTS
from fedeba_jax import client_map as maps
from fedeba_jax import ownership, tree
from fedeba_jax.aggregation import Rule
from fedeba_jax.attacks import Attack
from fedeba_jax.data.federation import federate
from fedeba_jax.examples import pack
from fedeba_jax.local import LocalTraining
from fedeba_jax.models import NORMALIZATION, make_model
from fedeba_jax.rounds import sizes_from
from fedeba_jax.types import Algorithm, ClientMap, Federation, Model, Sizes, State


class Images(NamedTuple):
    shape: tuple[int, int, int]
    per_client: int
    dataset: str  # whose normalisation the model takes


IMAGES = {"mlp": Images((28, 28, 1), 600, "fashion_mnist"), "cnn": Images((32, 32, 3), 500, "cifar10")}
POOL = 100  # clients' worth of images; more clients share them
CLASSES = 10


@dataclasses.dataclass(frozen=True)
class Work:
    """A round; what is not given is the paper's."""

    model: str = "mlp"
    algorithm: str = "fedavg"  # or one of PARTS
    clients: int = 100
    cohort: int = 10
    steps: int = 10
    batch: int = 50
    rate: float = 0.1
    client_map: str = "auto"
    block: int = LocalTraining.block  # examples at once in passes over all of a client's data

    @property
    def images(self) -> Images:
        return IMAGES[self.model]

    @property
    def examples(self) -> int:
        """Examples that a round trains on."""
        return self.cohort * self.steps * self.batch

    def spec(self, data: str, **setting: Any) -> Spec:
        """The same work for a peer."""
        mean, std = NORMALIZATION[self.images.dataset]
        numbers = (self.cohort, self.steps, self.batch, self.rate, mean, std)
        return Spec(self.model, self.algorithm, *numbers, data, setting)


class Round(NamedTuple):
    """A round as a function, not compiled, and the shapes of what it takes."""

    function: Callable[..., tuple[State, Any]]  # (federation, state, round[, seed]) -> state, diagnostics
    init: Callable[..., State]  # ([seed]) -> the first state
    model: Model
    algorithm: Algorithm
    sizes: Sizes
    blocks: int  # of a pass over all of a client's data
    shapes: tuple[Any, ...]  # of the function's arguments


class Compiled(NamedTuple):
    """A compiled round with its data and state."""

    run: Callable[[int], float]  # so many rounds -> seconds
    compile_seconds: float
    temp_bytes: int  # what XLA allocates beside arguments and results
    state: Callable[[], State]  # where it has got to
    text: Callable[[], str]  # XLA's program


def random_data(work: Work) -> Data:
    """Images and labels without meaning, dealt to the clients; the first of them as held-out ones."""
    rng = np.random.default_rng(0)
    shape, per_client, _ = work.images
    x = rng.integers(0, 256, (POOL * per_client, *shape), dtype=np.uint8)
    y = rng.integers(0, CLASSES, len(x)).astype(np.int32)
    deals = -(-work.clients // POOL)
    index = np.concatenate([rng.permutation(len(x)).reshape(POOL, per_client) for _ in range(deals)])
    return Data(x, y, index[: work.clients].astype(np.int32), x[:1000], y[:1000])


def make_round(
    work: Work,
    hparams: dict[str, Any] | None = None,
    *,
    rule: Rule | None = None,
    attack: Attack | None = None,
    server_rate: float = 1.0,
) -> Round:
    """The round of a work; with a robust rule in place of the weighted sum, or under an attack, if they are given."""
    shape, per_client, dataset = work.images
    model = make_model(work.model, dataset, shape, CLASSES)
    sizes = sizes_from(model.init, work.clients, work.cohort, per_client)
    local = LocalTraining(
        objective=fedeba_jax.cross_entropy(model), learning_rate=work.rate, steps=work.steps,
        batch_size=work.batch, block=work.block, apply=model.apply,
    )  # fmt: skip
    make = (fedeba_jax.ALGORITHMS | PARTS)[work.algorithm]
    server = fedeba_jax.robust(fedeba_jax.descent(optax.sgd(server_rate)), rule)
    algorithm = make(local, server, **(hparams or {}))
    client_map = _map_of(work.client_map)

    def function(federation: Federation, state: State, t: Any, seed: Any = 1) -> tuple[State, Any]:
        key = jax.random.key(seed)
        values: Any = {"sizes": sizes, "client_map": client_map, "attack": attack}
        return fedeba_jax.run_round(algorithm, federation, state, key, t, **values)

    def init(seed: Any = 0) -> State:
        return ownership.padded(client_map, algorithm.init(jax.random.key(seed), model.init, sizes))

    images = POOL * per_client
    federation = Federation(
        jax.eval_shape(lambda: pack(np.zeros((images, *shape), np.uint8))), jax.ShapeDtypeStruct((images,), jnp.int32),
        jax.ShapeDtypeStruct((work.clients, per_client), jnp.int32), jax.ShapeDtypeStruct((work.clients,), jnp.int32),
    )  # fmt: skip
    shapes = (federation, jax.eval_shape(init), jax.ShapeDtypeStruct((), jnp.int32))
    return Round(function, init, model, algorithm, sizes, -(-per_client // work.block), shapes)


def _map_of(client_map: str) -> ClientMap:
    return maps.by_name(maps.choose(client_map, "map", 1)[0], "client_map")


def placement(client_map: str) -> Any:
    """Where arrays live: one copy per device for a sharded map, the first device otherwise."""
    if (mesh := maps.mesh_of(_map_of(client_map))) is not None:
        return maps.replicated(mesh)
    return jax.sharding.SingleDeviceSharding(jax.devices()[0])


def state_placement(made: Round, client_map: str) -> Any:
    """Where a state lives, as in `experiments.program`: rows of clients are divided among the devices of a map."""
    return ownership.placement(_map_of(client_map), jax.eval_shape(made.init)) or placement(client_map)


def federation_of(data: Data, place: Any) -> Federation:
    return jax.device_put(federate(data.x, data.y, list(data.index)), place)


def several_rounds(made: Round, federation: Federation, state: State, first: Any, count: Any, seed: Any = 1) -> Any:
    """State and last diagnostics after rounds first, first + 1, ...; their number may be traced."""

    def one(i: Any, carry: Any) -> Any:
        return made.function(federation, carry[0], first + i, seed)

    info = tree.zeros_like(jax.eval_shape(made.function, federation, state, first, seed)[1])
    return jax.lax.fori_loop(0, count, one, (state, info))


def compile_round(work: Work, data: Data) -> Compiled:
    """Any number of rounds of the work as one program."""
    return compile_made(make_round(work), data, work.client_map)


def compile_made(made: Round, data: Data, client_map: str) -> Compiled:
    """Any number of these rounds as one program, its data and first state in place."""
    place = placement(client_map)
    federation = federation_of(data, place)
    where = state_placement(made, client_map)
    state = jax.device_put(made.init(), where)

    program = jax.jit(functools.partial(several_rounds, made), donate_argnums=1, out_shardings=(where, place))
    begun = time.perf_counter()
    compiled = program.lower(federation, state, np.int32(0), np.int32(1)).compile()
    seconds = time.perf_counter() - begun
    done = 0

    def run(count: int) -> float:
        nonlocal state, done
        begun = time.perf_counter()
        state, _ = jax.block_until_ready(compiled(federation, state, np.int32(done), np.int32(count)))
        done += count
        return time.perf_counter() - begun

    return Compiled(run, seconds, compiled.memory_analysis().temp_size_in_bytes, lambda: state, compiled.as_text)


def predict(model: Model, params: Any, images: np.ndarray) -> np.ndarray:
    """Classes of uint8 images."""
    forward = jax.jit(lambda params, x: model.apply(params, x.astype(jnp.float32) / 255).argmax(-1))
    return np.concatenate([forward(params, part) for part in np.array_split(images, max(1, len(images) // 500))])
