"""Text as sequences of tokens: a vocabulary, and pieces of equal length with the token that follows each.

A text of tokens w1 ... wn becomes

    x:  BOS w1  w2 ...  wn        cut into pieces of the same length, the last one filled with PAD
    y:  w1  w2  ...  wn  EOS      -1 wherever the target is PAD, UNK, BOS or EOS: those do not count
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

PAD, UNK, BOS, EOS = SPECIAL = ("<PAD>", "<UNK>", "<BOS>", "<EOS>")
PAD_ID, UNK_ID, BOS_ID, EOS_ID = range(4)
NOT_COUNTED = -1

Vocabulary = Mapping[str, int]  # the special tokens are 0 to 3


def vocabulary(tokens: Iterable[str]) -> dict[str, int]:
    """Numbers of the special tokens, then of the given ones, in their order."""
    return {token: number for number, token in enumerate((*SPECIAL, *tokens))}


def most_frequent(tokens: Iterable[str], size: int) -> dict[str, int]:
    """The vocabulary of at most `size` tokens, special ones included: by frequency, ties by alphabet."""
    counts = Counter(tokens)
    words = sorted(counts.keys() - set(SPECIAL), key=lambda word: (-counts[word], word))
    return vocabulary(words[: size - len(SPECIAL)])


def encode(tokens: Sequence[str], words: Vocabulary) -> np.ndarray:
    """Numbers of tokens [n] int32; what is not in the vocabulary is UNK."""
    return np.array([words.get(token, UNK_ID) for token in tokens], np.int32)


def targets(y: np.ndarray) -> np.ndarray:
    """Targets with -1 for the special tokens, which are not scored."""
    return np.where(y <= EOS_ID, np.int32(NOT_COUNTED), y)


def sequences(tokens: Sequence[str], words: Vocabulary, length: int) -> tuple[np.ndarray, np.ndarray]:
    """Pieces x, y [pieces, length] int32 of one text; a piece in which no target counts is left out."""
    ids = encode(tokens, words)
    pieces = -(-(len(ids) + 1) // length)
    x, y = np.full((2, pieces * length), PAD_ID, np.int32)
    x[0], x[1 : len(ids) + 1] = BOS_ID, ids
    y[: len(ids)], y[len(ids)] = ids, EOS_ID
    x, y = x.reshape(pieces, length), targets(y).reshape(pieces, length)
    counted = (y != NOT_COUNTED).any(axis=1)
    return x[counted], y[counted]
