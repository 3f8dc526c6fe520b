"""The paper's tables and figures, from our runs, beside what the paper prints.

    python -m experiments.reproduce --list
    python -m experiments.reproduce --table=performance --rows=fedavg,fedeba_plus --seeds=0:10

It runs what is missing, and shows the paper's layout: ours with its interval, the paper's number, the difference, and a
verdict (docs/statistics.md). What results/ has is not run again. New runs go to OUT/TASK, tables and pictures to
OUT/NAME. Stopped, it is resumed by the same command; experiments.archive packs a folder into results/.

    --list                  what is done, what is missing and what it costs; with --table or --figure, row by row
    --dry_run               the same for what the other flags ask for, and stop
    --norun                 what is there already, with all its seeds
    --rows=fedavg,...       rows as --list names them, or all of an algorithm
    --panel=TASK,...        of a table that has several tasks
    --task, --lr, ...       another task, or a setting of it, for every row: the paper's numbers are then left out
    --rounds                fewer or more: the paper's numbers then stand there with their rounds, and are not compared
    --reading=best          tables of the most accurate evaluation of each run, or of the last one (--reading=last)
    --check=RUN             run a committed run again and compare all rows (RUN is its name, or random)
"""

import random
import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from absl import flags

from experiments.command import cli
from experiments.command import flags as common_flags
from experiments.command.runs import Run
from experiments.command.tasks import FIELDS
from experiments.execution import again, folder, session
from experiments.execution.progress import Progress
from experiments.paper import comparison, costs, drawing, evidence, standing
from experiments.paper.presets import Panel, Preset, on_task, presets
from experiments.paper.readings import READINGS
from experiments.paper.rows import Row
from experiments.reporting.page import HTML
from experiments.reporting.style import Skipped

FLAGS = flags.FLAGS
flags.DEFINE_string("table", None, "A table of the paper; --list names them.")
flags.DEFINE_string("figure", None, "A figure of the paper; --list names them.")
flags.DEFINE_list("rows", [], "Rows: names of algorithms, or rows as --list shows them; default all.")
flags.DEFINE_list("panel", [], "Tasks of the table or figure; default all whose data is there.")
flags.DEFINE_bool("run", True, "Run what is missing; --norun shows what is there, with all its seeds.")
flags.DEFINE_enum("reading", "last5", list(READINGS), "Evaluations of a run in tables: last5, last, or the best one.")
flags.DEFINE_string("check", None, "Run this committed run again and compare: its name, or random.")
common_flags.declare("task", *FIELDS, "seeds", "data_dir", "out", "plot", "list", "dry_run", "results")
common_flags.declare(*common_flags.EXECUTION)
DEFAULTS = {"task": "", "seeds": "", "out": "runs/reproduce"}


def chosen() -> Preset:
    """The preset that the flags name."""
    if (FLAGS.table is None) == (FLAGS.figure is None):
        raise ValueError("give one of --table=NAME and --figure=NAME, or --list, which names them")
    kind, name = ("table", FLAGS.table) if FLAGS.table is not None else ("figure", FLAGS.figure)
    known = [preset.name for preset in presets().values() if preset.kind == kind]
    if name not in known:
        raise ValueError(f"--{kind}={name} is not in the paper; choose one of {', '.join(known)}")
    preset = presets()[name]
    if preset.not_here:
        raise ValueError(f"--{kind}={name} cannot be run: {preset.not_here}")
    return on_task(preset, FLAGS.task) if FLAGS.task else preset


def seeds(preset: Preset) -> tuple[int, ...]:
    return common_flags.seeds() if FLAGS["seeds"].present else preset.seeds


def rows(preset: Preset) -> list[Row]:
    """The rows that the flags choose; an error if one of --rows or --panel chooses none."""
    for task in FLAGS.panel:
        if task not in preset.tasks:
            raise ValueError(f"--panel={task} is no task of {preset.name}; it has {', '.join(preset.tasks)}")
    found = [row for row in preset.rows if not FLAGS.panel or row.task in FLAGS.panel]
    labels = dict.fromkeys(row.label for row in found)
    wanted: set[str] = set()
    for name in FLAGS.rows:
        named = {name} & labels.keys() or {row.label for row in found if row.algorithm == name}
        if not named:
            raise ValueError(f"--rows={name} is no row of {preset.name}; it has {', '.join(labels)}")
        wanted |= named
    return [row for row in found if not FLAGS.rows or row.label in wanted]


def runs_of(preset: Preset, row: Row) -> list[Run]:
    """The runs of a row, as the flags have them."""
    return row.runs(seeds(preset), common_flags.changes())


def runs() -> list[Run]:
    """All runs that the flags ask for."""
    if FLAGS.list or FLAGS.check:
        return []
    preset = chosen()
    return [run for row in rows(preset) if not row.impossible for run in runs_of(preset, row)]


def blocked(preset: Preset, row: Row) -> str:
    """Why a row cannot be run here; "" if it can."""
    if row.impossible:
        return row.impossible
    needs, reason = standing.data_of(runs_of(preset, row)[0].task.dataset, FLAGS.data_dir)
    return reason or (f"its data is not here: {needs}" if needs else "")


def listed(found: evidence.Evidence) -> str:
    """What there is of the presets, and what is missing."""
    one = FLAGS.table or FLAGS.figure
    named = [chosen()] if one else list(presets().values())
    lines: list[str] = []
    for preset in named:
        lines += [*standing.described(preset, standing.standings(preset, found, FLAGS.data_dir), rows=bool(one)), ""]
    return "\n".join(lines[:-1])


def plan(preset: Preset, asked: Sequence[Row], found: evidence.Evidence) -> tuple[dict[str, list[Run]], list[str]]:
    """What is missing and can be run, by folder; and in words what is there, what that costs, what cannot be run."""
    missing: dict[str, list[Run]] = {}
    reasons: dict[str, int] = {}
    there, spent = 0, []
    for row in asked:
        runs = [] if row.impossible else runs_of(preset, row)
        lacking = [run for run in runs if evidence.key(run) not in found]
        there += len(runs) - len(lacking)
        if (lacking or not runs) and (reason := blocked(preset, row)):
            reasons[reason] = reasons.get(reason, 0) + 1
        elif lacking:
            missing.setdefault(row.folder, []).extend(lacking)
            spent += [costs.of_run(run, standing.timed(row, found)) for run in lacking]
    if not there and not missing:
        raise ValueError(f"nothing of {preset.name} is there, or can be run here: {'; '.join(reasons)}")
    left = f"{len(spent)} are missing: {costs.total(spent)}" if spent else "none that can be run is missing"
    told = [f"{preset.kind} {preset.name}: {there} runs are there, {left}"]
    return missing, told + [f"  {count} rows are left as they are: {reason}" for reason, count in reasons.items()]


def papers_setting() -> bool:
    """Whether the flags leave the paper's setting as it is, but for the rounds and for when models are evaluated."""
    return not FLAGS.task and not set(common_flags.changes()) - {"rounds", "eval_every"}


def show(
    preset: Preset, asked: Sequence[Row], shown_runs: comparison.RunsOf, found: evidence.Evidence, out: Path
) -> None:
    """Tables and pictures of these runs of the rows, in the terminal and as files."""
    out.mkdir(parents=True, exist_ok=True)
    tasks = list(dict.fromkeys(row.task for row in asked))
    own = {task: [row for row in asked if row.task == task] for task in tasks}
    sheets, same = [], papers_setting()
    for task in tasks if preset.kind == "table" else ():
        view = READINGS[FLAGS.reading]
        made = comparison.sheet(preset, task, own[task], shown_runs, found, same=same, view=view)
        comparison.show(made)
        sheets.append(made)
    if sheets:
        (out / "table.md").write_text("\n".join(map(comparison.to_markdown, sheets)))
        lines = [comparison.to_csv(made).splitlines() for made in sheets]
        (out / "table.csv").write_text("\n".join([lines[0][0], *(row for own in lines for row in own[1:])]) + "\n")
        print(f"table: {out / 'table.md'}, {out / 'table.csv'}")
        if comparison.write_page(sheets, out / HTML, f"{preset.name}: ours beside the paper"):
            print(f"page: {out / HTML}")
    if FLAGS.plot:
        picture(preset, own, shown_runs, found, out)


def picture(
    preset: Preset, own: dict[str, list[Row]], shown_runs: comparison.RunsOf, found: evidence.Evidence, out: Path
) -> None:
    """The figure, or of a table its plane of accuracy and variance."""
    panels = preset.panels or tuple(
        Panel("plane", task, tuple(rows), ("mean", "variance")) for task, rows in own.items()
    )
    drawn = []
    for panel in panels:
        chosen = [row for row in panel.rows if row in own.get(panel.task, ())]
        possible = [row for row in chosen if not row.impossible]
        settings = [(row.label, evidence.setting(shown_runs(row), row.given, found)) for row in possible]
        drawn.append([(label, setting) for label, setting in settings if setting and not setting.diverged])
    try:
        print(f"picture: {', '.join(map(str, drawing.draw(preset._replace(panels=panels), drawn, out)))}")
    except Skipped as reason:
        print(f"no picture: {reason}")


def check(results: Path, name: str) -> None:
    """Run a committed run again, with another of its setting; an error if the numbers are others."""
    where = {run: path for path in evidence.folders_in(results) for run in again.recorded(path)}
    if not where:
        raise ValueError(f"--results={results} holds no finished run; give another folder")
    name = random.choice(sorted(where)) if name == "random" else name
    if name not in where:
        raise ValueError(f"--check={name} is no finished run of {results}; give a name that its rows have, or random")
    recorded = again.recorded(where[name])
    names = again.companions(recorded, name)
    task = folder.description(where[name])["task"]
    asked = [again.as_run(recorded[one][0], task) for one in names]
    print(
        f"running again from {where[name]}: {', '.join(run.label(run.hparams) + f' seed {run.seed}' for run in asked)}"
    )
    with tempfile.TemporaryDirectory() as temporary:
        out = Path(temporary) / "again"
        session.run(asked, out, Progress())
        now = again.recorded(out)
        made = again.made_on(where[name], recorded[name]), again.made_on(out, now[asked[0].id])
        print(f"recorded on {made[0]}; now on {made[1]}")
    every = [recorded[one] for one in again.companions(recorded, name, len(recorded))]
    failed = False
    for one, run in zip(names, asked, strict=True):
        found = again.compare(recorded[one], now[run.id], every)
        told = (
            f"{found.different} of {found.rows} rows differ" if found.different else f"all {found.rows} rows are equal"
        )
        print(f"{one}, seed {run.seed}: {told}")
        for figure, (before, after, std) in found.last.items() if found.different else ():
            print(f"  {figure}: recorded {before:.4f}, now {after:.4f}; std over seeds {std:.4f}")
        failed |= not found.passes
    if failed:
        raise cli.RunError(
            f"the numbers are not those of {where[name]}, by more than {again.TOLERANCE:g} std over seeds"
        )


def main() -> None:
    results, out = Path(FLAGS.results), Path(FLAGS.out)
    if FLAGS.check:
        session.set_up()
        check(results, FLAGS.check)
        return
    known = evidence.folders_in(results) if FLAGS.results else []
    if FLAGS.list:
        print(listed(evidence.gather(known)))
        return
    session.set_up()
    preset = chosen()
    asked = rows(preset)
    found = evidence.gather([*known, *evidence.folders_in(out)])
    if not FLAGS.run:
        every = not FLAGS["seeds"].present
        show(
            preset, asked,
            lambda row: comparison.there(row, found, common_flags.changes()) if every else runs_of(preset, row),
            found, out / preset.name,
        )  # fmt: skip
        return
    missing, told = plan(preset, asked, found)
    print("\n".join(told))
    if FLAGS.dry_run:
        for name, some in missing.items():
            print(f"  {out / name}: {len(some)} runs")
        return
    for name, some in missing.items():
        session.run(some, out / name, Progress("test"))
    found = evidence.gather([*known, *evidence.folders_in(out)])
    show(preset, asked, partial(runs_of, preset), found, out / preset.name)


if __name__ == "__main__":
    common_flags.set_defaults(DEFAULTS)
    cli.run(main)
