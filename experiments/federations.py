"""From a data set to the arrays of one run or several: who holds what for training, validation and test.

Runs with different data seeds share the flat examples; only their index tables differ, padded to one
shape and stacked over the runs.
"""

from typing import NamedTuple

import numpy as np

from experiments.tasks import Task
from fedeba_jax.data import partition
from fedeba_jax.data.federation import flat_list, index_table
from fedeba_jax.data.sources import Dataset
from fedeba_jax.types import Federation, HeldOut

HOLDOUT = 0.2


class Split(NamedTuple):
    """Lists of examples by client; test rows are of the test arrays, or of the training arrays."""

    train: list[np.ndarray]
    validation: list[np.ndarray] | None
    test: list[np.ndarray]


class Pools(NamedTuple):
    """Flat examples that all runs share, (x, y) each; a holdout's test examples lie in the training pool."""

    train: tuple[np.ndarray, np.ndarray]
    test: tuple[np.ndarray, np.ndarray]


class Owned(NamedTuple):
    """Who owns what, of one pool: the fields of `Federation` and `HeldOut` without the examples."""

    index: np.ndarray  # type: ignore[assignment]
    count: np.ndarray  # type: ignore[assignment]
    example: np.ndarray
    owner: np.ndarray


class Tables(NamedTuple):
    """The tables of R runs: every leaf leads with a run axis."""

    train: Owned
    validation: Owned | None
    test: Owned


def split(dataset: Dataset, task: Task, *, seed: int, validation: float) -> Split:
    """Deal the data set to the clients."""
    if task.partition == "shards":
        dealt = partition.sharded(
            dataset.y_train, dataset.y_test,
            num_clients=task.clients, seed=seed, shards_per_client=task.shards_per_client,
        )  # fmt: skip
        train, test = dealt.train, dealt.test
    else:
        train = partition.dirichlet(dataset.y_train, num_clients=task.clients, alpha=task.dirichlet, seed=seed)
        test = None
    if task.test_split == "holdout":
        train, test = partition.holdout(train, fraction=HOLDOUT, seed=seed + 1)
    elif test is None:
        test = partition.deal_like(dataset.y_test, dataset.y_train, train)
    held = None
    if validation:
        train, held = partition.holdout(train, fraction=validation, seed=seed + 2)
    return Split(train, held, test)


def pools(dataset: Dataset, task: Task) -> Pools:
    train = (dataset.x_train, dataset.y_train)
    return Pools(train, train if task.test_split == "holdout" else (dataset.x_test, dataset.y_test))


def stack(splits: list[Split], like: list[Split] | None = None) -> Tables:
    """The tables of several runs, a split each; in the shape that all of `like` (default: these) fit."""
    like = splits if like is None else like
    parts = []
    for part in Split._fields:
        own, fit = ([getattr(s, part) for s in several] for several in (splits, like))
        parts.append(None if own[0] is None else _stack(own, fit))
    return Tables(*parts)


def assemble(pools: Pools, tables: Tables) -> tuple[Federation, HeldOut | None, HeldOut]:
    """One run's training data, validation data and test data (inside a program)."""
    train = Federation(*pools.train, tables.train.index, tables.train.count)
    validation = None if tables.validation is None else _held_out(pools.train, tables.validation)
    return train, validation, _held_out(pools.test, tables.test)


def _held_out(pool: tuple[np.ndarray, np.ndarray], owned: Owned) -> HeldOut:
    return HeldOut(Federation(*pool, owned.index, owned.count), owned.example, owned.owner)


def _stack(runs: list[list[np.ndarray]], like: list[list[np.ndarray]]) -> Owned:
    capacity = max(len(rows) for clients in like for rows in clients)
    length = max(sum(map(len, clients)) for clients in like)
    each = [index_table(clients, capacity) for clients in runs]
    return Owned(*map(np.stack, zip(*((*t, *flat_list(*t, length)) for t in each), strict=True)))
