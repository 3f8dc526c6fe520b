"""Finished runs of folders, found by what was run: the results that are committed, and those that are being made."""

import dataclasses
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from experiments.command import calls, hparams
from experiments.command.runs import Run
from experiments.command.tasks import Task
from experiments.command.values import plain
from experiments.execution.folder import MARK, RESULTS, cleaned, lines
from experiments.reporting.loading import NOT_COMPARED, load, with_alone
from experiments.reporting.series import Series, Setting
from fedeba_jax import ALGORITHMS

RESULTS_DIR = Path("results")
DEFAULTS = {
    field.name: plain(field.default)
    for field in (*dataclasses.fields(Run), *dataclasses.fields(Task))
    if field.default is not dataclasses.MISSING and field.name != "seed"
}
"""Settings of a run. A row that was written before a setting was there had this value."""

Evidence = dict[str, Series]  # by `key`


def gather(folders: Iterable[Path]) -> Evidence:
    """The finished runs of folders of experiments; one that several have is taken from the first."""
    found: Evidence = {}
    for folder in folders:
        for series in load([folder]) if lines(folder / RESULTS) else ():
            if series.finished:
                found.setdefault(_key(series.algorithm, series.hparams, series.settings, series.seed), series)
    return dict(zip(found, with_alone(found.values()), strict=True))


def folders_in(*roots: Path) -> list[Path]:
    """The folders of experiments below each of these, by name."""
    return [mark.parent for root in roots for mark in sorted(root.glob(f"*/{MARK}"))]


def key(run: Run) -> str:
    """Everything that the result of a run depends on, and not when it was evaluated."""
    record = cleaned(run.record)
    return _key(run.algorithm, record["hparams"], record["settings"], run.seed)


def setting(runs: Sequence[Run], label: dict[str, Any], evidence: Evidence) -> Setting | None:
    """What there is of the runs of one row; None if there is nothing."""
    found = [evidence[name] for name in map(key, runs) if name in evidence]
    return Setting(runs[0].algorithm, label, found) if found else None


def _key(algorithm: str, own: dict[str, Any], settings: dict[str, Any], seed: int) -> str:
    """Hyper-parameters and settings that a row does not have yet had their defaults."""
    usual = {}
    if algorithm in ALGORITHMS:
        usual = cleaned(plain({name: calls.default(h) for name, h in hparams.known(algorithm).items()}))
    compared = {name: value for name, value in (DEFAULTS | settings).items() if name not in NOT_COMPARED}
    return json.dumps([algorithm, usual | own, cleaned(compared), seed], sort_keys=True)
