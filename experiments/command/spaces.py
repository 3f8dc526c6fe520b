"""What a tuning tries: the space of each method, random points of it, and rungs of successive halving."""

import math
import zlib
from typing import NamedTuple

from experiments.command import grids
from experiments.command.grids import Assignment
from experiments.command.tasks import Task
from fedeba_jax import ALGORITHMS
from fedeba_jax.hyperparameters import Range
from fedeba_jax.method import declared

RATE = 10.0
"""The local learning rate is looked for from the task's divided by this to the task's times this."""


class Rung(NamedTuple):
    """One stage of successive halving."""

    points: int  # of each method, at most
    rounds: int  # that each is trained for, from the start


def space(algorithm: str, task: Task) -> dict[str, Range]:
    """What is tuned of a method on a task: the learning rate, and what the method declares."""
    return {"lr": Range(task.lr / RATE, task.lr * RATE), **declared(ALGORITHMS[algorithm]).search}


def points(space: dict[str, Range], count: int, seed: int) -> list[Assignment]:
    """Random points of a space.

    A name has draws of its own, whichever else there are: all methods try the same learning rates, and the first
    points of a larger budget are those of a smaller one.
    """
    columns = [
        grids.sampled([(name, [str(within)])], count, [seed, zlib.crc32(name.encode())])
        for name, within in space.items()
    ]
    return [{name: text for column in columns for name, text in column[i].items()} for i in range(count)]


def rungs(budget: int, rounds: int, eval_every: int) -> list[Rung]:
    """Half of the points for twice the rounds, until two or three are left for all rounds.

    16 points of T rounds: 16 for T/8, 8 for T/4, 4 for T/2, 2 for T. Rounds are whole numbers of evaluations; of rungs
    that would then be equally long the first stays.
    """
    halvings = max(0, math.floor(math.log2(budget)) - 1)
    found: dict[int, Rung] = {}
    for done in range(halvings + 1):
        share = rounds / 2 ** (halvings - done)
        length = min(rounds, eval_every * math.ceil(share / eval_every))
        found.setdefault(length, Rung(math.ceil(budget / 2**done), length))
    return list(found.values())
