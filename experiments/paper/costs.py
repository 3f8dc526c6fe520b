"""What a run costs on 2 cores: as it was measured where a folder of results says so, else as estimated.

Estimates are the milliseconds of a round that `make bench` measured for each method (benchmarks/README.md, commit
3be16d4), for the MLP and the CNN. For other networks they are multiplied by the ratio of multiply-adds. They leave out
compilation, evaluations and options.
"""

from collections.abc import Sequence
from typing import NamedTuple

from experiments.command.runs import Run
from experiments.reporting.series import Series

# Milliseconds of a round: MLP, CNN.
ROUND = {
    "fedavg": (27.7, 1761),
    "fedsgd": (28.4, 1731),
    "fedprox": (27.9, 1751),
    "qffl": (40.3, 2330),
    "fedmgda_plus": (31.3, 1800),
    "fedfv": (52.6, 2352),
    "ditto": (57.1, 3511),
    "focus": (80.1, 4645),
    "lp_proj": (2365.5, 25170),
    "rank_core_fed": (275.2, 13033),
    "mime_lite": (55.8, 3494),
    "fedeba": (39.6, 2346),
    "fedeba_plus": (69.3, 4057),
    "prac_fedeba_plus": (51.5, 2930),
    "fedavg_align": (57.1, 3494),
    "afl": (39.9, 2370),
    "term": (40.1, 2343),
    "propfair": (27.6, 1782),
    "aaggff": (40.1, 2359),
    "corefed": (40.0, 2397),
    "fedwavg": (52.5, 2954),
    "feddisco": (27.4, 1794),
    "local_only": (27.7, 1761),  # not measured: clients train as those of FedAvg do
}
# Which of the two a network is like, and its multiply-adds for an example over those.
LIKE = {
    ("mlp", 28): (0, 1.0),
    ("mlp", 32): (0, 3.3),
    ("cnn", 32): (1, 1.0),
    ("cnn_narrow", 32): (1, 0.31),
    ("cnn_wide", 32): (1, 3.4),
    ("cnn_shallow", 32): (1, 0.26),
    ("cnn_deep", 32): (1, 1.9),
}
SIDE = {"cifar10": 32}  # pixels; others have 28


class Cost(NamedTuple):
    """Seconds on 2 cores."""

    seconds: float | None  # None: there is nothing to estimate it from
    measured: bool

    def __str__(self) -> str:
        if self.seconds is None:
            return "time not known"
        return f"{duration(self.seconds)} ({'measured' if self.measured else 'estimated'})"


def of_run(run: Run, found: Series | None = None) -> Cost:
    """What a run costs; measured, if there is a series of its setting that was timed."""
    if found is not None and found.rounds_per_second:
        return Cost(run.task.rounds / found.rounds_per_second, measured=True)
    task = run.task
    like = LIKE.get((task.model, SIDE.get(task.dataset, 28)))
    if like is None or run.algorithm not in ROUND:
        return Cost(None, measured=False)
    column, ratio = like
    steps = task.cohort_size * task.steps * task.batch_size / (10 * 10 * 50)
    return Cost(ROUND[run.algorithm][column] * ratio * steps / 1000 * task.rounds, measured=False)


def total(costs: Sequence[Cost]) -> Cost:
    """All of them, one after the other; what is not known makes the sum unknown."""
    if any(cost.seconds is None for cost in costs):
        return Cost(None, measured=False)
    return Cost(sum(cost.seconds or 0 for cost in costs), all(cost.measured for cost in costs))


def duration(seconds: float) -> str:
    """Seconds as people say them."""
    for size, unit in ((86400, "days"), (3600, "h"), (60, "min")):
        if seconds >= 1.5 * size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.0f} s"
