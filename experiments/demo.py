"""FedAvg against FedEBA+ and Prac-FedEBA+ on embedded images: a fairness table and a picture (`make demo`)."""

from pathlib import Path

from absl import flags

from experiments import cli, devices, hparams, plots, run, show
from experiments.tasks import resolve

FLAGS = flags.FLAGS
flags.DEFINE_string("out", "runs/demo", "Folder of the results; a demo that is there is replaced.")
flags.DEFINE_list("algorithms", ["fedavg", "fedeba_plus", "prac_fedeba_plus"], "Algorithms to compare, at defaults.")
flags.DEFINE_list("seeds", ["0", "1"], "Seeds, each a run.")
flags.DEFINE_integer("rounds", 300, "Rounds.")

TASK = "fashion_mnist_mini_mlp"


def main() -> None:
    devices.set_up()
    task = resolve(TASK, {"rounds": FLAGS.rounds})
    seeds = tuple(map(int, FLAGS.seeds))
    chosen = {name: run.Settings(name, hparams.parse(name, ""), TASK, task, seeds) for name in FLAGS.algorithms}
    print(
        f"{task.dataset}: {task.clients} clients with {task.shards_per_client} label shards each, "
        f"{task.cohort_size} sampled a round, {task.rounds} rounds, seeds {', '.join(FLAGS.seeds)}"
    )
    results = {}
    for name, settings in chosen.items():
        results[name] = run.train(settings, Path(FLAGS.out) / name, overwrite=True, plot=False)
    show.results_table(
        {name: result.recent for name, result in results.items()},
        f"{TASK}, seeds {', '.join(FLAGS.seeds)}: mean of the last {run.LAST} evaluations; lower variance is fairer",
    )
    picture = plots.compare(
        {name: result.folder for name, result in results.items()}, Path(FLAGS.out) / "demo.png", f"{TASK}, test data"
    )
    print(f"picture: {picture}")


if __name__ == "__main__":
    cli.run(main)
