"""From a data set to the arrays of one run or several: who holds what for training, validation and test.

Runs with different data seeds share the flat examples; only their index tables differ, padded to one
shape and stacked over the runs. Label noise is a draw of the data seed too: a run's noisy labels stand in its
tables, the true ones stay in the pool, where partitions and test data take theirs.
"""

import dataclasses
import functools
from typing import Any, NamedTuple

import numpy as np

from fedeba_jax.data import noise, partition
from fedeba_jax.data.federation import flat_list, index_table
from fedeba_jax.data.ragged import Ragged
from fedeba_jax.data.sources import Dataset
from fedeba_jax.examples import pack
from fedeba_jax.types import Federation, HeldOut

HOLDOUT = 0.2
PARTITIONS = ("auto", "shards", "dirichlet", "iid", "quantity", "natural")
TEST_SPLITS = ("auto", "sharded_official", "holdout", "natural")


class Split(NamedTuple):
    """Lists of examples by client; test rows are of the test arrays, or of the training arrays."""

    train: Ragged
    validation: Ragged | None
    test: Ragged
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
      clients: number of clients M; 0 is as many as the data has (partition "natural").
      partition: "shards" (of labels, equally many for each client), "dirichlet" (label mixtures, unequal sizes), "iid"
        (at random, equal sizes), "quantity" (at random, unequal sizes) or "natural" (the data's own clients; if fewer
        are asked for, so many of them at random). "auto" is "natural" for data that comes with clients, else "shards".
      shards_per_client: of partition "shards".
      dirichlet: concentration of partitions "dirichlet" (of label mixtures) and "quantity" (of sizes).
      test_split: "sharded_official", the official test set dealt as the training data is; "holdout", 20 % of each
        client's own data; or "natural", the test examples that each client came with. "auto" is the test examples that
        go with the partition, where there are any, and a holdout otherwise.
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

    def settled(self, dataset: Dataset) -> "Dealing":
        """The same with all that is automatic as this data set has it; an error if it cannot be dealt so."""
        name = dataset.source if dataset.name == "custom" else dataset.name
        chosen, clients = self.partition, self.clients
        if chosen == "auto":
            chosen = "shards" if dataset.client_train is None else "natural"
        if chosen == "natural":
            if dataset.client_train is None:
                raise ValueError(f"partition=natural: {name} has no clients of its own; choose another partition")
            there_are = _num_clients(dataset)
            clients = clients or there_are
            if clients > there_are:
                raise ValueError(f"clients={clients} is more than the {there_are} that {name} has; lower clients")
        if clients < 1:
            raise ValueError(f"clients={clients}: {name} dealt by {chosen} has no number of its own; give clients")
        if chosen in ("shards", "dirichlet") and not _has_labels(dataset.y_train):
            raise ValueError(f"partition={chosen} deals by label, and an example of {name} has not one; choose iid")
        test_split = _default_test(chosen, dataset) if self.test_split == "auto" else self.test_split
        if test_split == "natural" and (chosen != "natural" or dataset.client_test is None):
            raise ValueError(f"test_split=natural: {name} dealt by {chosen} has no test clients; choose holdout")
        if test_split == "sharded_official" and not (len(dataset.y_test) and _has_labels(dataset.y_test)):
            raise ValueError(f"test_split=sharded_official: {name} has no test set with labels; choose holdout")
        if self.label_noise and not _has_labels(dataset.y_train):
            raise ValueError(f"label_noise={self.label_noise}: an example of {name} has not one label; give 0")
        return dataclasses.replace(self, clients=clients, partition=chosen, test_split=test_split)

    def split(self, dataset: Dataset, seed: int) -> Split:
        """Deal the data set to the clients, by its true labels, and then flip some of those they train on.

        Validation examples are held back from a client's training data and have its noisy labels: who chooses
        hyper-parameters has no others. Test labels are true, also those of a holdout.
        """
        dealing = self.settled(dataset)
        train, test = dealing._deal(dataset, seed)
        if dealing.test_split == "holdout":
            train, test = partition.holdout(train, fraction=HOLDOUT, seed=seed + 1)
        elif test is None:
            test = partition.deal_like(dataset.y_test, dataset.y_train, train)
        if not test.counts.all():
            raise ValueError(f"client {test.counts.argmin()} has no test example; give it one, or choose a holdout")
        labels, held = self._noisy_labels(dataset, train.flat, seed), None
        if self.validation:
            train, held = partition.holdout(train, fraction=self.validation, seed=seed + 2)
        return Split(train, held, test, labels)

    def _deal(self, dataset: Dataset, seed: int) -> tuple[Ragged, Ragged | None]:
        """Who holds which training examples, and which test examples where the partition says so itself."""
        clients, y = self.clients, dataset.y_train
        match self.partition:
            case "shards" if self.test_split == "sharded_official":
                return partition.split_by_shards(
                    y, dataset.y_test, num_clients=clients, seed=seed, shards_per_client=self.shards_per_client
                )
            case "shards":
                return partition.label_shards(y, clients, seed, self.shards_per_client), None
            case "dirichlet":
                return partition.dirichlet(y, num_clients=clients, alpha=self.dirichlet, seed=seed), None
            case "iid":
                return partition.iid(len(y), num_clients=clients, seed=seed), None
            case "quantity":
                return partition.quantity(len(y), num_clients=clients, alpha=self.dirichlet, seed=seed), None
            case "natural":
                own = functools.partial(partition.natural, num_clients=clients, of=_num_clients(dataset), seed=seed)
                tests = dataset.client_test if self.test_split == "natural" else None
                return own(_given(dataset.client_train)), None if tests is None else own(tests)
        raise ValueError(f"partition={self.partition} is not known; choose one of {', '.join(PARTITIONS)}")

    def pools(self, dataset: Dataset) -> Pools:
        """The flat examples of the data set."""
        train = (pack(dataset.x_train), dataset.y_train)
        held_out = self.settled(dataset).test_split == "holdout"
        return Pools(train, train if held_out else (pack(dataset.x_test), dataset.y_test))

    def _noisy_labels(self, dataset: Dataset, trained: np.ndarray, seed: int) -> np.ndarray | None:
        if not self.label_noise:
            return None
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


def _stack(runs: list[Ragged], like: list[Ragged]) -> Owned:
    capacity = max(int(clients.counts.max()) for clients in like)
    length = max(len(clients.flat) for clients in like)
    each = [index_table(clients, capacity) for clients in runs]
    return Owned(*map(np.stack, zip(*((*t, *flat_list(*t, length)) for t in each), strict=True)))


def _num_clients(dataset: Dataset) -> int:
    """How many clients the data came with."""
    return len(dataset.client_names) or int(_given(dataset.client_train).max()) + 1


def _given(owner: np.ndarray | None) -> np.ndarray:
    assert owner is not None, "settled() has seen to it"
    return owner


def _has_labels(y: np.ndarray) -> bool:
    """Whether each example has one label; text has a sequence of targets, regression a number."""
    return y.ndim == 1 and np.issubdtype(y.dtype, np.integer)


def _default_test(chosen: str, dataset: Dataset) -> str:
    """The test examples that go with a partition."""
    if chosen == "natural":
        return "holdout" if dataset.client_test is None else "natural"
    dealt = chosen in ("shards", "iid") and len(dataset.y_test) and _has_labels(dataset.y_test)
    return "sharded_official" if dealt else "holdout"
