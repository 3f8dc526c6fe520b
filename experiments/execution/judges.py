"""By whose scores a run is judged: under attack, by those of honest clients; and a minority of these, apart.

Where attackers are drawn anew in each round, every client is honest most of the time, and all of them judge.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import jax
import numpy as np

from experiments.command.runs import Run
from fedeba_jax.attacks import fixed
from fedeba_jax.data.dealing import Pools, Tables

MINORITY = 0.1  # of the honest clients


class Judges(NamedTuple):
    """Of the M clients of a run."""

    honest: np.ndarray  # [M] of bool
    minority: np.ndarray  # [M] of bool: the honest clients with the rarest labels; nobody if there are no labels


def judges_of(runs: Sequence[Run], pools: Pools, tables: Tables) -> list[Judges | None]:
    """The judges of each run of a batch; None of those without an attack."""
    owned = tables.train
    return [
        None if run.task.attack.name == "none" else _judges(run, pools.train[1], owned.rows[i], owned.num_examples[i])
        for i, run in enumerate(runs)
    ]


def _judges(run: Run, labels: np.ndarray, rows: np.ndarray, counts: np.ndarray) -> Judges:
    attack, clients = run.task.attack, len(counts)
    honest = np.ones(clients, bool)
    if not attack.arguments["drawn"]:
        attackers = np.asarray(fixed(jax.random.key(run.seeds.sample), attack.arguments["share"], clients))
        honest = ~attackers | attackers.all()  # nobody else could judge
    of_one = labels.ndim == 1 and np.issubdtype(labels.dtype, np.integer)
    held = [labels[own[:count]] for own, count in zip(rows, counts, strict=True)] if of_one else []
    return Judges(honest, rarest(held, honest) if of_one else np.zeros(clients, bool))


def rarest(held: Sequence[np.ndarray], honest: np.ndarray) -> np.ndarray:
    """The tenth of the honest clients, one at least, whose labels are rarest among honest clients, [M] of bool.

    A client's labels are as rare as the share of honest clients' examples that have its label, averaged over its
    examples.

    Args:
      held: labels of each client's training examples.
      honest: [M] of bool.
    """
    ids = np.flatnonzero(honest).tolist()
    chosen = np.zeros(len(honest), bool)
    shares = np.bincount(np.concatenate([held[i] for i in ids]), minlength=max(int(y.max(initial=0)) for y in held) + 1)
    common = np.array([shares[held[i]].mean() if len(held[i]) else np.inf for i in ids])
    chosen[np.array(ids)[np.argsort(common, kind="stable")[: math.ceil(MINORITY * len(ids))]]] = True
    return chosen
