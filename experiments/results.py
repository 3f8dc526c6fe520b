"""Folders of `train` and of `sweep` as one list of series: a series is one setting with one seed.

Both kinds of folder come to the same records, so that a table or a picture need not know which binary made them.
A `Setting` is what a row of a table shows: an algorithm with its parameters that vary, over its seeds.
"""

import dataclasses
import json
import re
import zipfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from experiments.run_folder import client_accuracy, shown

HIGHER_IS_BETTER = {  # every metric of an evaluation, and the two of communication
    "mean": True, "variance": False, "std": False, "worst5": True, "best5": True, "cv": False, "angle": False,
    "kl": False, "entropy": True, "jain": True, "pooled_accuracy": True, "loss": False, "loss_std": False,
    "bytes": False, "additional_cost": False,
}  # fmt: skip
TRAFFIC = ("bytes", "additional_cost")
METRICS = tuple(name for name in HIGHER_IS_BETTER if name not in TRAFFIC)
NOT_COMPARED = ("eval_every",)  # settings that change when a run is looked at, not what it does
KINDS = "give folders of experiments.train or experiments.sweep"


class Source(NamedTuple):
    """Where series come from, and from what they were made."""

    folder: Path
    kind: str  # "train" or "sweep"
    task: str
    data: dict[str, Any]  # name, source, md5
    commit: str | None
    varies: tuple[str, ...]
    missing: str  # what an unfinished folder lacks; "" if it is whole


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
    evals: dict[tuple[str, str], dict[int, dict[str, float]]] = dataclasses.field(default_factory=dict)
    traffic: dict[int, Traffic] = dataclasses.field(default_factory=dict)
    client_accuracy: dict[str, np.ndarray] = dataclasses.field(default_factory=dict)  # by model, last round
    diverged: int | None = None  # round
    privacy: str = ""  # what the run may claim, if it was made with privacy

    @property
    def rounds(self) -> int:
        """The last round that was evaluated."""
        return max((t for rows in self.evals.values() for t in rows), default=0)

    @property
    def finished(self) -> bool:
        return self.diverged is not None or self.rounds >= self.planned

    @property
    def has_gate(self) -> bool:
        """Gates have an angle theta; one that never opened is a gate all the same."""
        counts = [spent.gate_open for spent in self.traffic.values()]
        return bool(counts) and None not in counts and ("theta" in self.hparams or any(counts))

    def shown(self, model: str) -> str:
        """What is shown for a model: a method without a global one shows its personal predictions, and so on."""
        return shown({name for _, name in self.evals}, model)

    def curve(self, metric: str, split: str, model: str) -> dict[int, float]:
        """The metric by round."""
        rows = self.evals.get((split, self.shown(model)), {})
        return {t: row.get(metric, np.nan) for t, row in sorted(rows.items())}

    def value(self, metric: str, split: str, model: str, last: int) -> float:
        """Mean of the last evaluations; communication is that of the whole run."""
        if metric in TRAFFIC:
            return self._communication(metric)
        values = list(self.curve(metric, split, model).values())[-last:]
        return float(np.mean(values)) if values else np.nan

    def _communication(self, metric: str) -> float:
        if not self.traffic:
            return np.nan
        done = max(self.traffic)
        spent = self.traffic[done]
        if metric == "bytes":
            return float(spent.bytes_down + spent.bytes_up)
        return 1 - done / max(spent.exchanges, done)  # exchanges beyond one a round, as a share of all


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

    def values(self, metric: str, split: str, model: str, last: int) -> dict[int, float]:
        """Seed -> the metric of that seed."""
        return {run.seed: run.value(metric, split, model, last) for run in self.runs}

    def mean(self, metric: str, split: str, model: str, last: int) -> float:
        return float(np.mean(list(self.values(metric, split, model, last).values())))


def load(folders: Iterable[str | Path]) -> list[Series]:
    """All series of the folders, checked to be comparable.

    Raises:
      ValueError: in one line, with the file and the remedy.
    """
    unique = {Path(folder).resolve(): Path(folder) for folder in folders}
    if not unique:
        raise ValueError(f"no folder is given; {KINDS}")
    series = [one for folder in unique.values() for one in _load_folder(folder)]
    _check_same_data(series)
    return series


def group(series: Sequence[Series], model: str = "global") -> list[Setting]:
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
        _check_no_seed_twice(runs, names)
        kept = [run for run in runs if run.finished] or runs
        parameters = _parameters(kept[0], names)
        if (prediction := kept[0].shown(model)) != model:
            parameters |= {"prediction": prediction}
        label = " ".join([kept[0].algorithm, *(f"{name}={text(value)}" for name, value in parameters.items())])
        settings.append(Setting(label, kept[0].algorithm, parameters, sorted(kept, key=lambda run: run.seed)))
    order = list(dict.fromkeys(one.algorithm for one in series))
    return sorted(settings, key=lambda s: (order.index(s.algorithm), [sort_key(v) for v in s.parameters.values()]))


def varying(series: Sequence[Series]) -> dict[str, list[str]]:
    """By algorithm, the names that vary: its hyper-parameters, then settings that differ between any two series."""
    declared = {name for one in series for name in one.source.varies}
    settings = [
        name for name in dict.fromkeys(name for one in series for name in one.settings)
        if name not in NOT_COMPARED and (name in declared or _differ(one.settings.get(name, _ABSENT) for one in series))
    ]  # fmt: skip
    names = {}
    for algorithm in dict.fromkeys(one.algorithm for one in series):
        own = [one.hparams for one in series if one.algorithm == algorithm]
        hparams = [name for name in dict.fromkeys(name for h in own for name in h)
                   if name in declared or _differ(h.get(name, _ABSENT) for h in own)]  # fmt: skip
        names[algorithm] = hparams + settings
    return names


def comparable(settings: Sequence[Setting]) -> list[Setting]:
    """Those that may be best: none diverged, and unfinished ones only if none is finished."""
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


_ABSENT = object()


def _differ(values: Iterable[Any]) -> bool:
    return len({json.dumps(value) for value in values if value is not _ABSENT}) > 1


def _parameters(one: Series, names: dict[str, list[str]]) -> dict[str, Any]:
    everything = one.settings | one.hparams
    return {name: everything[name] for name in names[one.algorithm] if name in everything}


def _check_same_data(series: Sequence[Series]) -> None:
    def identity(source: Source) -> Any:
        return source.data.get("md5") or source.data.get("name")

    first = series[0].source
    for one in series:
        if identity(one.source) != identity(first):
            raise ValueError(
                f"{first.folder} ({first.data.get('name')}) and {one.source.folder} ({one.source.data.get('name')}) "
                "are not of the same data; report them apart"
            )


def _check_no_seed_twice(runs: Sequence[Series], names: dict[str, list[str]]) -> None:
    seen: dict[int, Series] = {}
    for run in runs:
        if run.seed in seen:
            what = " ".join([run.algorithm, *(f"{k}={text(v)}" for k, v in _parameters(run, names).items())])
            first, second = seen[run.seed].source.folder, run.source.folder
            if first == second:
                raise ValueError(f"{what}, seed {run.seed} is twice in {first}, with other data, initial or "
                                 "sampling seeds or validation; sweep those into folders of their own")  # fmt: skip
            raise ValueError(f"{what}, seed {run.seed} is in {first} and in {second}; give one of them")
        seen[run.seed] = run


def _load_folder(folder: Path) -> list[Series]:
    if not folder.is_dir():
        raise ValueError(f"{folder} is {'a file' if folder.exists() else 'not there'}; {KINDS}")
    for marker, kind, loader in (("sweep.json", "sweep", _load_sweep), ("config.json", "train", _load_train)):
        if (folder / marker).exists():
            try:
                return loader(folder)
            except (KeyError, TypeError, IndexError, AttributeError, zipfile.BadZipFile) as error:
                raise ValueError(f"{folder} is not as experiments.{kind} of this version writes it ({error!r}); "
                                 "run it again") from error  # fmt: skip
    inside = sorted(path.parent.name for marker in ("sweep.json", "config.json") for path in folder.glob(f"*/{marker}"))
    remedy = f"did you mean {folder / inside[0]}?" if inside else KINDS
    raise ValueError(f"{folder} has neither config.json nor sweep.json, so it holds no run; {remedy}")


def _load_train(folder: Path) -> list[Series]:
    config = _json(folder / "config.json")
    settings = config["settings"]
    for name in ("summary.json", "evals.jsonl", "rounds.jsonl", "clients.npz"):
        if not (folder / name).exists():
            raise ValueError(f"{folder / name} is missing: the run is not finished; let it finish, or train again "
                             "with --overwrite")  # fmt: skip
    summary = _json(folder / "summary.json")
    planned = settings["task"]["rounds"]
    missing = f"stopped after round {summary['rounds']} of {planned}" if summary["interrupted"] else ""
    commit = config["environment"]["commit"]
    source = Source(folder, "train", settings["task_name"], config["data"], commit, (), missing)
    chosen = settings["task"] | {
        name: settings[name] for name in ("validation", "data_seed", "init_seed", "sample_seed")
    }
    chosen |= {"state_dtype": settings.get("state_dtype", "float32")}
    diverged = {int(seed): round_ for seed, round_ in summary["diverged"].items()}
    privacy = summary["privacy"]["text"] if settings["task"].get("privacy", "none") != "none" else ""
    series = {
        seed: Series(settings["algorithm"], settings["hparams"], chosen, seed, planned, source,
                     diverged=diverged.get(seed), privacy=privacy)
        for seed in settings["seeds"]
    }  # fmt: skip
    for row in _rows(folder / "evals.jsonl"):
        _note_evaluation(series[row["seed"]], row)
    for row in _rows(folder / "rounds.jsonl"):
        _add_round(series[row["seed"]].traffic, row)
    for model, accuracies in client_accuracy(folder).items():
        for seed, accuracy in zip(settings["seeds"], accuracies, strict=True):
            series[seed].client_accuracy[model] = accuracy
    return list(series.values())


def _load_sweep(folder: Path) -> list[Series]:
    meta = _json(folder / "sweep.json")
    if not (folder / "results.jsonl").exists():
        raise ValueError(f"{folder / 'results.jsonl'} is missing: no point of the sweep is done; let it go on")
    rows = _rows(folder / "results.jsonl")
    base = {"state_dtype": "float32"} | meta["settings"] | {"validation": meta["validation"]}
    source = Source(folder, "sweep", meta["task"], meta["data"], meta["environment"].get("commit"),
                    tuple(name for name in meta["varies"] if name not in ("algorithm", "seed")), "")  # fmt: skip
    series: dict[tuple[str, int], Series] = {}
    for row in rows:
        key = (row["point"], row["seed"])
        if key not in series:
            chosen = base | row["settings"] | {"rounds": row["rounds"]}
            series[key] = Series(row["algorithm"], row["hparams"], chosen, row["seed"], row["rounds"], source)
        one = series[key]
        _note_evaluation(one, row)
        one.traffic[row["round"]] = Traffic(row["exchanges"], row["bytes_down"], row["bytes_up"], row["gate_open"])
        one.privacy = row.get("privacy", {}).get("text", one.privacy)
        if row["status"] == "diverged":
            one.diverged = row["diverged_round"]
        if row.get("client_accuracy") is not None:
            one.client_accuracy[row["model"]] = np.asarray(row["client_accuracy"], float)
    done = sum(one.finished for one in series.values())
    expected = max(len(meta.get("points", ())), len(series))
    source = source._replace(missing=f"{done} of {expected} runs are done" if done < expected else "")
    for one in series.values():
        one.source = source
    return list(series.values())


def _note_evaluation(one: Series, row: dict[str, Any]) -> None:
    values = {name: np.nan if row[name] is None else float(row[name]) for name in METRICS}
    one.evals.setdefault((row["split"], row["model"]), {})[row["round"]] = values


def _add_round(traffic: dict[int, Traffic], row: dict[str, Any]) -> None:
    """Rounds come in order; what is kept is the sum so far."""
    before = traffic.get(row["round"] - 1, Traffic(0, 0, 0, 0))
    gate = before.gate_open + row["gate"] if "gate" in row and before.gate_open is not None else None
    traffic[row["round"]] = Traffic(before.exchanges + row["exchanges"], before.bytes_down + row["bytes_down"],
                                    before.bytes_up + row["bytes_up"], gate)  # fmt: skip


def _json(path: Path) -> Any:
    try:
        return json.loads(path.read_text())
    except ValueError as error:
        raise ValueError(f"{path} is not JSON ({error}); run it again") from error


def _rows(path: Path) -> list[dict[str, Any]]:
    """Rows of a JSON-lines file; a last line that a killed run left half written is dropped."""
    lines = path.read_text().split("\n")
    rows = []
    for number, line in enumerate(lines[:-1], 1):
        try:
            rows.append(json.loads(line))
        except ValueError as error:
            raise ValueError(f"{path}, line {number} is not JSON ({error}); run it again") from error
    if not rows:
        raise ValueError(f"{path} is empty: nothing was evaluated yet; let it go on, or run it again")
    return rows
