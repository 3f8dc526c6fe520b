"""All methods at their defaults on one task: fairness, bytes and speed in one table (`make compare`).

    python -m experiments.compare --task=fashion_mnist_mini_mlp --rounds=200 --seeds=0,1 --out=runs/compare

--algorithm names some of them; all flags of a task work. compare.md in --out holds the table, and that of the
differences to --baseline with intervals and verdicts, which need six seeds (docs/statistics.md). A method that diverges
has a row that says so.
Stopped, it is resumed by the same command; --overwrite trains anew.
"""

from pathlib import Path

from absl import flags

from experiments.command import cli
from experiments.command import flags as common_flags
from experiments.command.tasks import FIELDS
from experiments.execution import session
from experiments.execution.progress import Progress
from experiments.reporting import loading, summary, tables
from fedeba_jax import ALGORITHMS

FLAGS = flags.FLAGS
flags.DEFINE_string("baseline", None, "What all others are compared with; default fedavg, or local_only if personal.")
common_flags.declare("algorithm", "task", *FIELDS, "data", "data_dir", "seeds", "out", *common_flags.EXECUTION)

DEFAULTS = {
    "algorithm": ",".join(ALGORITHMS),
    "task": "fashion_mnist_mini_mlp",
    "seeds": "0,1",
    "rounds": 200,
    "out": "runs/compare",
}
KEYS = ("mean", "variance", "variance_corrected", "worst5", "best5", "gap", "bytes", "rounds_per_second")


def main() -> None:
    session.set_up()
    asked, out = common_flags.runs([{}], "--algorithm"), Path(FLAGS.out)
    session.run(asked, out, Progress(), only_these=True)
    settings = loading.group(summary.write(out), model=None)
    title = f"{FLAGS.task}, {asked[0].task.rounds} rounds, seeds {', '.join(FLAGS.seeds)}"
    table = tables.build(settings, title, model=None, keys=KEYS, against=FLAGS.baseline)
    made = [table for table in (table, tables.comparison(table)) if table]
    for table in made:
        tables.show(table)
    (out / "compare.md").write_text("\n".join(map(tables.to_markdown, made)))
    print(f"table: {out / 'compare.md'}")


if __name__ == "__main__":
    common_flags.set_defaults(DEFAULTS)
    cli.run(main)
