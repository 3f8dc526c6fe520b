"""Folders of experiments as a list of series, and series that differ in nothing but the seed as settings.

Every binary writes the same layout (experiment.json, results.jsonl, timings.jsonl), so there is one loader.
"""

import functools
import json
from collections import Counter
from collections.abc import Iterable, Sequence
from operator import attrgetter, itemgetter
from pathlib import Path
from typing import Any

import numpy as np

from experiments.execution.folder import MARK, OLD, RESULTS, TIMINGS, description, finished, read_rows
from experiments.reporting.series import (
    DEALT,
    Alone,
    Origin,
    Series,
    Setting,
    Source,
    Traffic,
    by_algorithm,
    grouped,
    sort_key,
)
from fedeba_jax import ALGORITHMS
from fedeba_jax.hyperparameters import hyperparameters
from fedeba_jax.metrics import MEASURES

NOT_COMPARED = ("eval_every",)  # settings that change when a run is evaluated, not what it does
ALONE = "local_only"  # the method that tells what each client reaches by itself
REMEDY = "give folders of experiments.train, sweep, demo, compare, robustness, tune or reproduce"

NUMBER, MAYBE, SCALAR = (int, float, type(None)), (int, type(None)), (str, int, float, type(None))
EXPERIMENT = {"task": str, "varies": list, "runs": dict, "origins": list}  # what there is in experiment.json
ORIGIN, DATA = {"commit": (str, type(None)), "data": dict}, {"name": str, "md5": (dict, type(None))}
ROW = {
    **dict.fromkeys(("run", "algorithm", "split", "model", "status"), str),
    **dict.fromkeys(("seed", "round", "rounds", "origin", "exchanges", "bytes_down", "bytes_up", "final"), int),
    **dict.fromkeys(("hparams", "settings"), dict),
    **dict.fromkeys(("gate_open", "diverged_round"), MAYBE),
    **dict.fromkeys(MEASURES, NUMBER),
}
LAST_ROW = {
    **dict.fromkeys(("client_accuracy", "client_loss", "client_examples"), list),
    "diverged_clients": (list, type(None)),
    "privacy": (dict, type(None)),
    "rows": int,
}
ATTACKED = ("minority_accuracy", "attacker_weight", "excluded")  # figures of runs under attack alone
UNDER_ATTACK = {**dict.fromkeys(ATTACKED, NUMBER), "attackers": list, "minority": list}
TIMING = {"runs": list, "rounds": int, "seconds": (int, float), "compiled": int}


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
    return with_alone(series)


def group(series: Sequence[Series], model: str | None = "global") -> list[Setting]:
    """Series that differ in nothing but the seed, as settings; algorithms in the order in which they come.

    The parameters of a setting are those that vary: hyper-parameters of its algorithm, then settings that differ
    between any two series. If it shows something else in place of the given model, it says so as a parameter,
    "prediction".
    """
    declared = {name for one in series for name in one.source.varies}
    common = [name for name in names_that_vary([one.settings for one in series], declared) if name not in NOT_COMPARED]
    settings = []
    for own in by_algorithm(series).values():
        settings += _settings(own, names_that_vary([one.hparams for one in own], declared) + common, model)
    return settings


def with_alone(series: Iterable[Series]) -> list[Series]:
    """Series that know what each client reaches by itself, where a run of `local_only` on the same data tells it.

    The same data is that of the same seed, dealt in the same way; of several such runs, it is the one that agrees in
    most of its settings. A run under attack is told by one without an attack, or by one under the same attackers.
    """

    def dealt(one: Series) -> tuple[Any, ...]:
        return one.seed, *(one.settings.get(name) for name in DEALT)

    def agrees(one: Series, other: Series) -> int:
        return sum(one.settings.get(name) == value for name, value in other.settings.items())

    series = list(series)
    known = [one for one in series if one.algorithm == ALONE and "personal" in one.client_accuracy]
    by_data = grouped(known, dealt)

    def alone(one: Series) -> Alone | None:
        fitting = [other for other in by_data.get(dealt(one), ()) if other.attackers in (frozenset(), one.attackers)]
        if not fitting:
            return None
        told = max(fitting, key=lambda other: agrees(one, other))
        each = told.client_accuracy["personal"], told.client_loss["personal"]
        return Alone(*(honest_of(one.attackers - told.attackers, values) for values in each))

    return [one._replace(alone=alone(one)) for one in series]


def honest_of(attackers: frozenset[int], values: np.ndarray) -> np.ndarray:
    """The numbers of honest clients, of those of all."""
    return values[[client not in attackers for client in range(len(values))]] if attackers else values


def printable(value: Any) -> Any:
    """What a file says, with "?" for characters that would move a cursor or colour a terminal."""
    if isinstance(value, dict):
        return {printable(name): printable(one) for name, one in value.items()}
    if isinstance(value, list):
        return [printable(one) for one in value]
    if not isinstance(value, str) or value.isprintable():
        return value
    return "".join(c if c.isprintable() else "?" for c in value)


def names_that_vary(values: Sequence[dict[str, Any]], declared: Iterable[str] = ()) -> list[str]:
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
            _check(row.get("attacked", {}), UNDER_ATTACK if "attacked" in row else {})
            _check(row["hparams"], dict.fromkeys(row["hparams"], SCALAR))
            _check(row["settings"], dict.fromkeys(row["settings"], SCALAR))
        varies, missing = tuple(map(str, experiment["varies"])), _missing(rows, experiment["runs"])
        source = Source(folder, experiment["task"], varies, missing, _planned(experiment["runs"]))
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


@functools.cache
def _later(algorithm: str) -> dict[str, Any]:
    """Choices of a method at their defaults: a row that was written before there was a choice had the default."""
    known = hyperparameters(ALGORITHMS[algorithm]) if algorithm in ALGORITHMS else {}
    return {name: h.default for name, h in known.items() if h.choices}


def _series(rows: list[dict[str, Any]], source: Source, origins: list[Origin], rate: float | None) -> Series:
    """The series that has these rows."""
    first, last = rows[0], rows[-1]
    by_model = grouped(rows, itemgetter("split", "model"))
    attackers, minority = (frozenset(last.get("attacked", {}).get(who, ())) for who in ("attackers", "minority"))
    return Series(
        algorithm=first["algorithm"],
        hparams=first["hparams"] | _later(first["algorithm"]) | first["hparams"],
        settings=first["settings"] | {"rounds": first["rounds"]},
        seed=first["seed"],
        source=source,
        rounds_per_second=rate,
        origins=list(dict.fromkeys(origins[row["origin"]] for row in rows)),
        evals={key: {row["round"]: _metrics(row) for row in own} for key, own in by_model.items()},
        traffic={row["round"]: Traffic(*(row[name] for name in Traffic._fields)) for row in rows},
        client_curve=_curve(rows, attackers),
        client_accuracy=_by_model(rows, "client_accuracy", attackers),
        client_loss=_by_model(rows, "client_loss", attackers),
        client_examples=_by_model(rows, "client_examples", attackers),
        diverged=last["diverged_round"],
        diverged_clients=last.get("diverged_clients") or [],
        privacy=last.get("privacy"),
        attackers=attackers,
        minority=minority,
    )


def _by_model(rows: Sequence[dict[str, Any]], name: str, attackers: frozenset[int]) -> dict[str, np.ndarray]:
    """A list of the last rows, one number per honest client."""
    return {
        row["model"]: _of_clients(row, name, attackers) for row in rows if row["final"] and "client_accuracy" in row
    }


def _curve(rows: Sequence[dict[str, Any]], attackers: frozenset[int]) -> dict[str, dict[int, np.ndarray]]:
    """The accuracies of honest clients in all rows that have them; before there were such rows, only the last had."""
    known = grouped((row for row in rows if "client_accuracy" in row), itemgetter("model"))
    return {
        model: {row["round"]: _of_clients(row, "client_accuracy", attackers) for row in own}
        for model, own in known.items()
    }


def _of_clients(row: dict[str, Any], name: str, attackers: frozenset[int]) -> np.ndarray:
    values = np.array(row[name], float)
    if values.ndim != 1:
        raise TypeError(name)
    return honest_of(attackers, values)


def _metrics(row: dict[str, Any]) -> dict[str, float]:
    every = row.get("attacked", {}) | row
    known = {name: np.nan if every.get(name) is None else float(every[name]) for name in (*MEASURES, *ATTACKED)}
    return known | {"variance_corrected": known["variance"] - known["noise"]}


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


def _planned(runs: dict[str, Any]) -> tuple[tuple[str, str], ...]:
    """The algorithms and aggregators of the planned runs."""
    known = [run for run in runs.values() if "algorithm" in run]
    return tuple(dict.fromkeys((str(run["algorithm"]), str(run["settings"].get("aggregator"))) for run in known))


def _rates(path: Path) -> dict[str, float]:
    """Rounds per second of the batch that each run was trained in; chunks that include compilation do not count."""
    rounds, seconds = Counter[str](), Counter[str]()
    for row in read_rows(path):
        _check(row, TIMING)
        for run in row["runs"] if not row["compiled"] else ():
            rounds[run] += row["rounds"] * len(row["runs"])
            seconds[run] += row["seconds"]
    return {run: rounds[run] / seconds[run] for run in rounds if seconds[run] > 0}
