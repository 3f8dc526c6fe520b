"""Folders of experiments as a list of series: a series is one setting with one seed.

Every binary writes the same layout (experiment.json, results.jsonl, timings.jsonl), so there is one loader.
A `Setting` is what one row of a table shows: an algorithm with its parameters that vary, over its seeds.
"""

import dataclasses
import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from operator import attrgetter, itemgetter
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np

from experiments.execution.folder import MARK, OLD, RESULTS, TIMINGS, description, finished, read_rows, shown
from experiments.reporting.columns import METRICS

LAST = 5  # evaluations that a result averages: one alone moves by tens of percent with the last cohort
NOT_COMPARED = ("eval_every",)  # settings that change when a run is evaluated, not what it does
REMEDY = "give folders of experiments.train, sweep, demo or compare"

NUMBER, MAYBE, SCALAR = (int, float, type(None)), (int, type(None)), (str, int, float, type(None))
EXPERIMENT = {"task": str, "varies": list, "runs": dict, "origins": list}  # what there is in experiment.json
ORIGIN, DATA = {"commit": (str, type(None)), "data": dict}, {"name": str, "md5": (dict, type(None))}
ROW = {
    **dict.fromkeys(("run", "algorithm", "split", "model", "status"), str),
    **dict.fromkeys(("seed", "round", "rounds", "origin", "exchanges", "bytes_down", "bytes_up", "final"), int),
    **dict.fromkeys(("hparams", "settings"), dict),
    **dict.fromkeys(("gate_open", "diverged_round"), MAYBE),
    **dict.fromkeys(METRICS, NUMBER),
}
LAST_ROW = {
    **dict.fromkeys(("client_accuracy", "client_examples"), list),
    "diverged_clients": (list, type(None)),
    "privacy": (dict, type(None)),
    "rows": int,
}
TIMING = {"runs": list, "rounds": int, "seconds": (int, float), "compiled": int}

Item = TypeVar("Item")


class View(NamedTuple):
    """Which figures are looked at: of which model, over how many evaluations, by what, of what, on which data."""

    model: str = "global"
    last: int = LAST  # evaluations that a figure averages
    metric: str = "mean"  # by which settings are better than others
    task: str = ""
    split: str = "test"


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


class Series(NamedTuple):
    """One setting with one seed."""

    algorithm: str
    hparams: dict[str, Any]
    settings: dict[str, Any]
    seed: int
    source: Source
    rounds_per_second: float | None  # of all runs that were trained together with this one; None if not timed
    origins: list[Origin]
    evals: dict[tuple[str, str], dict[int, dict[str, float]]]  # by split and model, and by round
    traffic: dict[int, Traffic]  # by round
    client_accuracy: dict[str, np.ndarray]  # by model, after the last round
    diverged: int | None  # the round
    diverged_clients: list[int]  # who was sampled in it
    privacy: dict[str, Any] | None  # what a private run may claim once it is finished

    @property
    def rounds(self) -> int:
        """The last round that was evaluated."""
        return max(self.traffic)

    @property
    def finished(self) -> bool:
        return self.diverged is not None or self.rounds >= self.settings["rounds"]

    @property
    def models(self) -> set[str]:
        return {model for _, model in self.evals}

    @property
    def has_gate(self) -> bool:
        """Gates have an angle theta; a gate that never opened is a gate all the same."""
        counts = [spent.gate_open for spent in self.traffic.values()]
        return None not in counts and ("theta" in self.hparams or any(counts))

    def shown(self, model: str) -> str:
        """The model that is shown for the wanted one, see `shown`."""
        return shown(self.models, model)

    def curve(self, metric: str, view: View) -> dict[int, float]:
        """The metric by round."""
        rows = self.evals.get((view.split, self.shown(view.model)), {})
        return {t: row[metric] for t, row in sorted(rows.items())}

    def value(self, metric: str, view: View) -> float:
        """Mean of the last evaluations; communication and speed are those of the whole run."""
        spent = self.traffic[self.rounds]
        if metric == "bytes":
            return float(spent.bytes_down + spent.bytes_up)
        if metric == "additional_cost":  # exchanges beyond one per round, as a share of all
            return 1 - self.rounds / max(spent.exchanges, self.rounds)
        if metric == "rounds_per_second":
            return np.nan if self.rounds_per_second is None else self.rounds_per_second
        values = list(self.curve(metric, view).values())[-view.last :]
        return float(np.mean(values)) if values else np.nan


@dataclasses.dataclass(eq=False)
class Setting:
    """An algorithm with the parameters that vary, over seeds."""

    algorithm: str
    parameters: dict[str, Any]  # those that vary
    runs: list[Series]

    @property
    def label(self) -> str:
        return " ".join([self.algorithm, *(f"{name}={text(value)}" for name, value in self.parameters.items())])

    @property
    def diverged(self) -> dict[int, int]:
        """Seed -> round."""
        return {run.seed: run.diverged for run in self.runs if run.diverged is not None}

    @property
    def status(self) -> str:
        """Why it takes no part in a comparison; "" if it does."""
        if self.diverged:
            return "diverged: " + ", ".join(f"seed {seed} in round {t}" for seed, t in self.diverged.items())
        finished = all(run.finished for run in self.runs)
        return "" if finished else f"unfinished: round {self.rounds} of {self.runs[0].settings['rounds']}"

    @property
    def rounds(self) -> int:
        """Rounds that every seed has done."""
        return min(run.rounds for run in self.runs)

    @property
    def privacy(self) -> dict[str, Any] | None:
        """The claim of the seed that guarantees least: none at all, or else the largest epsilon."""
        claims = [run.privacy for run in self.runs if run.privacy]
        return max(claims, key=lambda claim: (not claim["guarantee"], claim["epsilon"] or 0.0), default=None)

    def values(self, metric: str, view: View) -> dict[int, float]:
        """Seed -> the metric of that seed."""
        return {run.seed: run.value(metric, view) for run in self.runs}

    def mean(self, metric: str, view: View) -> float:
        return float(np.mean(list(self.values(metric, view).values())))

    def averaged(self, view: View) -> int:
        """The number of evaluations that a mean of the last ones really has, at most `view.last`."""
        return min(view.last, *(len(run.curve("mean", view)) for run in self.runs))


def grouped(items: Iterable[Item], key: Callable[[Item], Any]) -> dict[Any, list[Item]]:
    """Items by a key, in the order in which they come."""
    found: dict[Any, list[Item]] = {}
    for item in items:
        found.setdefault(key(item), []).append(item)
    return found


def by_algorithm(items: Iterable[Item]) -> dict[str, list[Item]]:
    """Series or settings of each algorithm."""
    return grouped(items, attrgetter("algorithm"))


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

    The parameters of a setting are those that vary: hyper-parameters of its algorithm, then settings that differ
    between any two series. If it shows something else in place of the given model, it says so as a parameter,
    "prediction".
    """
    declared = {name for one in series for name in one.source.varies}
    common = [name for name in _varying([one.settings for one in series], declared) if name not in NOT_COMPARED]
    settings = []
    for own in by_algorithm(series).values():
        settings += _settings(own, _varying([one.hparams for one in own], declared) + common, model)
    return settings


def text(value: Any) -> str:
    """A parameter's value as it is written on the command line."""
    word = str(value).lower() if isinstance(value, bool) or value is None else str(value)
    return f"{value:g}" if isinstance(value, float) else word


def printable(value: Any) -> Any:
    """What a file says, with "?" for characters that would move a cursor or colour a terminal."""
    if isinstance(value, dict):
        return {printable(name): printable(one) for name, one in value.items()}
    if isinstance(value, list):
        return [printable(one) for one in value]
    return "".join(c if c.isprintable() else "?" for c in value) if isinstance(value, str) else value


def sort_key(value: Any) -> tuple[int, float, str]:
    """None, then numbers, then words, with numbers in them by size: client(2.0) before client(10.0)."""
    if value is None or isinstance(value, int | float):
        return (value is not None, float(value or 0), "")
    return (2, 0.0, re.sub(r"\d+(\.\d+)?", lambda match: f"{float(match[0]):020.6f}", str(value)))


def _varying(values: Sequence[dict[str, Any]], declared: set[str]) -> list[str]:
    """The names that were declared to vary, and those that have more than one value."""
    pairs = [(name, json.dumps(value)) for own in values for name, value in own.items()]
    found = grouped(dict.fromkeys(pairs), itemgetter(0))
    return [name for name, different in found.items() if name in declared or len(different) > 1]


def _settings(series: Sequence[Series], names: Sequence[str], model: str | None) -> list[Setting]:
    """The settings of one algorithm, sorted by their parameters, which have these names.

    Where some seeds of a setting are finished, those that are not are left out: a half-trained seed is no sample.
    """

    def parameters(one: Series) -> dict[str, Any]:
        everything = one.settings | one.hparams
        return {name: everything[name] for name in names if name in everything}

    settings = []
    for runs in grouped(series, lambda one: json.dumps(parameters(one))).values():
        setting = Setting(runs[0].algorithm, parameters(runs[0]), runs)
        _check_no_seed_twice(setting)
        setting.runs = sorted([run for run in runs if run.finished] or runs, key=attrgetter("seed"))
        if model and (prediction := setting.runs[0].shown(model)) != model:
            setting.parameters["prediction"] = prediction
        settings.append(setting)
    return sorted(settings, key=lambda setting: [sort_key(value) for value in setting.parameters.values()])


def _check_same_data(series: Sequence[Series]) -> None:
    """All folders are of the same data sets; one folder may have several, by name, but not two of one name."""
    first, told = None, ""
    for (folder, *_), own in grouped(series, attrgetter("source")).items():
        data = {origin._replace(commit="") for one in own for origin in one.origins}
        for name, versions in Counter(origin.data for origin in data).items():
            if versions > 1:
                remedy = "run it again into an empty folder"
                raise ValueError(f"{folder} has runs of two versions of the data set {name} (other md5); {remedy}")
        identity = {origin.md5 or origin.data for origin in data}
        here = f"{folder} ({', '.join(sorted(origin.data for origin in data))})"
        first, told = first or identity, told or here
        if identity != first:
            raise ValueError(f"{told} and {here} are not of the same data; report them apart")


def _check_no_seed_twice(setting: Setting) -> None:
    for seed, runs in grouped(setting.runs, attrgetter("seed")).items():
        first, *others = (run.source.folder for run in runs)
        if first in others:
            told = f"is twice in {first}, with other {', '.join(NOT_COMPARED)}; run those into folders of their own"
            raise ValueError(f"{setting.label}, seed {seed} {told}")
        if others:
            raise ValueError(f"{setting.label}, seed {seed} is in {first} and in {others[0]}; give one of them")


def _load_folder(folder: Path) -> list[Series]:
    experiment = printable(_experiment(folder))
    rows = printable(read_rows(folder / RESULTS))
    if not rows:
        state = "empty" if (folder / RESULTS).exists() else "missing"
        raise ValueError(f"{folder / RESULTS} is {state}: nothing was evaluated yet; resume it")
    try:
        _check(experiment, EXPERIMENT)
        for row in rows:
            _check(row, ROW | {name: kind for name, kind in LAST_ROW.items() if name in row})
            _check(row["hparams"], dict.fromkeys(row["hparams"], SCALAR))
            _check(row["settings"], dict.fromkeys(row["settings"], SCALAR))
        source = Source(
            folder, experiment["task"], tuple(map(str, experiment["varies"])), _missing(rows, experiment["runs"])
        )
        origins = [_origin(one) for one in experiment["origins"]]
        rates = _rates(folder / TIMINGS)
        _check_whole(folder, rows)
        return [_series(own, source, origins, rates.get(run)) for run, own in grouped(rows, itemgetter("run")).items()]
    except (KeyError, TypeError, IndexError, AttributeError) as bad:
        raise ValueError(f"{folder} is not as this version of fedeba_jax writes it ({bad!r}); run it again") from bad


def _check(record: Any, kinds: dict[str, Any]) -> None:
    """An error if something that a record needs is not there, or is not what we write."""
    for name, kind in kinds.items():
        if not isinstance(record[name], kind):
            raise TypeError(f"{name}={record[name]!r}")


def _check_whole(folder: Path, rows: Sequence[dict[str, Any]]) -> None:
    """An error if a run has its last row, but not all before it."""
    if lacking := {row["run"] for row in rows if row["final"]} - finished(rows):
        told = f"rows of the runs {', '.join(sorted(lacking))} are gone"
        raise ValueError(f"{folder / RESULTS}: {told}; give the command that made it again, which repairs it")


def _experiment(folder: Path) -> dict[str, Any]:
    """The content of experiment.json, if this version can read it."""
    if not folder.is_dir():
        raise ValueError(f"{folder} is {'a file' if folder.exists() else 'not there'}; {REMEDY}")
    if not any((folder / name).exists() for name in (MARK, *OLD)):
        inside = sorted(found.parent for found in folder.glob(f"*/{MARK}"))
        remedy = f"did you mean {inside[0]}?" if inside else REMEDY
        raise ValueError(f"{folder} has no {MARK}, so it holds no run; {remedy}")
    return description(folder)


def _series(rows: list[dict[str, Any]], source: Source, origins: list[Origin], rate: float | None) -> Series:
    """The series that has these rows."""
    first, last = rows[0], rows[-1]
    by_model = grouped(rows, itemgetter("split", "model"))
    return Series(
        algorithm=first["algorithm"],
        hparams=first["hparams"],
        settings=first["settings"] | {"rounds": first["rounds"]},
        seed=first["seed"],
        source=source,
        rounds_per_second=rate,
        origins=list(dict.fromkeys(origins[row["origin"]] for row in rows)),
        evals={key: {row["round"]: _metrics(row) for row in own} for key, own in by_model.items()},
        traffic={row["round"]: Traffic(*(row[name] for name in Traffic._fields)) for row in rows},
        client_accuracy={
            row["model"]: np.array(row["client_accuracy"], float) for row in rows if "client_accuracy" in row
        },
        diverged=last["diverged_round"],
        diverged_clients=last.get("diverged_clients") or [],
        privacy=last.get("privacy"),
    )


def _metrics(row: dict[str, Any]) -> dict[str, float]:
    return {name: np.nan if row[name] is None else float(row[name]) for name in METRICS}


def _origin(content: dict[str, Any]) -> Origin:
    _check(content, ORIGIN)
    data = content["data"]
    _check(data, DATA)
    md5 = sorted((name, str(digest)) for name, digest in (data["md5"] or {}).items())
    return Origin(content["commit"] or "unknown", data["name"], tuple(md5))


def _missing(rows: Sequence[dict[str, Any]], planned: dict[str, Any]) -> str:
    """What is not done yet of the planned runs, in words."""
    last = {row["run"]: row for row in rows}
    done = sum(row["status"] == "diverged" or row["round"] >= row["rounds"] for row in last.values())
    expected = len(planned.keys() | last.keys())
    places = {(row["round"], row["rounds"]) for row in last.values()}
    if not done and len(last) == expected and len(places) == 1:
        return "stopped after round {} of {}".format(*places.pop())
    return f"{done} of {expected} runs are done" if done < expected else ""


def _rates(path: Path) -> dict[str, float]:
    """Rounds per second of the batch that each run was trained in; chunks that include compilation do not count."""
    rounds, seconds = Counter[str](), Counter[str]()
    for row in read_rows(path):
        _check(row, TIMING)
        for run in row["runs"] if not row["compiled"] else ():
            rounds[run] += row["rounds"] * len(row["runs"])
            seconds[run] += row["seconds"]
    return {run: rounds[run] / seconds[run] for run in rounds if seconds[run] > 0}
