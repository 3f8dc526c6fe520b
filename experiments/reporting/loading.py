"""Folders of experiments as a list of series: a series is one setting with one seed.

Every binary writes the same layout (experiment.json, results.jsonl, timings.jsonl), so there is one loader.
A `Setting` is what one row of a table shows: an algorithm with its parameters that vary, over its seeds.
"""

import dataclasses
import json
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from experiments.execution.folder import MARK, OLD, RESULTS, TIMINGS, description, read_rows, shown
from experiments.reporting.columns import METRICS, OF_THE_RUN

LAST = 5  # evaluations that a result averages: one alone moves by tens of percent with the last cohort
NOT_COMPARED = ("eval_every",)  # settings that change when a run is evaluated, not what it does
REMEDY = "give folders of experiments.train, sweep, demo or compare"


class Origin(NamedTuple):
    """The code and the data that a row was made with."""

    commit: str  # "unknown" outside a checkout; ends in "+" if files were changed since the commit
    data: str  # name of the data set
    md5: tuple[tuple[str, str], ...]  # of each of its arrays


class Source(NamedTuple):
    """The folder that a series was read from."""

    folder: Path
    task: str
    varies: tuple[str, ...]
    missing: str  # what an unfinished folder lacks; "" if it is complete


class Traffic(NamedTuple):
    """Communication of the whole cohort from the first round on."""

    exchanges: int
    bytes_down: int
    bytes_up: int
    gate_open: int | None  # rounds with the gate open; None without a gate


@dataclasses.dataclass(eq=False)
class Series:
    """One setting with one seed."""

    algorithm: str
    hparams: dict[str, Any]
    settings: dict[str, Any]
    seed: int
    planned: int  # rounds
    source: Source
    rounds_per_second: float | None  # of all runs that were trained together with this one; None if not timed
    origins: list[Origin] = dataclasses.field(default_factory=list)
    evals: dict[tuple[str, str], dict[int, dict[str, float]]] = dataclasses.field(default_factory=dict)
    traffic: dict[int, Traffic] = dataclasses.field(default_factory=dict)
    client_accuracy: dict[str, np.ndarray] = dataclasses.field(default_factory=dict)  # by model, after the last round
    diverged: int | None = None  # the round
    privacy: dict[str, Any] | None = None  # what a private run may claim once it is finished

    @property
    def rounds(self) -> int:
        """The last round that was evaluated."""
        return max((t for rows in self.evals.values() for t in rows), default=0)

    @property
    def finished(self) -> bool:
        return self.diverged is not None or self.rounds >= self.planned

    @property
    def models(self) -> set[str]:
        return {model for _, model in self.evals}

    @property
    def has_gate(self) -> bool:
        """Gates have an angle theta; a gate that never opened is a gate all the same."""
        counts = [spent.gate_open for spent in self.traffic.values()]
        return bool(counts) and None not in counts and ("theta" in self.hparams or any(counts))

    def shown(self, model: str) -> str:
        """The model that is shown for the wanted one, see `shown`."""
        return shown(self.models, model)

    def curve(self, metric: str, split: str, model: str) -> dict[int, float]:
        """The metric by round."""
        rows = self.evals.get((split, self.shown(model)), {})
        return {t: row[metric] for t, row in sorted(rows.items())}

    def value(self, metric: str, split: str, model: str, last: int) -> float:
        """Mean of the last evaluations; communication and speed are those of the whole run."""
        if metric in OF_THE_RUN:
            return self._of_the_run(metric)
        values = list(self.curve(metric, split, model).values())[-last:]
        return float(np.mean(values)) if values else np.nan

    def _of_the_run(self, metric: str) -> float:
        done = max(self.traffic)
        spent = self.traffic[done]
        if metric == "bytes":
            return float(spent.bytes_down + spent.bytes_up)
        if metric == "additional_cost":  # exchanges beyond one per round, as a share of all
            return 1 - done / max(spent.exchanges, done)
        return np.nan if self.rounds_per_second is None else self.rounds_per_second


@dataclasses.dataclass(eq=False)
class Setting:
    """An algorithm with the parameters that vary, over seeds."""

    label: str
    algorithm: str
    parameters: dict[str, Any]  # those that vary
    runs: list[Series]

    @property
    def diverged(self) -> dict[int, int]:
        """Seed -> round."""
        return {run.seed: run.diverged for run in self.runs if run.diverged is not None}

    @property
    def finished(self) -> bool:
        return all(run.finished for run in self.runs)

    @property
    def rounds(self) -> int:
        """Rounds that every seed has done."""
        return min(run.rounds for run in self.runs)

    @property
    def privacy(self) -> dict[str, Any] | None:
        """The claim of the seed that guarantees least: none at all, or else the largest epsilon."""
        claims = [run.privacy for run in self.runs if run.privacy]
        return max(claims, key=lambda claim: (not claim["guarantee"], claim["epsilon"] or 0.0), default=None)

    def values(self, metric: str, split: str, model: str, last: int) -> dict[int, float]:
        """Seed -> the metric of that seed."""
        return {run.seed: run.value(metric, split, model, last) for run in self.runs}

    def mean(self, metric: str, split: str, model: str, last: int) -> float:
        return float(np.mean(list(self.values(metric, split, model, last).values())))

    def averaged(self, split: str, model: str, last: int) -> int:
        """The number of evaluations that a mean of the last ones really has, at most `last`."""
        return min(last, *(len(run.curve("mean", split, model)) for run in self.runs))


def load(folders: Iterable[str | Path]) -> list[Series]:
    """All series of the folders, checked to be of the same data.

    Raises:
      ValueError: in one line, with the file and the remedy.
    """
    unique = {Path(folder).resolve(): Path(folder) for folder in folders}
    if not unique:
        raise ValueError(f"no folder is given; {REMEDY}")
    series = [one for folder in unique.values() for one in _load_folder(folder)]
    _check_same_data(series)
    return series


def group(series: Sequence[Series], model: str | None = "global") -> list[Setting]:
    """Series that differ in nothing but the seed, as settings; algorithms in the order in which they come.

    Where some seeds of a setting are finished, those that are not are left out: a half-trained seed is no sample.
    A setting that shows something else in place of the given model says so as a parameter, "prediction".
    """
    names = varying(series)
    found: dict[str, list[Series]] = {}
    for one in series:
        found.setdefault(json.dumps([one.algorithm, _parameters(one, names)]), []).append(one)
    settings = []
    for runs in found.values():
        label = _label(runs[0].algorithm, _parameters(runs[0], names))
        _check_no_seed_twice(runs, label)
        kept = sorted([run for run in runs if run.finished] or runs, key=lambda run: run.seed)
        parameters = _parameters(kept[0], names)
        if model and (prediction := kept[0].shown(model)) != model:
            parameters |= {"prediction": prediction}
        settings.append(Setting(_label(kept[0].algorithm, parameters), kept[0].algorithm, parameters, kept))
    order = list(dict.fromkeys(one.algorithm for one in series))
    return sorted(settings, key=lambda s: (order.index(s.algorithm), [sort_key(v) for v in s.parameters.values()]))


def varying(series: Sequence[Series]) -> dict[str, list[str]]:
    """By algorithm, the names that vary: its hyper-parameters, then settings that differ between any two series."""
    declared = {name for one in series for name in one.source.varies}
    settings = [name for name in _varying([one.settings for one in series], declared) if name not in NOT_COMPARED]
    return {
        algorithm: _varying([one.hparams for one in series if one.algorithm == algorithm], declared) + settings
        for algorithm in dict.fromkeys(one.algorithm for one in series)
    }


def comparable(settings: Sequence[Setting]) -> list[Setting]:
    """Those that may be best: none that diverged, and unfinished ones only if none is finished."""
    stable = [setting for setting in settings if not setting.diverged]
    return [setting for setting in stable if setting.finished] or stable


def text(value: Any) -> str:
    """A parameter's value as it is written on the command line."""
    if isinstance(value, bool) or value is None:
        return str(value).lower()
    return f"{value:g}" if isinstance(value, float) else str(value)


def sort_key(value: Any) -> tuple[int, float, str]:
    """None, then numbers, then words, with numbers in them by size: client(2.0) before client(10.0)."""
    if value is None:
        return (0, 0.0, "")
    if isinstance(value, int | float):
        return (1, float(value), "")
    return (2, 0.0, re.sub(r"\d+(\.\d+)?", lambda match: f"{float(match[0]):020.6f}", str(value)))


def _varying(values: Sequence[dict[str, Any]], declared: set[str]) -> list[str]:
    names = dict.fromkeys(name for own in values for name in own)
    return [
        name for name in names
        if name in declared or len({json.dumps(own[name]) for own in values if name in own}) > 1
    ]  # fmt: skip


def _parameters(one: Series, names: dict[str, list[str]]) -> dict[str, Any]:
    everything = one.settings | one.hparams
    return {name: everything[name] for name in names[one.algorithm] if name in everything}


def _label(algorithm: str, parameters: dict[str, Any]) -> str:
    return " ".join([algorithm, *(f"{name}={text(value)}" for name, value in parameters.items())])


def _check_same_data(series: Sequence[Series]) -> None:
    """All folders are of the same data sets; one folder may have several, by name, but not two of one name."""
    found: dict[Path, set[Origin]] = {}
    for one in series:
        found.setdefault(one.source.folder, set()).update(origin._replace(commit="") for origin in one.origins)
    first, *others = found
    for folder, data in found.items():
        for name in {origin.data for origin in data}:
            if sum(origin.data == name for origin in data) > 1:
                raise ValueError(f"{folder} has runs of two versions of the data set {name} (other md5); "
                                 "run it again into an empty folder")  # fmt: skip
    identities = {folder: {origin.md5 or origin.data for origin in data} for folder, data in found.items()}
    names = {folder: ", ".join(sorted({origin.data for origin in data})) for folder, data in found.items()}
    for other in others:
        if identities[other] != identities[first]:
            raise ValueError(f"{first} ({names[first]}) and {other} ({names[other]}) are not of the same data; "
                             "report them apart")  # fmt: skip


def _check_no_seed_twice(runs: Sequence[Series], label: str) -> None:
    seen: dict[int, Path] = {}
    for run in runs:
        folder = run.source.folder
        if run.seed in seen and seen[run.seed] == folder:
            raise ValueError(f"{label}, seed {run.seed} is twice in {folder}, with other {', '.join(NOT_COMPARED)}; "
                             "run those into folders of their own")  # fmt: skip
        if run.seed in seen:
            raise ValueError(f"{label}, seed {run.seed} is in {seen[run.seed]} and in {folder}; give one of them")
        seen[run.seed] = folder


def _load_folder(folder: Path) -> list[Series]:
    experiment = _experiment(folder)
    rows = read_rows(folder / RESULTS)
    if not rows:
        state = "empty" if (folder / RESULTS).exists() else "missing"
        raise ValueError(f"{folder / RESULTS} is {state}: nothing was evaluated yet; resume it")
    try:
        return _series(folder, experiment, rows)
    except (KeyError, TypeError, IndexError, AttributeError) as error:
        raise ValueError(
            f"{folder} is not as this version of fedeba_jax writes it ({error!r}); run it again"
        ) from error


def _experiment(folder: Path) -> dict[str, Any]:
    """The content of experiment.json, if this version can read it."""
    if not folder.is_dir():
        raise ValueError(f"{folder} is {'a file' if folder.exists() else 'not there'}; {REMEDY}")
    if not any((folder / name).exists() for name in (MARK, *OLD)):
        inside = sorted(found.parent for found in folder.glob(f"*/{MARK}"))
        remedy = f"did you mean {inside[0]}?" if inside else REMEDY
        raise ValueError(f"{folder} has no {MARK}, so it holds no run; {remedy}")
    return description(folder)


def _series(folder: Path, experiment: dict[str, Any], rows: list[dict[str, Any]]) -> list[Series]:
    varies = tuple(name for name in experiment["varies"] if name not in ("algorithm", "seed"))
    source = Source(folder, experiment["task"], varies, _missing(rows, set(experiment["runs"])))
    origins = [_origin(one) for one in experiment["origins"]]
    rates = _rates(folder / TIMINGS)
    series: dict[str, Series] = {}
    for row in rows:
        key, settings = row["run"], row["settings"] | {"rounds": row["rounds"]}
        if key not in series:
            series[key] = Series(
                row["algorithm"], row["hparams"], settings, row["seed"], row["rounds"], source, rates.get(key)
            )
        _add_row(series[key], row, origins[row["origin"]])
    return list(series.values())


def _add_row(one: Series, row: dict[str, Any], origin: Origin) -> None:
    values = {name: np.nan if row[name] is None else float(row[name]) for name in METRICS}
    one.evals.setdefault((row["split"], row["model"]), {})[row["round"]] = values
    one.traffic[row["round"]] = Traffic(*(row[name] for name in Traffic._fields))
    one.privacy = row.get("privacy") or one.privacy
    if origin not in one.origins:
        one.origins.append(origin)
    if row["status"] == "diverged":
        one.diverged = row["diverged_round"]
    if row.get("client_accuracy") is not None:
        one.client_accuracy[row["model"]] = np.asarray(row["client_accuracy"], float)


def _origin(content: dict[str, Any]) -> Origin:
    data = content["data"]
    return Origin(content["commit"] or "unknown", data["name"], tuple(sorted((data.get("md5") or {}).items())))


def _missing(rows: Sequence[dict[str, Any]], planned: set[str]) -> str:
    """What is not done yet of the planned runs, in words."""
    last = {row["run"]: row for row in rows}
    done = [key for key, row in last.items() if row["status"] == "diverged" or row["round"] >= row["rounds"]]
    expected = planned | last.keys()
    places = {(row["round"], row["rounds"]) for row in last.values()}
    if len(done) == len(expected):
        return ""
    if not done and len(last) == len(expected) and len(places) == 1:
        return "stopped after round {} of {}".format(*places.pop())
    return f"{len(done)} of {len(expected)} runs are done"


def _rates(path: Path) -> dict[str, float]:
    """Rounds per second of the batch that each run was trained in; chunks that include compilation do not count."""
    rounds: Counter[str] = Counter()
    seconds: Counter[str] = Counter()
    for row in read_rows(path):
        for run in row["runs"] if not row["compiled"] else ():
            rounds[run] += row["rounds"] * len(row["runs"])
            seconds[run] += row["seconds"]
    return {run: rounds[run] / seconds[run] for run in rounds if seconds[run] > 0}
