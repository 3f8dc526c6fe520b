"""Who owns which example: index lists for clients, from labels and a seed alone.

When to use which: `split_by_shards` is the paper's main split (two label shards per client, equal sizes, test data
of the client's own labels); `dirichlet` has unequal sizes and mixtures of labels, and goes with `holdout`
(each client's own examples) or with `deal_like` (the official test set, in proportion).

Every function is deterministic in its arguments, never gives an example to two clients, and takes and
returns positions in the labels' order (`sources` gives each data set one order, whatever its source).
"""

from typing import NamedTuple

import numpy as np

Clients = list[np.ndarray]  # M arrays of int64 positions


class Split(NamedTuple):
    """Each client's train positions in the train set and test positions in the test set."""

    train: Clients
    test: Clients


def label_shards(labels: np.ndarray, num_clients: int, seed: int, shards_per_client: int = 2) -> Clients:
    """Sort by label, cut into equal contiguous shards, deal them at random without replacement.

    A shard has N // (num_clients * shards_per_client) examples; the rest (of the last labels) is dropped.
    """
    shards = _shards(labels, num_clients, shards_per_client)
    hands = _hands(num_clients, shards_per_client, seed)
    return [np.concatenate([shards[shard] for shard in hand]) for hand in hands]


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
    train = [np.concatenate([train_shards[shard] for shard in hand]) for hand in hands]
    test = [np.concatenate([test_shards[shard] for shard in hand]) for hand in hands]
    return Split(train, _all_tested(train, test))


def deal_like(test_labels: np.ndarray, train_labels: np.ndarray, train: Clients) -> Clients:
    """Deal the test set: a client's share of a label is its share of that label's train examples."""
    return _all_tested(train, _deal(test_labels, train_labels, train))


def dirichlet(
    labels: np.ndarray, *, num_clients: int, alpha: float, seed: int, min_size: int = 10, max_tries: int = 1000
) -> Clients:
    """Split each class among clients by p ~ Dir(alpha 1_M), leaving out clients that hold N / M already.

    The draw is repeated until every client has `min_size` examples. Every example is given to someone.
    """
    labels = _labels("labels", labels)
    _at_least("num_clients", num_clients, 1)
    _at_least("min_size", min_size, 0)
    _at_least("max_tries", max_tries, 1)
    if not (np.isfinite(alpha) and alpha > 0):
        raise ValueError(f"alpha={alpha} is not a positive number; use for example alpha=0.1")
    if num_clients * min_size > len(labels):
        raise ValueError(
            f"min_size={min_size} for num_clients={num_clients} needs more examples than the "
            f"{len(labels)} there are; lower min_size or num_clients"
        )
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
            f"{max_tries} tries; raise alpha, or lower min_size or num_clients={num_clients}"
        )
    parts = [
        np.split(rng.permutation(np.flatnonzero(labels == label)), np.cumsum(size)[:-1])
        for label, size in zip(classes, sizes, strict=True)
    ]
    return [np.concatenate(own) for own in zip(*parts, strict=True)]


def holdout(clients: Clients, *, fraction: float, seed: int) -> tuple[Clients, Clients]:
    """Split each client's own examples at random into (kept, held); both sides get at least one."""
    if not 0 < fraction < 1:
        raise ValueError(f"fraction={fraction} is not between 0 and 1; use for example fraction=0.2")
    rng = np.random.default_rng(seed)
    kept, held = [], []
    for client, own in enumerate(clients):
        if len(own) < 2:
            raise ValueError(
                f"clients[{client}] has {len(own)} examples and a holdout needs 2; raise min_size or lower num_clients"
            )
        cut = int(np.clip(round(fraction * len(own)), 1, len(own) - 1))
        shuffled = rng.permutation(own)
        held.append(shuffled[:cut])
        kept.append(shuffled[cut:])
    return kept, held


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
            f"{number} examples and there are {len(labels)}; lower num_clients"
        )
    order = np.argsort(labels, kind="stable")
    return list(order[: number * size].reshape(number, size))


def _hands(num_clients: int, shards_per_client: int, seed: int) -> np.ndarray:
    """[M, shards_per_client] shard ids: a random permutation dealt client by client."""
    shuffled = np.random.default_rng(seed).permutation(num_clients * shards_per_client)
    return shuffled.reshape(num_clients, shards_per_client)


def _deal(test_labels: np.ndarray, train_labels: np.ndarray, groups: Clients) -> Clients:
    """Cut each label's test examples, in order, at the groups' cumulative shares of its train examples.

    Integer arithmetic: the cuts are exact, a group is within one example of its share, none is given twice,
    and all examples of a label that some group holds are given.
    """
    test_labels, train_labels = _labels("test_labels", test_labels), _labels("train_labels", train_labels)
    dealt: list[list[np.ndarray]] = [[] for _ in groups]
    own_labels = [train_labels[group] for group in groups]
    for label in np.unique(test_labels):
        counts = np.array([np.sum(own == label) for own in own_labels], np.int64)
        if counts.sum() == 0:
            continue
        examples = np.flatnonzero(test_labels == label)
        cuts = np.cumsum(counts) * len(examples) // counts.sum()
        for group, share in zip(dealt, np.split(examples, cuts[:-1]), strict=True):
            group.append(share)
    return [np.concatenate([*shares, np.empty(0, np.int64)]).astype(np.int64) for shares in dealt]


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
    for client, (own, tests) in enumerate(zip(train, test, strict=True)):
        if len(tests) == 0:
            raise ValueError(
                f"client {client} with {len(own)} train examples gets no test example in "
                "proportion; use a holdout, raise min_size or lower num_clients"
            )
    return test


def _labels(name: str, labels: np.ndarray) -> np.ndarray:
    labels = np.asarray(labels)
    if labels.ndim != 1 or len(labels) == 0 or not np.issubdtype(labels.dtype, np.integer):
        raise ValueError(f"{name} is {labels.dtype}{list(labels.shape)}; give a non-empty vector of integers")
    return labels


def _at_least(name: str, value: int, least: int) -> None:
    if value < least:
        raise ValueError(f"{name}={value} is less than {least}; raise {name}")
