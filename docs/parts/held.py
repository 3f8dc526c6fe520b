"""What results/ holds and lacks, how it was made, and the views of its folders: summary.csv and plane.svg."""

import tempfile
from pathlib import Path

from docs.parts import NOTHING, ROOT, theory
from docs.parts.findings import committed
from experiments.execution import folder
from experiments.paper import evidence, presets, standing
from experiments.reporting import pictures, tables
from experiments.reporting.loading import group, load
from experiments.reporting.series import Series, View, grouped
from experiments.reporting.style import Skipped
from experiments.reporting.tables import grid


def result_folders() -> str:
    """What results/ holds, folder by folder."""
    rows = []
    for path in evidence.folders_in(ROOT / evidence.RESULTS_DIR):
        content = folder.description(path)
        own = [one for one in load([path]) if one.finished]
        size = sum(file.stat().st_size for file in path.iterdir())
        planned = f"{len(own)} of {len(content['runs'])}"
        algorithms = ", ".join(f"`{name}`" for name in grouped(own, lambda one: one.algorithm))
        rounds = ", ".join(str(rounds) for rounds in sorted({one.settings["rounds"] for one in own}))
        origins = content["origins"]
        commits = ", ".join(dict.fromkeys((one["commit"] or "unknown")[:10] for one in origins))
        data = ", ".join(dict.fromkeys(f"{one['data']['name']} ({one['data']['source']})" for one in origins))
        machine = "; ".join(dict.fromkeys(map(folder.told_machine, origins)))
        rows.append(
            (
                f"`{path.name}`",
                planned,
                _seeds(own),
                rounds,
                algorithms,
                data,
                commits,
                machine,
                f"{size / 1000:.0f} kB",
            )
        )
    head = ("folder", "runs", "seeds", "rounds", "methods", "data", "commit", "machine", "size")
    return grid(head, rows) if rows else NOTHING


def _seeds(series: list[Series]) -> str:
    counts = [
        len({one.seed for one in own})
        for own in grouped(series, lambda one: str((one.algorithm, one.hparams))).values()
    ]
    return str(counts[0]) if len(set(counts)) == 1 else f"{min(counts)} to {max(counts)}"


def what_is_missing() -> str:
    """What of the paper's tables and figures results/ does not have, and what it costs."""
    rows = []
    for preset in presets.presets().values():
        for one in standing.standings(preset, committed(), data_dir="nowhere"):
            cost = one.reason.partition(";")[0] if one.reason else str(one.cost) if one.missing else ""
            done = f"{one.done} of {one.rows}"
            rows.append((f"{preset.kind} `{preset.name}`", f"`{one.task}`", one.state, done, str(one.missing), cost))
        if preset.not_here and not preset.rows:
            rows.append(
                (f"{preset.kind} `{preset.name}`", "", standing.NOT_HERE, "", "", preset.not_here.partition(":")[0])
            )
    return grid(
        ("preset", "task", "state", f"rows with {presets.SEEDS} seeds", "runs missing", "time on 2 cores"), rows
    )


SUMMARY, PLANE = "summary.csv", "plane.svg"
SUMMARY_KEYS = ("mean", "variance", "variance_corrected", "worst5", "best5")


def summary(path: Path) -> str:
    """One row per setting of a folder: what `experiments.report` writes as settings.csv, of five measures."""
    return tables.to_csv(tables.build(group(load([path])), path.name, keys=SUMMARY_KEYS))


def draw_plane(path: Path) -> None:
    """Accuracy and variance of a folder's settings, as plane.svg beside its rows."""
    series = load([path])
    with tempfile.TemporaryDirectory() as made:
        out = Path(made) / "plane.png"
        pictures.plane(group(series), View(task=series[0].source.task), out)
        (path / PLANE).write_text(out.with_suffix(".svg").read_text())


def write_summaries(path: Path) -> bool:
    """Write both; whether something changed.

    The picture is drawn only with a new summary: other versions of matplotlib draw the same figures in other bytes.
    """
    new = summary(path)
    if (path / PLANE).exists() and (path / SUMMARY).exists() and (path / SUMMARY).read_text() == new:
        return False
    (path / SUMMARY).write_text(new)
    (path / PLANE).unlink(missing_ok=True)
    try:
        draw_plane(path)
    except Skipped as reason:
        print(f"{path.name}: no {PLANE}: {reason}")
    return True


RUN = ".venv/bin/python -m experiments"
OTHER_SETTINGS = f"{RUN}.reproduce --table=performance --panel=fashion_mnist_mlp --seeds=0:3 --out=runs/readings"
OTHER_SETTINGS += ' --rows="fedavg,fedeba_plus tau=0.1 alpha=0.9"'
BEFORE = f"{RUN}.sweep --task=fashion_mnist_mlp --algorithm=prac_fedeba_plus --grid=tau=0.1 --grid=alpha=1"
BEFORE += " --seeds=0:3 --validation=0 --select_on=test --out=runs/before"
MADE_BY = {
    "fashion_mnist_mini_mlp": (f"{RUN}.reproduce --flagfile=experiments/configs/reproduce_small.flags",),
    "fashion_mnist_mlp-readings": (f"{OTHER_SETTINGS} --lr_decay=1", f"{OTHER_SETTINGS} --test_split=holdout", BEFORE),
    "robustness_fashion_mnist": (f"{RUN}.robustness --flagfile=experiments/configs/robustness.flags",),
    "robustness_guards": (f"{RUN}.sweep --flagfile=experiments/configs/robustness_guards.flags",),
    "robustness_mini": (f"{RUN}.robustness",),
    "robustness_more": (f"{RUN}.robustness --flagfile=experiments/configs/robustness_more.flags",),
}
"""Commands of the folders that no preset fills."""


def commands(path: Path) -> tuple[str, ...]:
    """What makes the runs of a folder: the presets that ask for them, each only if those before lack some of them."""
    if path.name in MADE_BY:
        return MADE_BY[path.name]
    left = {key: one.seed for key, one in committed().items() if one.source.folder == path}
    seeds = range(max(left.values()) + 1)
    found = []
    for preset in presets.presets().values():
        rows = [row for row in preset.rows if row.folder == path.name and not row.impossible]
        asked = {evidence.key(run) for row in rows for run in row.runs(seeds)}
        if asked & left.keys():
            left = {key: seed for key, seed in left.items() if key not in asked}
            told = f"--{preset.kind}={preset.name} --panel={rows[0].task} --seeds=0:{len(seeds)}"
            found.append(f"{RUN}.reproduce {told}")
    if left:
        raise SystemExit(f"{path}: no preset asks for {len(left)} of its runs; name its command in MADE_BY")
    return tuple(found)


def how_made() -> str:
    """The command of each folder of results/."""
    made = {path.name: commands(path) for path in evidence.folders_in(ROOT / evidence.RESULTS_DIR)}
    made[theory.FIGURES.parent.name] = (theory.COMMAND,)
    rows = [(f"`{name}`", "<br>".join(f"`{command}`" for command in own)) for name, own in made.items()]
    return grid(("folder", "made by"), rows)
