"""The report on folders of experiments: tables and pictures, in the terminal and as files."""

import json
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from operator import attrgetter
from pathlib import Path

from experiments.execution.folder import MARK, OLD, write_json
from experiments.reporting import heat, pictures, tables, web
from experiments.reporting.columns import TERMINAL
from experiments.reporting.loading import group, load
from experiments.reporting.selection import choose
from experiments.reporting.series import LAST, Series, Setting, View, by_algorithm, grouped
from experiments.reporting.style import ENDINGS, Skipped, no_library

PICTURES = (pictures.plane, pictures.curves, pictures.clients, pictures.gates)
HTML = "report.html"
FORMAT, REPORT = "fedeba_jax report", "report.json"  # the mark of a folder that a report may replace


def report(
    folders: Sequence[str | Path],
    out: Path,
    *,
    last: int = LAST,
    select_on: str | None = "validation",
    metric: str = "mean",
    model: str = "global",
    baseline: str | None = None,
    axes: Sequence[str] = (),
    plot: bool = True,
) -> None:
    """Read, choose, print, write. Nothing is written before everything could be read and chosen."""
    series = load(folders)
    _check_model(series, model)
    settings = group(series, model)
    heat_axes = heat.axes_of(settings, axes)
    task = ", ".join(dict.fromkeys(one.source.task for one in series))
    view = View(model, last, metric, task)
    choice = choose(settings, view._replace(split=select_on)) if select_on else None
    build = partial(tables.build, model=model, last=last, against=baseline)
    made = {"settings": build(settings, f"{task}: all settings")}
    if choice:
        chosen = build(choice.settings, f"{task}: chosen on {select_on} data by {metric}")
        made["chosen"] = chosen._replace(notes=[*choice.notes, *chosen.notes])
    compared = {name: other for name, table in made.items() if (other := tables.comparison(table))}
    jobs, skipped = pictures_of(settings, heat_axes, view) if plot else ({}, [])
    texts = {f"{name}.csv": tables.to_csv(table) for name, table in made.items()}
    texts |= {f"{name}.tex": tables.to_latex(table) for name, table in made.items()}
    texts |= {f"{name}_compared.tex": tables.to_latex(table) for name, table in compared.items()}
    drawings = [str(Path(name).with_suffix(ending)) for name in jobs for ending in ENDINGS]
    _claim(out, ["report.md", HTML, *texts, *drawings])
    for name, content in texts.items():
        (out / name).write_text(content)
    for name, table in made.items():
        tables.show(table, by=metric, keys=TERMINAL)
        if name in compared:
            tables.show(compared[name])
    provenance = [*sources(series), *privacy(settings)]
    drawn = draw(jobs, out, skipped)
    print(*provenance, *skipped, sep="\n")
    parts = [
        tables.to_markdown(table) for name in reversed(made) for table in (made[name], compared.get(name)) if table
    ]
    parts += [
        "### Sources\n",
        *(f"- {tables.markdown(line)}" for line in provenance),
        "",
        *(f"![{p.stem}]({p.name})" for p in drawn),
    ]
    parts += [f"\n{line}" for line in skipped]
    (out / "report.md").write_text("\n".join(parts) + "\n")
    web.write(out / HTML, f"{task}: report", list(made.values()), view, lines=provenance, axes=heat_axes)
    print(f"report: {out / 'report.md'}, {out / HTML}; pictures: {', '.join(p.name for p in drawn) or 'none'}")


def sources(series: Sequence[Series]) -> Iterator[str]:
    """One line per folder: the task, the data and the code that its rows came from; and whether it is complete."""
    for source, own in grouped(series, attrgetter("source")).items():
        rounds = "/".join(str(t) for t in sorted({one.settings["rounds"] for one in own}))
        origins = [origin for one in own for origin in one.origins]
        data = ", ".join(dict.fromkeys(_data(origin.data, dict(origin.md5)) for origin in origins))
        commits = list(dict.fromkeys(origin.commit[:10] + "+" * origin.commit.endswith("+") for origin in origins))
        code = f"commit{'s' if len(commits) > 1 else ''} {', '.join(commits)}"
        yield f"{source.folder}: {source.task}, {len(own)} runs, {rounds} rounds, data {data}, {code}"
        if source.missing:
            yield f"{source.folder} is NOT FINISHED: {source.missing}; the report shows what is there"
    if len({one.settings["rounds"] for one in series}) > 1:
        yield "the runs differ in their number of rounds"


def privacy(settings: Sequence[Setting]) -> list[str]:
    """What each setting that was trained with privacy may claim; of several seeds, each claim that differs."""
    claims = [f"privacy of {s.label}: {run.privacy['text']}" for s in settings for run in s.runs if run.privacy]
    return list(dict.fromkeys(claims))


def pictures_of(
    settings: list[Setting], axes: dict[str, list[str]], view: View
) -> tuple[dict[str, Callable[[Path], None]], list[str]]:
    """Every picture that there might be, by file name, and a line on those that there cannot be."""
    if reason := no_library():
        return {}, [f"no pictures: {reason}"]
    jobs: dict[str, Callable[[Path], None]] = {}
    for algorithm, names in axes.items():
        for metric in dict.fromkeys((view.metric, "variance")):
            own = by_algorithm(settings)[algorithm], names, view._replace(metric=metric)
            jobs[f"heat_{algorithm}_{metric}.png"] = partial(pictures.heat, *own)
    jobs |= {f"{picture.__name__}.png": partial(picture, settings, view) for picture in PICTURES}
    return jobs, [] if axes else ["no heat map: it needs two numeric parameters that vary"]


def draw(jobs: dict[str, Callable[[Path], None]], out: Path, skipped: list[str]) -> list[Path]:
    """The pictures that the data can make; a line in `skipped` for each that it cannot."""
    drawn = []
    for name, picture in jobs.items():
        try:
            picture(out / name)
            drawn.append(out / name)
        except Skipped as reason:
            skipped.append(f"no {name}: {reason}")
    return drawn


def _data(name: str, md5: dict[str, str]) -> str:
    return name + (f" (md5 {md5['x_train'][:8]})" if "x_train" in md5 else "")


def _check_model(series: Sequence[Series], model: str) -> None:
    known = sorted({name for one in series for name in one.models})
    if model not in known and model != "global":
        raise ValueError(f"--model={model} was not evaluated; choose one of {', '.join(known)}")


def _claim(out: Path, names: Sequence[str]) -> None:
    """Make the folder ours: a mark with these names of files. What the report before it wrote is removed.

    So no old picture is beside a new table, and no file of somebody else is replaced.
    """
    if out.exists() and not out.is_dir():
        raise ValueError(f"--out={out} is a file; give a folder")
    if any((out / name).exists() for name in (MARK, *OLD)):
        raise ValueError(f"--out={out} is the folder of a run; give another, as {out / 'report'}")
    written = _written(out)
    for name in names:
        if name not in written and (out / name).exists():
            raise ValueError(f"--out={out} holds a {name} that is not of its report; move it, or give another folder")
    out.mkdir(parents=True, exist_ok=True)
    write_json(out / REPORT, {"format": FORMAT, "version": 1, "files": sorted({*names, *written})})
    for name in written:
        (out / name).unlink(missing_ok=True)


def _written(out: Path) -> list[str]:
    """The files of the report that the folder holds; an error if it holds other things."""
    if not out.exists() or not any(out.iterdir()):
        return []
    try:
        mark = json.loads((out / REPORT).read_text())
        files = mark["files"] if mark["format"] == FORMAT else None
    except (OSError, ValueError, KeyError, TypeError):
        files = None
    if not isinstance(files, list) or not all(isinstance(name, str) and Path(name).name == name for name in files):
        raise ValueError(f"--out={out} holds files that are not of a report; give another folder")
    return files
