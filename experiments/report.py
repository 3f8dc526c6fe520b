"""Tables and pictures of runs and sweeps.

    python -m experiments.report runs/fedavg runs/sweep_tau [--out=report] [--select_on=validation] [--metric=mean]

Folders are those of `experiments.train` and of `experiments.sweep`, mixed as one likes; settings that differ in
nothing but the seed become one row. Where an algorithm has several settings, one is chosen by --metric on --select_on,
and its test figures, of the same run, are reported beside the table of all. Into --out go

    report.md                   tables, where they come from, and the pictures
    settings.csv, settings.tex  every setting
    chosen.csv, chosen.tex      the chosen setting of each algorithm
    *.png                       heat maps, accuracy-variance plane, curves, clients, gates
"""

import importlib.util
import math
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from absl import flags
from rich.console import Console

from experiments import cli, report_plots, show, tables
from experiments.report_plots import Skipped, View
from experiments.results import HIGHER_IS_BETTER, METRICS, Series, Setting, Source, comparable, group, load
from experiments.run import LAST

FLAGS = flags.FLAGS
MADE = ("report.md", "settings.csv", "settings.tex", "chosen.csv", "chosen.tex",
        "heat_*.png", "plane.png", "curves.png", "clients.png", "gates.png")  # fmt: skip


class Choice(NamedTuple):
    """The settings chosen, one an algorithm, and how."""

    settings: list[Setting]
    notes: list[str]


def define_flags() -> None:
    """Called by the binary alone: other binaries use some of these names too."""
    flags.DEFINE_list("runs", [], "Folders of train or sweep; may also be given as plain arguments.")
    flags.DEFINE_string("out", "report", "Folder of the report; an earlier report there is replaced.")
    flags.DEFINE_integer("last", LAST, "Evaluations that a figure averages; 1 is the last alone.", lower_bound=1)
    flags.DEFINE_bool("select", True, "Choose a setting of each algorithm that has several.")
    flags.DEFINE_enum("select_on", "validation", ["validation", "test"], "The data that the choice looks at.")
    flags.DEFINE_enum("metric", "mean", METRICS, "What the choice and the heat maps go by.")
    flags.DEFINE_string("model", "global", "The model that is reported.")
    flags.DEFINE_list("heat", [], "Parameters of the heat maps, across and up: tau,alpha; default the first that vary.")
    flags.DEFINE_bool("plot", True, "Draw the pictures (needs the plot extra).")


def main(arguments: Sequence[str]) -> None:
    report(
        [*arguments, *FLAGS.runs], Path(FLAGS.out), last=FLAGS.last, metric=FLAGS.metric, model=FLAGS.model,
        select_on=FLAGS.select_on if FLAGS.select else None, axes=FLAGS.heat, plot=FLAGS.plot,
    )  # fmt: skip


def report(
    folders: Sequence[str | Path], out: Path, *, last: int = LAST, select_on: str | None = "validation",
    metric: str = "mean", model: str = "global", axes: Sequence[str] = (), plot: bool = True,
) -> None:  # fmt: skip
    """Read, choose, print, write. Nothing is written before everything could be read and chosen."""
    series = load(folders)
    _check_model(series, model)
    settings = group(series, model)
    heat_axes = report_plots.heat_axes(settings, axes)
    choice = choose(settings, select_on, metric, model, last) if select_on else None
    task = ", ".join(dict.fromkeys(one.source.task for one in series))
    made = {"settings": tables.build(settings, f"{task}: all settings", model=model, last=last)}
    if choice:
        title = f"{task}: chosen on {select_on} data by {metric}"
        chosen = tables.build(choice.settings, title, model=model, last=last)
        made["chosen"] = chosen._replace(notes=[*choice.notes, *chosen.notes])
    _clear(out)
    live = show.console.is_terminal
    console = show.console if live else Console(width=200, file=sys.stdout, highlight=False)
    for table in made.values():
        console.print(tables.to_rich(table, by=metric, styled=live))
    provenance = [*sources(series), *privacy(settings)]
    print("\n".join(provenance))
    view = View(model, last, metric, task)
    pictures, skipped = draw(settings, heat_axes, view, out) if plot else ([], [])
    for line in skipped:
        print(line)
    for name, table in made.items():
        (out / f"{name}.csv").write_text(tables.to_csv(table))
        (out / f"{name}.tex").write_text(tables.to_latex(table))
    parts = [tables.to_markdown(table) for table in reversed(made.values())]
    parts += ["### Sources\n", *(f"- {line}" for line in provenance), "", *(f"![{p.stem}]({p.name})" for p in pictures)]
    parts += [f"\n{line}" for line in skipped]
    (out / "report.md").write_text("\n".join(parts) + "\n")
    print(f"report: {out / 'report.md'}; pictures: {', '.join(p.name for p in pictures) or 'none'}")


def choose(settings: Sequence[Setting], split: str, metric: str, model: str, last: int) -> Choice | None:
    """The best setting of each algorithm by its mean over seeds on the split; None if there is nothing to choose."""
    by_algorithm: dict[str, list[Setting]] = {}
    for setting in settings:
        by_algorithm.setdefault(setting.algorithm, []).append(setting)
    if all(len(own) == 1 for own in by_algorithm.values()):
        return None
    chosen, notes = [], []
    if split == "test":
        notes.append("the choice used the test data: the figures of chosen settings are optimistic")
    for algorithm, own in by_algorithm.items():
        usable = comparable(own)
        if len(own) == 1 or not usable:
            chosen += own if len(own) == 1 else []
            notes += [] if len(own) == 1 else [f"{algorithm}: every setting diverged; none is chosen"]
            continue
        _check_split(usable, split, model)
        finite = [s for s in usable if not math.isnan(s.mean(metric, split, model, last))]
        if not finite:
            raise ValueError(f"no setting of {algorithm} has a finite {metric}; give another --metric")
        best = (max if HIGHER_IS_BETTER[metric] else min)(finite, key=lambda s: s.mean(metric, split, model, last))
        chosen.append(best)
        figures = best.values(metric, split, model, last)
        close = sum(
            bool(tables.within_noise(figures, s.values(metric, split, model, last))) for s in finite if s is not best
        )
        told = f"; not to be told from it on {split} data: {close}" if close else ""
        out = len(own) - len(usable)
        left = f"; left out, diverged or unfinished: {out}" if out else ""
        notes.append(f"{algorithm}: best of {len(usable)} settings{told}{left}")
    return Choice(chosen, notes)


def sources(series: Sequence[Series]) -> list[str]:
    """A line a folder: what it is of, and whether it is whole."""
    lines = []
    unique: dict[Path, list[Series]] = {}
    for one in series:
        unique.setdefault(one.source.folder, []).append(one)
    for folder, own in unique.items():
        source = own[0].source
        rounds = "/".join(str(t) for t in sorted({one.planned for one in own}))
        lines.append(f"{folder}: {source.kind} of {source.task}, {len(own)} runs, {rounds} rounds, {_data(source)}, "
                     f"commit {_commit(source)}")  # fmt: skip
        if source.missing:
            lines.append(f"{folder} is NOT FINISHED: {source.missing}; the report shows what is there")
    if len({one.planned for one in series}) > 1:
        lines.append("the runs differ in their number of rounds")
    return lines


def privacy(settings: Sequence[Setting]) -> list[str]:
    """A line a setting that was trained with privacy: what it may claim; of several seeds, each claim that differs."""
    claims = {f"privacy of {s.label}: {run.privacy}": None for s in settings for run in s.runs if run.privacy}
    return list(claims)


def draw(
    settings: Sequence[Setting], axes: dict[str, tuple[str, str]], view: View, out: Path
) -> tuple[list[Path], list[str]]:
    """Every picture that the data can make, and a line for each that it cannot."""
    if importlib.util.find_spec("matplotlib") is None:
        return [], ["no pictures: matplotlib is not installed; pip install 'fedeba_jax[plot]'"]
    jobs: list[tuple[str, Callable[[Path], Path]]] = []
    skipped = [] if axes else ["no heat map: it needs two numeric parameters that vary"]
    for algorithm, names in axes.items():
        own = [s for s in settings if s.algorithm == algorithm]
        for metric in dict.fromkeys((view.metric, "variance")):
            jobs.append((f"heat_{algorithm}_{metric}.png", partial(report_plots.heat, own, metric, names, view)))
    for job in (report_plots.plane, report_plots.curves, report_plots.clients, report_plots.gates):
        jobs.append((f"{job.__name__}.png", partial(job, settings, view)))
    pictures = []
    for name, picture in jobs:
        try:
            pictures.append(picture(out / name))
        except Skipped as reason:
            skipped.append(f"no {name}: {reason}")
    return pictures, skipped


def _data(source: Source) -> str:
    md5 = source.data.get("md5") or {}
    digest = md5.get("x_train", "") if isinstance(md5, dict) else str(md5)
    return f"data {source.data.get('name')}" + (f" (md5 {digest[:8]})" if digest else "")


def _commit(source: Source) -> str:
    commit = source.commit or "unknown"
    return commit[:10] + ("+" if commit.endswith("+") else "")


def _check_model(series: Sequence[Series], model: str) -> None:
    known = sorted({name for one in series for _, name in one.evals})
    if model not in known and model != "global":
        raise ValueError(f"--model={model} was not evaluated; choose one of {', '.join(known)}")


def _check_split(settings: Sequence[Setting], split: str, model: str) -> None:
    for run in (run for setting in settings for run in setting.runs):
        if (split, run.shown(model)) not in run.evals:
            raise ValueError(
                f"{run.source.folder} has no {split} split; run with --validation=0.1, or --select_on=test (chooses on "
                "the test data, as the paper did), or --noselect"
            )


def _clear(out: Path) -> None:
    """Make the folder, and remove what an earlier report left, so that no old picture stands beside a new table."""
    if out.exists() and not out.is_dir():
        raise ValueError(f"--out={out} is a file; give a folder")
    if any((out / name).exists() for name in ("config.json", "sweep.json")):
        raise ValueError(f"--out={out} is the folder of a run; give another, as {out / 'report'}")
    out.mkdir(parents=True, exist_ok=True)
    for pattern in MADE:
        for path in out.glob(pattern):
            path.unlink()


if __name__ == "__main__":
    define_flags()
    cli.run(main, positional=True)
