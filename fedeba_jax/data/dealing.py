"""From a data set to the arrays of one run or several: who holds what for training, validation and test.

Runs with different data seeds share the flat examples; only their index tables differ, padded to one
shape and stacked over the runs. Label noise is a draw of the data seed too: a run's noisy labels stand in its
tables, the true ones stay in the pool, where partitions and test data take theirs.
"""

import dataclasses
from typing import Any, NamedTuple

import numpy as np

from fedeba_jax.data import noise, partition
from fedeba_jax.data.federation import flat_list, index_table
from fedeba_jax.data.sources import Dataset
from fedeba_jax.examples import pack
from fedeba_jax.types import Federation, HeldOut

HOLDOUT = 0.2


class Split(NamedTuple):
    """Lists of examples by client; test rows are of the test arrays, or of the training arrays."""

    train: list[np.ndarray]
    validation: list[np.ndarray] | None
    test: list[np.ndarray]
    labels: np.ndarray | None = None  # [N] noisy labels of the training arrays; None: they are as in the pool


Pool = tuple[Any, Any]  # (x, y): arrays, or tracers of them


class Pools(NamedTuple):
    """Flat examples that all runs share, (x, true y) each; a holdout's test examples lie in the training pool."""

    train: Pool
    test: Pool


class Owned(NamedTuple):
    """Who owns what, of one pool: the fields of `Federation` and `HeldOut` without the examples."""

    rows: Any
    num_examples: Any
    example: Any
    owner: Any


class Tables(NamedTuple):
    """The tables of R runs: every leaf leads with a run axis."""

    train: Owned
    validation: Owned | None
    test: Owned
    labels: Any  # [R, N] noisy labels of the training pool; None: without noise


@dataclasses.dataclass(frozen=True)
class Dealing:
    """How a data set is dealt to clients.

    Attributes:
      clients: number of clients M.
      partition: "shards" (of labels, equally many for each client) or "dirichlet" (label mixtures, unequal sizes).
      shards_per_client: of partition "shards".
      dirichlet: concentration of partition "dirichlet".
      test_split: "sharded_official", the official test set dealt as the training data is, or "holdout", 20 % of each
        client's own data.
      label_noise: share of the training (and validation) labels that are flipped to another at random.
      validation: fraction of each client's training data that is held back and evaluated.
    """

    clients: int = 100
    partition: str = "shards"
    shards_per_client: int = 2
    dirichlet: float = 0.1
    test_split: str = "sharded_official"
    label_noise: float = 0.0
    validation: float = 0.0

    def split(self, dataset: Dataset, seed: int) -> Split:
        """Deal the data set to the clients, by its true labels, and then flip some of those they train on.

        Validation examples are held back from a client's training data and have its noisy labels: who chooses
        hyper-parameters has no others. Test labels are true, also those of a holdout.
        """
        test = None
        if self.partition == "shards":
            train, test = partition.split_by_shards(
                dataset.y_train,
                dataset.y_test,
                num_clients=self.clients,
                seed=seed,
                shards_per_client=self.shards_per_client,
            )
        else:
            train = partition.dirichlet(dataset.y_train, num_clients=self.clients, alpha=self.dirichlet, seed=seed)
        if self.test_split == "holdout":
            train, test = partition.holdout(train, fraction=HOLDOUT, seed=seed + 1)
        elif test is None:
            test = partition.deal_like(dataset.y_test, dataset.y_train, train)
        held = None
        if self.validation:
            train, held = partition.holdout(train, fraction=self.validation, seed=seed + 2)
        return Split(train, held, test, self._noisy_labels(dataset, test, seed))

    def pools(self, dataset: Dataset) -> Pools:
        """The flat examples of the data set."""
        train = (pack(dataset.x_train), dataset.y_train)
        return Pools(train, train if self.test_split == "holdout" else (pack(dataset.x_test), dataset.y_test))

    def _noisy_labels(self, dataset: Dataset, test: list[np.ndarray], seed: int) -> np.ndarray | None:
        if not self.label_noise:
            return None
        trained = np.arange(len(dataset.y_train))
        if self.test_split == "holdout":
            trained = np.setdiff1d(trained, np.concatenate(test))
        return noise.flip_symmetric(
            dataset.y_train, rate=self.label_noise, num_classes=dataset.num_classes, seed=seed, rows=trained
        )


def stack(splits: list[Split], like: list[Split] | None = None) -> Tables:
    """The tables of several runs, a split each; in the shape that all of `like` (default: these) fit."""
    like = splits if like is None else like
    parts: list[Any] = []
    for part in ("train", "validation", "test"):
        own, fit = ([getattr(s, part) for s in several] for several in (splits, like))
        parts.append(None if own[0] is None else _stack(own, fit))
    noisy = [s.labels for s in splits if s.labels is not None]
    train, validation, test = parts
    return Tables(train, validation, test, np.stack(noisy) if noisy else None)


def assemble(pools: Pools, tables: Tables) -> tuple[Federation, dict[str, HeldOut]]:
    """One run's training data, and its held-out data by split (inside a program)."""
    pool = pools.train if tables.labels is None else (pools.train[0], tables.labels)
    train = Federation(*pool, tables.train.rows, tables.train.num_examples)
    held = {"test": _held_out(pools.test, tables.test)}
    if tables.validation is not None:
        held["validation"] = _held_out(pool, tables.validation)
    return train, held


def flipped(pools: Pools, tables: Tables) -> list[int] | None:
    """How many training labels of each run the noise changed; None without noise."""
    return None if tables.labels is None else (tables.labels != pools.train[1][None]).sum(axis=1).tolist()


def _held_out(pool: Pool, owned: Owned) -> HeldOut:
    return HeldOut(Federation(*pool, owned.rows, owned.num_examples), owned.example, owned.owner)


def _stack(runs: list[list[np.ndarray]], like: list[list[np.ndarray]]) -> Owned:
    capacity = max(len(rows) for clients in like for rows in clients)
    length = max(sum(map(len, clients)) for clients in like)
    each = [index_table(clients, capacity) for clients in runs]
    return Owned(*map(np.stack, zip(*((*t, *flat_list(*t, length)) for t in each), strict=True)))
