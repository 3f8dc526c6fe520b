"""Who owns which example: index lists for clients, from labels or owners and a seed alone.

When to use which: `split_by_shards` is the paper's main split (two label shards per client, equal sizes, test data
of the client's own labels); `dirichlet` has unequal sizes and mixtures of labels, and goes with `holdout`
(each client's own examples) or with `deal_like` (the official test set, in proportion). `iid` deals at random, the
control for all others; `quantity` has unequal sizes and the same labels everywhere. `natural` leaves each example
with the client that it came with.

Every function is deterministic in its arguments, never gives an example to two clients, and takes and
returns positions in the labels' order (`sources` gives each data set one order, whatever its source).
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from fedeba_jax.data.ragged import Ragged

Clients = Ragged  # M lists of int64 positions


class Split(NamedTuple):
    """Each client's train positions in the train set and test positions in the test set."""

    train: Clients
    test: Clients


def label_shards(labels: np.ndarray, num_clients: int, seed: int, shards_per_client: int = 2) -> Clients:
    """Sort by label, cut into equal contiguous shards, deal them at random without replacement.

    A shard has N // (num_clients * shards_per_client) examples; the rest (of the last labels) is dropped.
    """
    shards = _shards(labels, num_clients, shards_per_client)
    return _dealt(shards, _hands(num_clients, shards_per_client, seed))


def split_by_shards(
    train_labels: np.ndarray, test_labels: np.ndarray, *, num_clients: int, seed: int, shards_per_client: int = 2
) -> Split:
    """`label_shards` for the train set, and the whole test set dealt with the same shard ids.

    Notes:
      A shard's test examples are its share, by label, of the test set, in shard order. Where every label
      is a whole number of shards in both sets (FashionMNIST, CIFAR-10 and 100 clients) that is exactly
      shard j of the test set for shard j of the train set. Where not (MNIST), a client's test labels are
      still among its train labels, in proportion.
    """
    train_shards = _shards(train_labels, num_clients, shards_per_client)
    test_shards = _deal(test_labels, train_labels, train_shards)
    hands = _hands(num_clients, shards_per_client, seed)
    train, test = _dealt(train_shards, hands), _dealt(test_shards, hands)
    return Split(train, _all_tested(train, test))


def deal_like(test_labels: np.ndarray, train_labels: np.ndarray, train: Sequence[np.ndarray]) -> Clients:
    """Deal the test set: a client's share of a label is its share of that label's train examples."""
    train = Ragged.of(train)
    return _all_tested(train, _deal(test_labels, train_labels, train))


def dirichlet(
    labels: np.ndarray, *, num_clients: int, alpha: float, seed: int, min_size: int = 10, max_tries: int = 1000
) -> Clients:
    """Split each class among clients by p ~ Dir(alpha 1_M), leaving out clients that hold N / M already.

    The draw is repeated until every client has `min_size` examples. Every example is given to someone.
    """
    labels = _labels("labels", labels)
    _at_least("min_size", min_size, 0)
    _at_least("max_tries", max_tries, 1)
    _positive("alpha", alpha)
    _enough(len(labels), num_clients, min_size)
    rng = np.random.default_rng(seed)
    classes = np.unique(labels)
    totals = np.array([np.sum(labels == label) for label in classes])
    for _ in range(max_tries):
        sizes = _dirichlet_sizes(rng, totals, num_clients, alpha)
        if sizes is not None and sizes.sum(axis=0).min() >= min_size:
            break
    else:
        raise ValueError(
            f"alpha={alpha} gave some client fewer than min_size={min_size} examples in each of "
            f"{max_tries} tries; raise alpha, or lower num_clients={num_clients}"
        )
    parts = [
        np.split(rng.permutation(np.flatnonzero(labels == label)), np.cumsum(size)[:-1])
        for label, size in zip(classes, sizes, strict=True)
    ]
    return Ragged.of(np.concatenate(own) for own in zip(*parts, strict=True))


def iid(num_examples: int, *, num_clients: int, seed: int) -> Clients:
    """Deal examples at random, equally many to each client; the first ones get one more where that does not divide."""
    _enough(num_examples, num_clients, 1)
    sizes = np.full(num_clients, num_examples // num_clients)
    sizes[: num_examples % num_clients] += 1
    return Ragged(np.random.default_rng(seed).permutation(num_examples), sizes)


def quantity(num_examples: int, *, num_clients: int, alpha: float, seed: int, min_size: int = 10) -> Clients:
    """Deal examples at random in unequal numbers: `min_size` to everyone, the rest in shares p ~ Dir(alpha 1_M).

    The smaller alpha, the more a few clients hold. Every example is given to someone.
    """
    _at_least("min_size", min_size, 1)
    _positive("alpha", alpha)
    _enough(num_examples, num_clients, min_size)
    rng = np.random.default_rng(seed)
    ends = np.cumsum(rng.dirichlet(np.full(num_clients, alpha)))
    rest = num_examples - num_clients * min_size
    sizes = min_size + np.diff((ends / ends[-1] * rest).astype(np.int64), prepend=0)
    return Ragged(rng.permutation(num_examples), sizes)


def natural(owner: np.ndarray, *, num_clients: int, of: int, seed: int) -> Clients:
    """Leave each example with its own client, in the examples' order.

    Args:
      owner: number [N] of each example's client, 0, ..., of - 1.
      num_clients: how many clients take part: if not all, so many are drawn at random.
      of: how many clients the data has.
      seed: of that draw.
    """
    _at_least("num_clients", num_clients, 1)
    if num_clients > of:
        raise ValueError(f"num_clients={num_clients} is more than the {of} that the data has; lower num_clients")
    everyone = Ragged.by_owner(owner, of)
    if num_clients == of:
        return everyone
    return everyone.take(np.sort(np.random.default_rng(seed).choice(of, num_clients, replace=False)))


def holdout(clients: Sequence[np.ndarray], *, fraction: float, seed: int) -> tuple[Clients, Clients]:
    """Split each client's own examples at random into (kept, held); both sides get at least one."""
    if not 0 < fraction < 1:
        raise ValueError(f"fraction={fraction} is not between 0 and 1; use for example fraction=0.2")
    clients = Ragged.of(clients)
    counts = clients.counts
    if len(counts) and counts.min() < 2:
        few = counts.argmin()
        raise ValueError(
            f"clients[{few}] has {counts[few]} examples and a holdout needs 2; lower num_clients, or leave that client "
            "out"
        )
    rng = np.random.default_rng(seed)
    shuffled = np.concatenate([rng.permutation(own) for own in clients])
    cut = np.clip(np.round(fraction * counts).astype(np.int64), 1, counts - 1)
    is_held = np.arange(len(shuffled)) < np.repeat(clients.starts + cut, counts)
    return Ragged(shuffled[~is_held], counts - cut), Ragged(shuffled[is_held], cut)


def _shards(labels: np.ndarray, num_clients: int, shards_per_client: int) -> Clients:
    """Equal contiguous cuts of the stable order by label."""
    labels = _labels("labels", labels)
    _at_least("num_clients", num_clients, 1)
    _at_least("shards_per_client", shards_per_client, 1)
    number = num_clients * shards_per_client
    size = len(labels) // number
    if size == 0:
        raise ValueError(
            f"num_clients={num_clients} with shards_per_client={shards_per_client} needs "
            f"{number} examples and there are {len(labels)}; lower num_clients or shards_per_client"
        )
    order = np.argsort(labels, kind="stable")
    return Ragged(order[: number * size], np.full(number, size))


def _hands(num_clients: int, shards_per_client: int, seed: int) -> np.ndarray:
    """[M, shards_per_client] shard ids: a random permutation dealt client by client."""
    shuffled = np.random.default_rng(seed).permutation(num_clients * shards_per_client)
    return shuffled.reshape(num_clients, shards_per_client)


def _dealt(shards: Clients, hands: np.ndarray) -> Clients:
    """Each client's shards, one after the other, as one list."""
    shuffled = shards.take(hands.ravel())
    return Ragged(shuffled.flat, shuffled.counts.reshape(hands.shape).sum(axis=1))


def _deal(test_labels: np.ndarray, train_labels: np.ndarray, groups: Clients) -> Clients:
    """Cut each label's test examples, in order, at the groups' cumulative shares of its train examples.

    Integer arithmetic: the cuts are exact, a group is within one example of its share, none is given twice,
    and all examples of a label that some group holds are given.
    """
    test_labels, train_labels = _labels("test_labels", test_labels), _labels("train_labels", train_labels)
    number, owner = len(groups), np.full(len(test_labels), -1)
    held, whose = train_labels[groups.flat], groups.owner
    for label in np.unique(test_labels):
        counts = np.bincount(whose[held == label], minlength=number)
        if counts.sum() == 0:
            continue
        examples = np.flatnonzero(test_labels == label)
        cuts = np.cumsum(counts) * len(examples) // counts.sum()
        owner[examples] = np.repeat(np.arange(number), np.diff(cuts, prepend=0))
    by_label = np.argsort(test_labels, kind="stable")
    dealt = Ragged.by_owner(owner[by_label], number)
    return Ragged(by_label[dealt.flat], dealt.counts)


def _dirichlet_sizes(rng: np.random.Generator, totals: np.ndarray, num_clients: int, alpha: float) -> np.ndarray | None:
    """[classes, M] example counts of one draw; None if a class had nobody left to go to."""
    sizes = np.zeros((len(totals), num_clients), np.int64)
    for row, total in enumerate(totals):
        share = rng.dirichlet(np.full(num_clients, alpha))
        share = np.where(sizes.sum(axis=0) < totals.sum() / num_clients, share, 0.0)
        ends = np.cumsum(share)
        if not ends[-1] > 0:
            return None
        cuts = (ends / ends[-1] * total).astype(np.int64)  # the last is exactly `total`: no rounding leftovers
        sizes[row] = np.diff(cuts, prepend=0)
    return sizes


def _all_tested(train: Clients, test: Clients) -> Clients:
    """The test split, unless some client could not be evaluated on it."""
    if not test.counts.all():
        client = int(test.counts.argmin())
        raise ValueError(
            f"client {client} with {train.counts[client]} train examples gets no test example in "
            "proportion; use a holdout, or lower num_clients"
        )
    return test


def _labels(name: str, labels: np.ndarray) -> np.ndarray:
    labels = np.asarray(labels)
    if labels.ndim != 1 or len(labels) == 0 or not np.issubdtype(labels.dtype, np.integer):
        raise ValueError(f"{name} is {labels.dtype}{list(labels.shape)}; give a non-empty vector of integers")
    return labels


def _at_least(name: str, value: int, least: int) -> None:
    if not isinstance(value, int | np.integer) or isinstance(value, bool):
        raise ValueError(f"{name}={value!r} is not a whole number; give one of at least {least}")
    if value < least:
        raise ValueError(f"{name}={value} is less than {least}; raise {name}")


def _positive(name: str, value: float) -> None:
    if not (isinstance(value, int | float | np.number) and np.isfinite(value) and value > 0):
        raise ValueError(f"{name}={value} is not a positive number; use for example {name}=0.1")


def _enough(num_examples: int, num_clients: int, min_size: int) -> None:
    _at_least("num_clients", num_clients, 1)
    if num_clients * min_size > num_examples:
        raise ValueError(
            f"min_size={min_size} for num_clients={num_clients} needs more examples than the "
            f"{num_examples} there are; lower num_clients"
        )
