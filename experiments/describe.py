"""What each client holds: sizes, labels, and how far from i.i.d. that is.

    python -m experiments.describe --task=fashion_mnist_mlp --partition=dirichlet --dirichlet=0.1 --out=runs/describe
    python -m experiments.describe --task=custom --data=mine.npz

All flags of a task work. It prints a table and draws holdings.png in --out (default: runs/describe/TASK). Nothing is
trained. The data seed is that of --seeds, of which it takes one, or --data_seed.
"""

from functools import partial
from pathlib import Path

from absl import flags

from experiments.command import cli, opening
from experiments.command import flags as common_flags
from experiments.command.runs import Run
from experiments.command.tasks import FIELDS
from experiments.reporting import holdings
from experiments.reporting.style import drawn

FLAGS = flags.FLAGS
common_flags.declare("task", *FIELDS, "data", "data_dir", "seeds", "data_seed", "validation", "plot", "out")


def runs() -> list[Run]:
    """The one run whose data is described; the algorithm does not matter."""
    seeds = common_flags.seeds()
    if len(seeds) != 1:
        raise ValueError(f"--seeds={','.join(FLAGS.seeds)} names {len(seeds)} seeds; describe takes one")
    return common_flags.runs([{}], "--algorithm", algorithms=["fedavg"])


def main() -> None:
    (run,), datasets = opening.opened(runs(), FLAGS.data_dir)
    dataset, task = datasets[run.task.dataset], run.task
    with opening.naming_flags():
        split = run.dealing.split(dataset, run.seeds.data)
    splits = {"train": split.train, "validation": split.validation, "test": split.test}
    title = (
        f"{task.dataset}: {task.clients} clients by {task.partition}, tested by {task.test_split}, "
        f"data seed {run.seeds.data}"
    )
    told = holdings.describe(
        title,
        {name: owned for name, owned in splits.items() if owned is not None},
        dataset.y_train if split.labels is None else split.labels,
        dataset.num_classes,
        dataset.client_names if len(dataset.client_names) == task.clients else (),
    )
    print("\n".join(holdings.lines(told)))
    if FLAGS.plot:
        out = Path(FLAGS.out or f"runs/describe/{FLAGS.task}")
        out.mkdir(parents=True, exist_ok=True)
        drawn(out / "holdings.png", partial(holdings.draw, told))


if __name__ == "__main__":
    cli.run(main)
