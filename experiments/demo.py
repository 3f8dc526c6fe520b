"""FedAvg against FedEBA+ and Prac-FedEBA+ on embedded images: a fairness table and a picture (`make demo`).

Stopped, it is resumed by the same command; a demo that is whole is shown again. --overwrite trains anew.
"""

from functools import partial
from pathlib import Path

from absl import flags

from experiments.command import cli
from experiments.command import flags as common_flags
from experiments.execution import session
from experiments.execution.progress import Progress
from experiments.reporting import loading, pictures, summary, tables
from experiments.reporting.series import View
from experiments.reporting.style import drawn
from fedeba_jax.metrics import SHOWN

FLAGS = flags.FLAGS
common_flags.declare("algorithm", "seeds", "rounds", "out", *common_flags.EXECUTION)

TASK = "fashion_mnist_mini_mlp"
DEFAULTS = {"algorithm": "fedavg,fedeba_plus,prac_fedeba_plus", "seeds": "0,1", "out": "runs/demo"}


def main() -> None:
    session.set_up()
    asked, out, named = common_flags.runs([{}], "--algorithm", task=TASK), Path(FLAGS.out), ", ".join(FLAGS.seeds)
    task = asked[0].task
    print(
        f"{task.dataset}: {task.clients} clients with {task.shards_per_client} label shards each, "
        f"{task.cohort_size} sampled in each round, {task.rounds} rounds, seeds {named}"
    )
    session.run(asked, out, Progress(), only_these=True)
    settings = loading.group(summary.write(out), model=None)
    what = tables.averaged(settings, View()).removeprefix("the ")
    title = f"{TASK}, seeds {named}: {what}; lower variance is fairer"
    tables.show(tables.build(settings, title, model=None, keys=SHOWN))
    drawn(out / "demo.png", partial(pictures.overview, settings, f"{TASK}, test data, seeds {named}"))


if __name__ == "__main__":
    common_flags.set_defaults(DEFAULTS)
    cli.run(main)
