"""The report on folders of experiments: tables and pictures, in the terminal and as files."""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from experiments.execution.folder import MARK, OLD
from experiments.reporting import pictures, tables
from experiments.reporting.loading import LAST, Series, Setting, group, load
from experiments.reporting.pictures import Skipped, View
from experiments.reporting.selection import choose

MADE = ("report.md", "settings.csv", "settings.tex", "chosen.csv", "chosen.tex",
        "heat_*.png", "plane.png", "curves.png", "clients.png", "gates.png")  # fmt: skip


def report(
    folders: Sequence[str | Path], out: Path, *, last: int = LAST, select_on: str | None = "validation",
    metric: str = "mean", model: str = "global", axes: Sequence[str] = (), plot: bool = True,
) -> None:  # fmt: skip
    """Read, choose, print, write. Nothing is written before everything could be read and chosen."""
    series = load(folders)
    _check_model(series, model)
    settings = group(series, model)
    heat_axes = pictures.heat_axes(settings, axes)
    choice = choose(settings, select_on, metric, model, last) if select_on else None
    task = ", ".join(dict.fromkeys(one.source.task for one in series))
    made = {"settings": tables.build(settings, f"{task}: all settings", model=model, last=last)}
    if choice:
        title = f"{task}: chosen on {select_on} data by {metric}"
        chosen = tables.build(choice.settings, title, model=model, last=last)
        made["chosen"] = chosen._replace(notes=[*choice.notes, *chosen.notes])
    _clear(out)
    for table in made.values():
        tables.show(table, by=metric)
    provenance = [*sources(series), *privacy(settings)]
    drawn, skipped = draw(settings, heat_axes, View(model, last, metric, task), out) if plot else ([], [])
    for line in [*provenance, *skipped]:
        print(line)
    for name, table in made.items():
        (out / f"{name}.csv").write_text(tables.to_csv(table))
        (out / f"{name}.tex").write_text(tables.to_latex(table))
    parts = [tables.to_markdown(table) for table in reversed(made.values())]
    parts += ["### Sources\n", *(f"- {line}" for line in provenance), "", *(f"![{p.stem}]({p.name})" for p in drawn)]
    parts += [f"\n{line}" for line in skipped]
    (out / "report.md").write_text("\n".join(parts) + "\n")
    print(f"report: {out / 'report.md'}; pictures: {', '.join(p.name for p in drawn) or 'none'}")


def sources(series: Sequence[Series]) -> list[str]:
    """One line per folder: the task, the data and the code that its rows came from; and whether it is complete."""
    lines = []
    by_folder: dict[Path, list[Series]] = {}
    for one in series:
        by_folder.setdefault(one.source.folder, []).append(one)
    for folder, own in by_folder.items():
        source = own[0].source
        rounds = "/".join(str(t) for t in sorted({one.planned for one in own}))
        origins = [origin for one in own for origin in one.origins]
        data = ", ".join(dict.fromkeys(_data(origin.data, dict(origin.md5)) for origin in origins))
        commits = list(dict.fromkeys(_short_commit(origin.commit) for origin in origins))
        lines.append(f"{folder}: {source.task}, {len(own)} runs, {rounds} rounds, data {data}, "
                     f"commit{'s' if len(commits) > 1 else ''} {', '.join(commits)}")  # fmt: skip
        if source.missing:
            lines.append(f"{folder} is NOT FINISHED: {source.missing}; the report shows what is there")
    if len({one.planned for one in series}) > 1:
        lines.append("the runs differ in their number of rounds")
    return lines


def privacy(settings: Sequence[Setting]) -> list[str]:
    """What each setting that was trained with privacy may claim; of several seeds, each claim that differs."""
    claims = [f"privacy of {s.label}: {run.privacy['text']}" for s in settings for run in s.runs if run.privacy]
    return list(dict.fromkeys(claims))


def draw(
    settings: Sequence[Setting], axes: dict[str, tuple[str, str]], view: View, out: Path
) -> tuple[list[Path], list[str]]:
    """Every picture that the data can make, and a line for each that it cannot."""
    if reason := pictures.no_library():
        return [], [f"no pictures: {reason}"]
    jobs: dict[str, Callable[[Path], Path]] = {}
    skipped = [] if axes else ["no heat map: it needs two numeric parameters that vary"]
    for algorithm, names in axes.items():
        own = [s for s in settings if s.algorithm == algorithm]
        for metric in dict.fromkeys((view.metric, "variance")):
            jobs[f"heat_{algorithm}_{metric}.png"] = partial(pictures.heat, own, metric, names, view)
    for job in (pictures.plane, pictures.curves, pictures.clients, pictures.gates):
        jobs[f"{job.__name__}.png"] = partial(job, settings, view)
    drawn = []
    for name, picture in jobs.items():
        try:
            drawn.append(picture(out / name))
        except Skipped as reason:
            skipped.append(f"no {name}: {reason}")
    return drawn, skipped


def _data(name: str, md5: dict[str, str]) -> str:
    return name + (f" (md5 {md5['x_train'][:8]})" if "x_train" in md5 else "")


def _short_commit(commit: str) -> str:
    return commit[:10] + ("+" if commit.endswith("+") else "")


def _check_model(series: Sequence[Series], model: str) -> None:
    known = sorted({name for one in series for name in one.models})
    if model not in known and model != "global":
        raise ValueError(f"--model={model} was not evaluated; choose one of {', '.join(known)}")


def _clear(out: Path) -> None:
    """Make the folder, and remove what an earlier report left, so that no old picture is beside a new table."""
    if out.exists() and not out.is_dir():
        raise ValueError(f"--out={out} is a file; give a folder")
    if any((out / name).exists() for name in (MARK, *OLD)):
        raise ValueError(f"--out={out} is the folder of a run; give another, as {out / 'report'}")
    out.mkdir(parents=True, exist_ok=True)
    for path in (path for pattern in MADE for path in out.glob(pattern)):
        path.unlink()
