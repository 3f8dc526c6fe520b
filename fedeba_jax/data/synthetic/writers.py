"""Text of users with habits of their own: the shapes and costs of Reddit in fair federated learning, and no more."""

import numpy as np

from fedeba_jax.data.sources.registry import Dataset
from fedeba_jax.data.synthetic.making import at_least, made, owners
from fedeba_jax.data.text import BOS_ID, SPECIAL

HABIT = 0.5  # how often a word is followed by its usual successor


def text(clients: int = 817, vocabulary: int = 10_000, length: int = 10, own: float = 0.5, seed: int = 0) -> Dataset:
    """Users who write by Zipf's law, and by habits: some that all have, some of their own.

    Every second word is the usual successor of the one before it: this user's with probability `own`, else that of all
    users. The others are drawn by frequency, 1 / rank; so were the successors themselves. A user has
    10 + LogNormal(3, 1) sequences, and a quarter as many to be tested on.

    Args:
      clients: users.
      vocabulary: words, the four special ones of `data.text` among them.
      length: words of a sequence.
      own: how far habits are a user's own.
      seed: of everything.
    """
    at_least(1, clients=clients, length=length)
    at_least(len(SPECIAL) + 2, vocabulary=vocabulary)
    if not 0 <= own <= 1:
        raise ValueError(f"own={own} is not a share; give a number in [0, 1]")
    rng, words = np.random.default_rng(seed), vocabulary - len(SPECIAL)
    usual, personal = _by_frequency(rng, words, (words,)), _by_frequency(rng, words, (clients, words))
    counts = 10 + rng.lognormal(3, 1, clients).astype(np.int64)
    arrays = {}
    for split, number in (("train", counts), ("test", counts // 4)):
        owner = owners(number)
        written = _by_frequency(rng, words, (len(owner), length))
        for place in range(1, length):
            before = written[:, place - 1]
            habit = np.where(rng.random(len(owner)) < own, personal[owner, before], usual[before])
            written[:, place] = np.where(rng.random(len(owner)) < HABIT, habit, written[:, place])
        targets = written + np.int32(len(SPECIAL))
        begin = np.full((len(owner), 1), BOS_ID, np.int32)
        arrays[f"x_{split}"] = np.concatenate([begin, targets[:, :-1]], axis=1)
        arrays[f"y_{split}"] = targets
        arrays[f"client_{split}"] = owner
    arguments = {"clients": clients, "vocabulary": vocabulary, "length": length, "own": own, "seed": seed}
    return made("synthetic_text", arguments, vocabulary, arrays)


def _by_frequency(rng: np.random.Generator, words: int, shape: tuple[int, ...]) -> np.ndarray:
    """Numbers of words, 0 the most frequent, drawn with probability proportional to 1 / (number + 1)."""
    ends = np.cumsum(1 / np.arange(1, words + 1))
    return np.searchsorted(ends[:-1] / ends[-1], rng.random(shape), side="right").astype(np.int32)
