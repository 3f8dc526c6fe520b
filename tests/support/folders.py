"""Small folders of experiments, written by hand: no training, only files of the one layout."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from experiments.execution.folder import VERSION, as_line, averaged, write_mark
from fedeba_jax.metrics import MEASURES

DATA = {"name": "toy", "source": "embedded", "md5": {"x_train": "0123456789abcdef", "y_train": "0"}}
COMMIT = "f" * 40 + "+"
MEBIBYTE, GIBIBYTE = 2**20, 2**30
EVERY = 2  # rounds between evaluations

Figures = Sequence[tuple[float, float]]  # mean and variance, one pair per evaluation


class Run(NamedTuple):
    """One run of a folder. Figures are by split, or by (split, model) where the model is not the global one."""

    algorithm: str
    figures: dict[Any, Figures]
    hparams: dict[str, Any] = {}  # noqa: RUF012  (read only)
    seed: int = 0
    settings: dict[str, Any] = {}  # noqa: RUF012  (read only)
    planned: int | None = None  # rounds; None: as many as the figures have
    diverged: int | None = None  # the round
    gate: float | None = None  # rounds with the gate open, as a share of all
    extra: float = 0.0  # exchanges beyond one per round
    down: int = 3 * MEBIBYTE  # bytes per round
    up: int = MEBIBYTE
    origins: tuple[int, ...] = (0,)  # of the evaluations; the last one holds for all that follow
    privacy: dict[str, Any] | None = None
    clients: Sequence[float] = (-10.0, 0.0, 0.0, 10.0)  # the final accuracy of each client, beside the mean
    losses: Sequence[float] = (1.0, 1.0, 1.0, 1.0)  # of each client
    noise: float | None = None  # of few test examples; None: a tenth of the variance
    attacked: dict[str, Any] | None = None  # what rows of a run under attack say beside the metrics


def write_folder(
    folder: Path, runs: Sequence[Run], *, varies: Sequence[str] = (), planned_runs: int = 0, task: str = "toy_task",
    origins: Sequence[dict[str, Any]] = (), timings: Sequence[dict[str, Any]] = (),
    records: dict[str, dict[str, Any]] | None = None, **experiment: Any,
) -> Path:  # fmt: skip
    """A folder of these runs, with the names "0", "1" ...; more planned runs have no rows, some have records."""
    folder.mkdir(parents=True)
    ids = [str(i) for i in range(max(planned_runs, len(runs)))]
    content = {"format": "fedeba_jax experiment", "version": VERSION, "task": task, "varies": list(varies),
               "runs": {i: {} for i in ids} | (records or {}), "origins": list(origins) or [origin()]}  # fmt: skip
    write_mark(folder, content | experiment)
    write_rows(folder / "results.jsonl", [row for i, run in enumerate(runs) for row in rows_of(str(i), run)])
    if timings:
        write_rows(folder / "timings.jsonl", timings)
    return folder


def origin(commit: str | None = COMMIT, data: dict[str, Any] = DATA) -> dict[str, Any]:
    return {"data": data, "python": "3", "packages": {}, "commit": commit, "backend": "cpu", "devices": ["cpu:0"]}


def train_folder(
    folder: Path, algorithm: str, seeds: dict[int, Figures], *, hparams: dict[str, Any] | None = None,
    interrupted: bool = False, gate: float | None = None, data: dict[str, Any] = DATA,
) -> Path:  # fmt: skip
    """One setting over seeds, as `train` writes it, without a validation split; an exchange of 3 + 1 MiB per round."""
    rounds = EVERY * (len(next(iter(seeds.values()))) + interrupted)
    runs = [Run(algorithm, {"test": figures}, hparams or {}, seed, planned=rounds, gate=gate, extra=gate or 0)
            for seed, figures in seeds.items()]  # fmt: skip
    return write_folder(folder, runs, origins=[origin(data=data)])


def sweep_folder(
    folder: Path, points: Sequence[tuple[Any, ...]], *, varies: Sequence[str] = ("tau",), planned_runs: int = 0,
) -> Path:  # fmt: skip
    """Points (algorithm, hparams, seed, means by split, variance[, diverged round]) of 4 rounds, as `sweep` does."""
    runs = []
    for algorithm, hparams, seed, by_split, variance, *diverged in points:
        figures: dict[Any, Figures] = {split: [(mean, variance) for mean in means] for split, means in by_split.items()}
        gated = "theta" in hparams
        runs.append(Run(algorithm, figures, hparams, seed, planned=4, diverged=diverged[0] if diverged else None,
                        gate=0.5 if gated else None, extra=0.5 * gated, down=GIBIBYTE // 2,
                        up=GIBIBYTE // 2))  # fmt: skip
    return write_folder(folder, runs, varies=varies, planned_runs=planned_runs)


def both(test: float, validation: float) -> dict[str, list[float]]:
    """Two equal evaluations on each split."""
    return {"test": [test, test], "validation": [validation, validation]}


def rows_of(name: str, run: Run) -> list[dict[str, Any]]:
    """The rows of a run in the order of its rounds."""
    evaluations = max(len(figures) for figures in run.figures.values())
    planned = run.planned or EVERY * evaluations
    settings = {"lr": 0.1, "eval_every": EVERY, "rounds": planned, "validation": 0.1} | run.settings
    noise = {} if run.noise is None else {"noise": run.noise}
    rows = []
    for n in range(evaluations):
        t = EVERY * (n + 1)
        gone = run.diverged is not None and t >= run.diverged
        for key, figures in run.figures.items():
            split, model = key if isinstance(key, tuple) else (key, "global")
            if n >= len(figures):
                continue
            mean, variance = figures[n]
            row = {"run": name, "algorithm": run.algorithm, "hparams": run.hparams, "settings": settings,
                   "seed": run.seed, "round": t, "rounds": planned, "split": split, "model": model,
                   **(dict.fromkeys(MEASURES) if gone else metrics(mean, variance) | noise),
                   "gate_open": None if run.gate is None else int(run.gate * t), "exchanges": int(t * (1 + run.extra)),
                   "bytes_down": t * run.down, "bytes_up": t * run.up, "status": "diverged" if gone else "ok",
                   "diverged_round": run.diverged if gone else None, "final": t >= planned,
                   "origin": run.origins[min(n, len(run.origins) - 1)]}  # fmt: skip
            if split == "test" and not gone and planned // EVERY - n <= averaged(planned // EVERY):
                row["client_accuracy"] = [mean + beside for beside in run.clients]
            if row["final"] and split == "test" and not gone:
                row["client_loss"] = list(run.losses)
                row["client_examples"] = [100 for _ in run.clients]
            if run.attacked:
                row["attacked"] = run.attacked
            if row["final"] and run.privacy:
                row["privacy"] = run.privacy
            rows.append(row)
    return [row | ({"rows": len(rows)} if row["final"] else {}) for row in rows]


def metrics(mean: float, variance: float) -> dict[str, float]:
    """The metrics of a row; those that no test looks at follow from the two."""
    return {
        "mean": mean, "variance": variance, "std": math.sqrt(variance), "worst5": mean - 10, "best5": mean + 10,
        "cv": math.sqrt(variance) / mean, "angle": 1.0, "kl": 0.1, "entropy": 1.0, "jain": 0.9,
        "gini": 0.1, "noise": variance / 10, "pooled_accuracy": mean,
        "loss": 1.0, "loss_std": 0.1, "loss_variance": 0.01,
    }  # fmt: skip


def write_rows(path: Path, rows: Sequence[dict[str, Any]]) -> None:
    path.write_text("".join(as_line(row) for row in rows))
