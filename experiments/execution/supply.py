"""Where a batch of runs has its examples: on the devices, or on the host, from where each chunk of rounds gets its own.

Both give the same results to the bit. What is on the devices is not moved again; what stays on the host may be as large
as the disk: a chunk gets the examples of the clients that it will ask, gathered while the chunk before it runs, and
evaluations pass over the test examples slice by slice.
"""

from collections.abc import Iterator
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np

import fedeba_jax
from experiments.execution.program import Data, Evaluation, Program, Runs
from fedeba_jax import client_map as maps
from fedeba_jax import tree
from fedeba_jax.batching import even_blocks
from fedeba_jax.data.dealing import Owned, Pool, Pools, Tables
from fedeba_jax.data.hosting import Stored, most_examples, part
from fedeba_jax.evaluate import BLOCK, Scores, by_client
from fedeba_jax.rounds import cohorts
from fedeba_jax.types import Federation, State

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
        self._everyone = program.algorithm(tree.rows(runs, 0)).everyone
        keys = jax.vmap(jax.random.key)(jnp.asarray(runs.sample_seed))
        draw = jax.jit(lambda keys: jax.lax.map(lambda key: cohorts(key, 0, rounds, program.sizes), keys))
        self._cohorts = np.asarray(draw(keys))
        self._judge: dict[int, Any] = {}
        self._most: dict[tuple[int, int], int] = {}
        self._judge_personally = program.judge_personally()
        self._sum = jax.jit(
            lambda each, owner: maps.mapped(lambda e, o: by_client(e, o, program.sizes.num_clients))(each, owner)
        )

    def feed(self, start: int, rounds: int) -> Data:
        """The examples of the clients that these rounds ask."""
        clients = self.clients_of(rounds)
        asked = self._cohorts[:, start : start + rounds]
        everyone = np.arange(self._program.sizes.num_clients)
        ids = [everyone if self._everyone else own.ravel() for own in asked]
        return self._put(self._train(i, own, clients) for i, own in enumerate(ids))

    def clients_of(self, rounds: int) -> int:
        """The most clients that so many rounds can ask."""
        sizes = self._program.sizes
        return sizes.num_clients if self._everyone else min(sizes.num_clients, rounds * sizes.cohort_size)

    def num_bytes(self, rounds: int) -> int:
        """Of what a chunk of so many rounds takes, for all runs of the batch."""
        clients = self.clients_of(rounds)
        examples, x = self._most_examples(self.tables.train, clients), self._pools.train[0]
        each = tree.num_bytes(jax.tree.map(lambda leaf: leaf[:1], x))
        return len(self._cohorts) * (examples * each + clients * 4 * self._program.sizes.capacity)

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
        slices = [judge(runs, state, held) for held in self._slices(pool, owned, labels, SLICE * block)]
        each = jax.tree.map(lambda *leaves: np.concatenate(leaves, 1)[:, :examples], *slices)
        scores = {name: self._sum(judged, owned.owner) for name, judged in each.items()}
        parts = []
        for first in range(0, owned.rows.shape[1], CLIENTS):
            own = self._judge_personally(runs, state, self._clients(pool, owned, labels, first).own)
            if own is None:
                return scores
            parts.append(own)
        count = owned.rows.shape[1]
        return scores | {"personal": jax.tree.map(lambda *leaves: np.concatenate(leaves, 1)[:, :count], *parts)}

    def _slices(self, pool: Pool, owned: Owned, labels: Any, size: int) -> Iterator[Federation]:
        """Test examples in the order of the flat list, the last slice filled up."""
        examples = owned.example.shape[1]
        for first in range(0, examples, size):
            rows = np.minimum(np.arange(first, first + size), examples - 1)
            yield self._put(self._flat(pool, labels, i, own[rows]) for i, own in enumerate(owned.example)).own

    def _flat(self, pool: Pool, labels: Any, run: int, rows: np.ndarray) -> Federation:
        nobody: Any = np.zeros(0, np.int32)
        y = pool[1] if labels is None else labels[run]
        return Federation(fedeba_jax.examples.part(pool[0], rows), y[rows], nobody, nobody)

    def _train(self, run: int, ids: np.ndarray, clients: int) -> Federation:
        owned = self.tables.train
        return self._part(self._pools.train, owned, self.tables.labels, run, ids, clients)

    def _clients(self, pool: Pool, owned: Owned, labels: Any, first: int) -> Data:
        ids = np.arange(first, min(first + CLIENTS, owned.rows.shape[1]))
        clients = min(CLIENTS, owned.rows.shape[1])
        return self._put(self._part(pool, owned, labels, i, ids, clients) for i in range(len(self._cohorts)))

    def _part(self, pool: Pool, owned: Owned, labels: Any, run: int, ids: np.ndarray, clients: int) -> Federation:
        y = pool[1] if labels is None else labels[run]
        whole = Stored(pool[0], y, owned.rows[run], owned.num_examples[run])
        return part(whole, ids, clients, self._most_examples(owned, clients))

    def _most_examples(self, owned: Owned, clients: int) -> int:
        key = (id(owned), clients)
        if key not in self._most:
            self._most[key] = max(most_examples(own, clients) for own in owned.num_examples)
        return self._most[key]

    def _put(self, parts: Iterator[Federation]) -> Data:
        stacked = jax.tree.map(lambda *leaves: np.stack(leaves), *parts)
        return Data(maps.place(stacked, self._program.placement), ())
