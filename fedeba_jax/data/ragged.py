"""Lists of unequal length in one array: who owns which example, for ten clients or for a million."""

import dataclasses
import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, overload

import numpy as np


@dataclasses.dataclass(frozen=True, eq=False)
class Ragged(Sequence[np.ndarray]):
    """A sequence of arrays of positions that are kept one after the other.

    It reads like a list of arrays: `len(lists)`, `lists[3]`, `for own in lists`. Whoever has many lists works on the
    two arrays instead, without a Python loop.

    Attributes:
      flat: all lists, one after the other.
      counts: how long each is.
    """

    flat: np.ndarray  # [E] int64
    counts: np.ndarray  # [M] int64

    @classmethod
    def of(cls, lists: "Iterable[Any] | Ragged") -> "Ragged":
        """The same lists as one value."""
        if isinstance(lists, Ragged):
            return lists
        arrays = [np.asarray(own, np.int64) for own in lists]
        counts = np.fromiter(map(len, arrays), np.int64, len(arrays))
        return cls(np.concatenate(arrays) if arrays else np.empty(0, np.int64), counts)

    @classmethod
    def by_owner(cls, owner: np.ndarray, number: int) -> "Ragged":
        """Lists of the positions at which each of 0, ..., number - 1 stands; other entries are nobody's."""
        order = np.argsort(owner, kind="stable")
        first, end = np.searchsorted(owner, [0, number], sorter=order)
        order = order[first:end]
        return cls(order, np.bincount(owner[order], minlength=number))

    @property
    def starts(self) -> np.ndarray:
        """Where each list begins in `flat`."""
        return np.cumsum(self.counts) - self.counts

    @property
    def owner(self) -> np.ndarray:
        """Whose each entry of `flat` is."""
        return np.repeat(np.arange(len(self)), self.counts)

    def __len__(self) -> int:
        return len(self.counts)

    def __iter__(self) -> Iterator[np.ndarray]:
        ends = np.cumsum(self.counts).tolist()
        for begin, end in itertools.pairwise([0, *ends]):
            yield self.flat[begin:end]

    @overload
    def __getitem__(self, index: int) -> np.ndarray: ...
    @overload
    def __getitem__(self, index: slice) -> "Ragged": ...
    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return self.take(np.arange(len(self))[index])
        begin = int(self.starts[index])
        return self.flat[begin : begin + int(self.counts[index])]

    def take(self, chosen: np.ndarray) -> "Ragged":
        """The lists of these numbers, in their order."""
        counts = self.counts[chosen]
        within = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
        return Ragged(self.flat[np.repeat(self.starts[chosen], counts) + within], counts)
