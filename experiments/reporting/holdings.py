"""What clients hold, as lines of text and as a picture."""

import itertools
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from experiments.reporting.style import PALETTE, SHADES, figure
from fedeba_jax.data.holdings import Holdings, holdings, label_counts, most_common, shuffled
from fedeba_jax.data.ragged import Ragged

MOST_ROWS, MOST_LABELS = 100, 40  # of the heat map
BARS, WIDTH = 10, 40  # of the histogram in text
BINS = 30
SEED = 0  # of the i.i.d. deal that is compared with


class Description(NamedTuple):
    """What is told of a federation."""

    title: str
    splits: dict[str, np.ndarray]  # examples of each client, by train, validation, test
    held: Holdings
    by_chance: Holdings  # the same sizes, dealt at random
    heat: np.ndarray  # [rows, labels] share of each label in what the clients of a row hold
    labels: np.ndarray  # of its columns: the most common ones
    num_classes: int
    names: tuple[str, ...]  # of the clients; empty: numbers


def describe(
    title: str, splits: dict[str, Ragged], y: np.ndarray, num_classes: int, names: tuple[str, ...] = ()
) -> Description:
    """What clients hold for training, of labels or targets y, and how many examples in each split."""
    train = splits["train"]
    common = most_common(train, y, num_classes, MOST_LABELS)
    counts = label_counts(train, y, common, num_classes)
    return Description(
        title,
        {name: owned.counts for name, owned in splits.items()},
        holdings(train, y, num_classes),
        holdings(shuffled(train, SEED), y, num_classes),
        rows_of(counts)[:, :-1],
        common,
        num_classes,
        names,
    )


def rows_of(counts: np.ndarray) -> np.ndarray:
    """Shares of labels, clients sorted by what they hold most of; neighbours share a row where there are too many.

    The last column, of all labels that have none of their own, does not count in the order.
    """
    shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    order = np.lexsort((-shares[:, :-1].max(axis=1), shares[:, :-1].argmax(axis=1)))
    groups = np.array_split(order, min(MOST_ROWS, len(order)))
    return np.stack([shares[group].mean(axis=0) for group in groups])


def lines(told: Description) -> list[str]:
    """The description as text."""
    held, number = told.held, len(told.held.examples)
    rows = [(f"examples, {split}", sizes) for split, sizes in told.splits.items()]
    if (held.targets != held.examples).any():
        rows.append(("tokens that count, train", held.targets))
    rows.append(("different labels, train", held.labels))
    found = [told.title, "", f"{'of a client':28}{'min':>10}{'median':>10}{'max':>10}{'all':>14}"]
    for name, values in rows:
        total = "" if name.startswith("different") else f"{values.sum():,}"
        found.append(f"{name:28}{values.min():>10,}{np.median(values):>10,.0f}{values.max():>10,}{total:>14}")
    found += ["", f"clients by number of training examples ({number:,} clients)", *_histogram(held.examples)]
    mean, chance = held.distance.mean(), told.by_chance.distance.mean()
    found += [
        "",
        f"distance from i.i.d.: {mean:.3f}; an i.i.d. deal of the same sizes has {chance:.3f}",
        "(mean over clients of the total variation between a client's labels and those of all: 0 is the same mixture)",
    ]
    if number > 1:
        far, near = (_name(told, i) for i in (held.distance.argmax(), held.distance.argmin()))
        found.append(
            f"farthest: client {far}, {held.distance.max():.3f}; nearest: client {near}, {held.distance.min():.3f}"
        )
    return found


def _histogram(sizes: np.ndarray) -> list[str]:
    """A bar for each range of sizes."""
    edges = np.unique(np.linspace(sizes.min(), sizes.max() + 1, BARS + 1).astype(np.int64))
    counts, edges = np.histogram(sizes, edges)
    ranges = [f"{a:,}" if b - a == 1 else f"{a:,} to {b - 1:,}" for a, b in itertools.pairwise(edges.tolist())]
    wide = max(map(len, ranges))
    bars = ["#" * int(np.ceil(WIDTH * count / counts.max())) for count in counts]
    return [f"  {r:>{wide}} {c:>9,} {bar}".rstrip() for r, c, bar in zip(ranges, counts, bars, strict=True)]


def _name(told: Description, client: np.intp) -> str:
    return told.names[client] if told.names else str(client)


def draw(told: Description, out: Path) -> None:
    """Sizes, labels by client, and distances from the mixture of all, side by side."""
    with figure(out, [told.title], 15, 4.6, panes=(1, 3), width_ratios=(1, 1.6, 1)) as panes:
        _draw(told, *panes)


def _draw(told: Description, sizes: Any, heat: Any, distance: Any) -> None:
    held = told.held
    sizes.hist(held.examples, bins=BINS, color=PALETTE[0])
    sizes.set(xlabel="training examples of a client", ylabel="clients")
    rows = len(told.heat)
    image = heat.imshow(told.heat, aspect="auto", interpolation="nearest", cmap=SHADES, vmin=0)
    step = max(1, len(told.labels) // 20)
    heat.set_xticks(range(0, len(told.labels), step), told.labels[::step])
    heat.set_yticks([])
    each = "" if rows == len(held.examples) else f", {len(held.examples) / rows:,.0f} to a row"
    heat.set_ylabel(f"clients by what they hold most of\n({len(held.examples):,}{each})")
    shown = len(told.labels)
    some = "" if told.num_classes == shown else f" (the {shown} most common of {told.num_classes:,})"
    heat.set_xlabel(f"label{some}")
    heat.figure.colorbar(image, ax=heat, label="share of the label")
    edges = np.linspace(0, max(held.distance.max(), told.by_chance.distance.max(), 1e-3), BINS + 1)
    for values, label, colour in (
        (held.distance, f"as dealt, mean {held.distance.mean():.3f}", PALETTE[0]),
        (told.by_chance.distance, f"i.i.d., same sizes, mean {told.by_chance.distance.mean():.3f}", PALETTE[1]),
    ):
        distance.hist(values, bins=edges, color=colour, alpha=0.7, label=label)
    distance.set(xlabel="total variation between a client's labels and all", ylabel="clients")
    distance.legend(frameon=False, fontsize=9)
