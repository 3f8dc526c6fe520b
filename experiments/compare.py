"""All methods at their defaults on one task: fairness, bytes and speed in one table (`make compare`).

    python -m experiments.compare --task=fashion_mnist_mini_mlp --rounds=200 --seeds=0,1 --out=runs/compare

--algorithm names some of them. Each is trained as `train` would, into a folder of its own below --out (default
runs/compare; one that is there is replaced), and compare.md holds the table. A method that diverges has a row that
says so.
"""

import json
from pathlib import Path

from absl import flags
from rich.console import Console
from rich.table import Table

from experiments import cli, common_flags, hparams, options, run, show
from fedeba_jax import ALGORITHMS

FLAGS = flags.FLAGS
for _flag in ("algorithm", "task", "seeds", "rounds", "out", "data_dir"):
    flags.declare_key_flag(_flag)

DEFAULTS = {
    "algorithm": list(ALGORITHMS), "task": "fashion_mnist_mini_mlp", "seeds": ["0", "1"], "rounds": 200,
    "out": "runs/compare",
}  # fmt: skip
COLUMNS = {name: show.METRICS[name] for name in ("mean", "variance", "worst5", "best5")}


def main() -> None:
    common_flags.set_up_devices()
    for name, value in DEFAULTS.items():
        if not FLAGS[name].present:
            FLAGS[name].value = value
    task, seeds = common_flags.task(), common_flags.seeds()
    out = Path(FLAGS.out)
    rows: list[list[str]] = []
    for name in FLAGS.algorithm:
        values = hparams.parse(name, "")
        options.check(name, values, task)
        settings = run.Settings(
            name, values, FLAGS.task, hparams.everybody(name, values, task), seeds, data_dir=FLAGS.data_dir
        )
        result = run.train(settings, out / name, overwrite=True, plot=False)
        rows += table_rows(name, result)
    header = ["method", "model", *(title for title, _ in COLUMNS.values()), "MiB down + up", "rounds/s"]
    what = f"{FLAGS.task}, {task.rounds} rounds, seeds {', '.join(FLAGS.seeds)}"
    title = f"{what}: mean of the last {run.LAST} evaluations"
    table = Table(*header, title=title, title_justify="left")
    for row in rows:
        table.add_row(*row)
    Console(width=None if show.console.is_terminal else 140).print(table)
    lines = ["| " + " | ".join(cells) + " |" for cells in (header, ["---"] * len(header), *rows)]
    (out / "compare.md").write_text(f"{title}\n\n" + "\n".join(lines) + "\n")
    print(f"table: {out / 'compare.md'}")


def table_rows(name: str, result: run.Result) -> list[list[str]]:
    """A row for the global model, and one for personal predictions, of what a method has."""
    summary = json.loads((result.folder / "summary.json").read_text())
    sent = summary["communication"]
    mebibytes = sum(sum(sent[way]) / len(sent[way]) for way in ("bytes_down", "bytes_up")) / 2**20
    cost = [f"{mebibytes:.1f}", f"{summary['rounds_per_second']:.1f}" if summary["rounds_per_second"] else "-"]
    rows = []
    for model in ("global", "personal"):
        if model in result.recent:
            cells = [show.mean_and_spread(result.recent[model][key], digits) for key, (_, digits) in COLUMNS.items()]
            if result.diverged:
                cells = [f"diverged in round {min(result.diverged.values())}", *["-"] * (len(COLUMNS) - 1)]
            rows.append([name, model, *cells, *cost])
    return rows


if __name__ == "__main__":
    cli.run(main)
