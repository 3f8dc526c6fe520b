"""Where a batch of runs has its examples: on the devices, or on the host, from where each chunk of rounds gets its own.

Both give the same results to the bit. What is on the devices is not moved again; what stays on the host may be as large
as the disk: a chunk gets the examples of the clients that it will ask, gathered while the chunk before it runs, and
evaluations pass over the test examples slice by slice. Where the clients of a round are sharded over devices, each
device gets the examples of its own clients alone, and each process gathers those of its own devices.
"""

from collections.abc import Callable, Iterator
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np

import fedeba_jax
from experiments.execution.program import Data, Evaluation, Program, Runs
from fedeba_jax import client_map as maps
from fedeba_jax import ownership, tree
from fedeba_jax.batching import even_blocks
from fedeba_jax.data.dealing import Owned, Pool, Pools, Tables
from fedeba_jax.data.hosting import Stored, enrolled, most_examples, part
from fedeba_jax.evaluate import BLOCK, Scores, by_client
from fedeba_jax.rounds import asked, cohorts
from fedeba_jax.types import Divided, Federation, Key, PerDevice, State

SLICE = 64  # blocks of test examples at once
CLIENTS = 256  # clients at once, where each has a prediction of its own


class Supply(Protocol):
    """The examples of one batch of runs."""

    tables: Tables  # who holds what, on the host

    def feed(self, start: int, rounds: int) -> Data:
        """What a chunk of rounds takes."""

    def score(self, runs: Runs, state: State) -> Evaluation:
        """The scores that a chunk could not compute with its own data; none if it could."""


class Resident:
    """All examples lie on the devices."""

    def __init__(self, program: Program, tables: Tables, pools: Pools) -> None:
        self.tables = tables
        self._data = maps.place(Data(tables, pools), program.placement)

    def feed(self, start: int, rounds: int) -> Data:
        """Everything."""
        return self._data

    def score(self, runs: Runs, state: State) -> Evaluation:
        """The chunk has them."""
        return {}


class Hosted:
    """Examples stay on the host."""

    def __init__(self, program: Program, runs: Runs, tables: Tables, pools: Pools, rounds: int) -> None:
        self.tables = tables
        self._program, self._pools = program, pools
        self._mesh = maps.device_mesh() if "sharded" in program.client_map else None
        self._devices = self._mesh.devices.size if self._mesh else 1  # that share the clients of a round
        algorithm, sizes = program.algorithm(tree.rows(runs, 0)), program.sizes
        self._everyone = algorithm.everyone
        owners = ownership.owners(maps.by_name(program.client_map), program.state_shapes())

        def ask(key: Key) -> jax.Array:
            first = 1 if self._everyone else rounds  # everyone is everyone in each round
            drawn = cohorts(key, 0, first, sizes, program.sampler)
            return jax.lax.map(lambda sampled: asked(algorithm, sampled, sizes, owners), drawn)

        keys = jax.vmap(jax.random.key)(jnp.asarray(runs.sample_seed))
        self._asked = np.asarray(jax.jit(lambda keys: jax.lax.map(ask, keys))(keys))  # [R, rounds, n]
        self._judge: dict[int, Any] = {}
        self._most: dict[tuple[int, int], int] = {}
        self._judge_personally = program.judge_personally()
        self._sum = jax.jit(
            lambda each, owner: maps.mapped(lambda e, o: by_client(e, o, program.sizes.num_clients))(each, owner)
        )

    def feed(self, start: int, rounds: int) -> Data:
        """The examples of the clients that these rounds ask."""
        ids = self._asked if self._everyone else self._asked[:, start : start + rounds]
        train = self._place(self._pools.train, self.tables.train, self.tables.labels, ids, self.clients_of(rounds))
        if not isinstance(train, PerDevice):
            return Data(train, ())
        most = min(self._program.sizes.num_clients, ids[0].size)
        known = [enrolled(*own, most) for own in zip(self.tables.train.num_examples, ids, strict=True)]
        id_, count = maps.place([np.stack(leaves) for leaves in zip(*known, strict=True)], self._program.placement)
        return Data(Divided(train, count, id_), ())

    def clients_of(self, rounds: int) -> int:
        """The most clients that so many rounds can ask of one device."""
        each = -(-self._asked.shape[-1] // self._devices)
        return each if self._everyone else min(self._program.sizes.num_clients, rounds * each)

    def num_bytes(self, rounds: int) -> int:
        """Of what a device takes for a chunk of so many rounds, for all runs of the batch."""
        clients = self.clients_of(rounds)
        examples, x = self._most_examples(self.tables.train, clients), self._pools.train[0]
        each = tree.num_bytes(jax.tree.map(lambda leaf: leaf[:1], x))
        return len(self._asked) * (examples * each + clients * 4 * self._program.sizes.capacity)

    def score(self, runs: Runs, state: State) -> Evaluation:
        """Scores of all clients, the test examples in slices."""
        held = {"test": (self._pools.test, self.tables.test, None)}
        if self.tables.validation is not None:
            held["validation"] = (self._pools.train, self.tables.validation, self.tables.labels)
        return {split: self._score(runs, state, *of_split) for split, of_split in held.items()}

    def _score(self, runs: Runs, state: State, pool: Pool, owned: Owned, labels: Any) -> dict[str, Scores]:
        examples = owned.example.shape[1]
        _, block = even_blocks(examples, BLOCK)  # as an evaluation of all at once has it
        judge = self._judge.setdefault(block, self._program.judge(block))
        size = -(-SLICE // self._devices) * block
        slices = [judge(runs, state, held) for held in self._slices(pool, owned, labels, size)]
        each = jax.tree.map(lambda *leaves: np.concatenate(leaves, 1)[:, :examples], *slices)
        scores = {name: self._sum(judged, owned.owner) for name, judged in each.items()}
        parts, count = [], owned.rows.shape[1]
        clients = -(-min(CLIENTS, count) // self._devices)
        for first in range(0, count, clients * self._devices):
            ids = np.arange(first, min(first + clients * self._devices, count))
            held = self._place(pool, owned, labels, np.tile(ids, (len(self._asked), 1)), clients)
            own = self._judge_personally(runs, state, held)
            if own is None:
                return scores
            parts.append(own)
        return scores | {"personal": jax.tree.map(lambda *leaves: np.concatenate(leaves, 1)[:, :count], *parts)}

    def _slices(self, pool: Pool, owned: Owned, labels: Any, size: int) -> Iterator[Any]:
        """Test examples in the order of the flat list, so many for a device, the last slice filled up."""
        examples, nobody = owned.example.shape[1], np.zeros(0, np.int32)
        for first in range(0, examples, self._devices * size):
            rows = np.minimum(np.arange(first, first + self._devices * size), examples - 1)
            shares = maps.shares(rows, self._devices)

            def flat(device: int, run: int, shares: np.ndarray = shares) -> Federation:
                held = owned.example[run][shares[device]]
                x, y = fedeba_jax.examples.part(pool[0], held), self._labels(pool, labels, run)[held]
                return Federation(x, y, nobody, nobody)  # type: ignore[arg-type]

            yield self._put(flat)

    def _place(self, pool: Pool, owned: Owned, labels: Any, ids: np.ndarray, clients: int) -> Any:
        """The federations of these clients [R, ..., n], so many for a device: those that it will be given."""
        shares = maps.shares(np.moveaxis(ids, -1, 0), self._devices)  # [devices, n of one, R, ...]
        examples = self._most_examples(owned, clients)

        def own(device: int, run: int) -> Federation:
            y = self._labels(pool, labels, run)
            whole = Stored(pool[0], y, owned.rows[run], owned.num_examples[run])
            return part(whole, shares[device, :, run], clients, examples)

        return self._put(own)

    def _labels(self, pool: Pool, labels: Any, run: int) -> Any:
        return pool[1] if labels is None else labels[run]

    def _most_examples(self, owned: Owned, clients: int) -> int:
        key = (id(owned), clients)
        if key not in self._most:
            self._most[key] = max(most_examples(own, clients) for own in owned.num_examples)
        return self._most[key]

    def _put(self, make: Callable[[int, int], Federation]) -> Any:
        """Places make(device, run), all runs stacked: its own part on each device of this process, or one for all.

        Parts differ by device only where the clients of a round are sharded over the devices.
        """

        def stacked(device: int) -> Federation:
            runs = [make(device, run) for run in range(len(self._asked))]
            return jax.tree.map(lambda *leaves: np.stack(leaves), *runs)

        if self._mesh is None:
            return maps.place(stacked(0), self._program.placement)
        return PerDevice(maps.place_parts(stacked, self._mesh, axis=1))
