"""The summary of one folder: summary.json, and the tables that a binary prints when it is done.

The summary follows from results.jsonl alone: the same rows give the same bytes. Its numbers have seven digits.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from experiments.execution.folder import SUMMARY, cleaned, write_json
from experiments.reporting import tables
from experiments.reporting.columns import METRICS
from experiments.reporting.loading import group, load
from experiments.reporting.series import Series, Setting, View
from experiments.reporting.statistics import spread
from fedeba_jax.metrics import SHOWN

FORMAT, VERSION = "fedeba_jax summary", 2


def summarize(series: Sequence[Series]) -> dict[str, Any]:
    """Test metrics, communication, divergence and privacy of each setting of a folder."""
    settings = [_setting(setting) for setting in group(series, model=None)]
    return cleaned({"format": FORMAT, "version": VERSION, "settings": settings})


def write(folder: Path) -> list[Series]:
    """Write summary.json, the whole file or nothing; return what was loaded for it."""
    series = load([folder])
    write_json(folder / SUMMARY, summarize(series))
    return series


def show(series: Sequence[Series], *, title: str = "", console: Console | None = None) -> list[Setting]:
    """Print the last evaluation, the mean of the last evaluations and the privacy of a folder; return its settings.

    The title's default is the task with the seeds. A folder with one evaluation has one table.
    """
    console = console or Console(highlight=False)
    settings = group(series, model=None)
    seeds = ", ".join(str(seed) for seed in sorted({one.seed for one in series}))
    title = title or f"{series[0].source.task}, seeds {seeds}"
    for last in dict.fromkeys((1, most_averaged(settings))):
        what = tables.averaged(settings, View(last=last)).removeprefix("the ")
        tables.show(tables.build(settings, f"{title}: {what}", model=None, last=last, keys=SHOWN), console=console)
    for setting in settings:
        if setting.privacy:
            of = f" of {setting.label}" if len(settings) > 1 else ""
            console.print(f"privacy{of}: {setting.privacy['text']}", markup=False, soft_wrap=True)
    return settings


def most_averaged(settings: list[Setting]) -> int:
    """The most evaluations that a figure of these settings averages."""
    return max(setting.averaged(View()) for setting in settings)


def _setting(setting: Setting) -> dict[str, Any]:
    first = setting.runs[0]
    spent = [run.traffic[run.rounds] for run in setting.runs]
    sums = {name: [getattr(one, name) for one in spent] for name in ("bytes_down", "bytes_up", "exchanges")}
    content = {
        "algorithm": setting.algorithm,
        "hparams": first.hparams,
        "settings": first.settings,
        "seeds": [run.seed for run in setting.runs],
        "rounds": {"done": setting.rounds, "planned": first.settings["rounds"]},
        "diverged": setting.diverged,
        "models": {name: _figures(setting, name) for split, name in sorted(first.evals) if split == "test"},
        "communication": sums | {"additional_cost": list(setting.values("additional_cost", View()).values())},
    }
    return content | ({"privacy": setting.privacy} if setting.privacy else {})


def _figures(setting: Setting, model: str) -> dict[str, Any]:
    """Every metric of the last evaluation, and as the mean of the last ones."""
    count = setting.averaged(View(model))
    return {
        name: {metric: _over_seeds(setting.values(metric, View(model, last))) for metric in METRICS}
        for name, last in (("last_evaluation", 1), (f"mean_of_last_{count}", count))
    }


def _over_seeds(by_seed: dict[int, float]) -> dict[str, Any]:
    values = list(by_seed.values())
    mean, std, low, high, *_ = spread(values)
    return {"mean": mean, "std": std, "ci95": None if low is None else [low, high], "values": values}
