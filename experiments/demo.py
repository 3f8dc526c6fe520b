"""FedAvg against FedEBA+ and Prac-FedEBA+ on embedded images: a fairness table and a picture (`make demo`).

A demo that is in --out (default runs/demo) is replaced.
"""

from pathlib import Path

from absl import flags

from experiments import cli, common_flags, hparams, plots, run, show

FLAGS = flags.FLAGS
for _flag in ("algorithm", "seeds", "rounds", "out"):
    flags.declare_key_flag(_flag)

TASK = "fashion_mnist_mini_mlp"
DEFAULTS = {"algorithm": ["fedavg", "fedeba_plus", "prac_fedeba_plus"], "seeds": ["0", "1"], "out": "runs/demo"}


def main() -> None:
    common_flags.set_up_devices()
    for name, value in DEFAULTS.items():
        if not FLAGS[name].present:
            FLAGS[name].value = value
    task = common_flags.checked_task(TASK, {"rounds": FLAGS.rounds})
    seeds = common_flags.seeds()
    chosen = {name: run.Settings(name, hparams.parse(name, ""), TASK, task, seeds) for name in FLAGS.algorithm}
    print(
        f"{task.dataset}: {task.clients} clients with {task.shards_per_client} label shards each, "
        f"{task.cohort_size} sampled a round, {task.rounds} rounds, seeds {', '.join(FLAGS.seeds)}"
    )
    results, rows = {}, {}
    for name, settings in chosen.items():
        results[name] = run.train(settings, Path(FLAGS.out) / name, overwrite=True, plot=False)
        rows |= show.both_ways(name, results[name].recent)
    show.results_table(
        rows,
        f"{TASK}, seeds {', '.join(FLAGS.seeds)}: mean of the last {run.LAST} evaluations; lower variance is fairer",
    )
    folders = {name: result.folder for name, result in results.items()}
    plots.compare(folders, Path(FLAGS.out) / "demo.png", f"{TASK}, test data, seeds {', '.join(FLAGS.seeds)}")


if __name__ == "__main__":
    cli.run(main)
