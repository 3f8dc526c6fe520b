"""Train one algorithm on one task, over one seed or several.

    python -m experiments.train --algorithm=fedeba_plus --hparams=tau=0.1,alpha=0.9,theta=0 \\
        --task=fashion_mnist_mlp --rounds=2000 --seeds=0,1,2 --out=runs/NAME

Several seeds are one program. --list shows the algorithms, tasks, models and data sets. Settings of the task
(clients, rate, rounds ...) are the paper's unless a flag changes them. Presets: --flagfile=FILE. The default of
--out is runs/TASK/ALGORITHM[-HPARAMS][-OPTIONS], of --validation 0.
"""

import inspect
from pathlib import Path

from absl import flags

from experiments import calls, cli, common_flags, hparams, options, run, show
from experiments.tasks import HELP, OPTIONS, TASKS
from fedeba_jax import ALGORITHMS
from fedeba_jax.algorithms.signature import hyperparameters
from fedeba_jax.data.sources import DATASETS
from fedeba_jax.models import MODELS
from fedeba_jax.schedules import SCHEDULES

FLAGS = flags.FLAGS
flags.DEFINE_string("hparams", "", "Hyper-parameters of the algorithm, as tau=0.1,alpha=0.9; --list shows them.")
flags.DEFINE_integer("seed", None, "One seed; the same as --seeds with one entry.")
flags.DEFINE_bool("overwrite", False, "Replace a run that --out already holds.")
flags.DEFINE_bool("plot", True, "Write a picture (needs the plot extra).")
flags.DEFINE_bool("list", False, "Show algorithms, tasks, models and data sets, and stop.")
flags.adopt_module_key_flags(common_flags)
VALIDATION = 0.0  # the default fraction


def settings() -> run.Settings:
    """The flags as settings, checked before anything is compiled."""
    if FLAGS.seed is not None and FLAGS["seeds"].present:
        raise ValueError("--seed and --seeds are both given; give one of them")
    if FLAGS.seed is not None:
        FLAGS.seeds = [str(FLAGS.seed)]
    if len(FLAGS.algorithm) != 1:
        raise ValueError(f"--algorithm={','.join(FLAGS.algorithm)} names {len(FLAGS.algorithm)}; train takes one")
    (algorithm,) = FLAGS.algorithm
    values, task = hparams.parse(algorithm, FLAGS.hparams), common_flags.task()
    options.check(algorithm, values, task)
    everybody = hparams.everybody(algorithm, values, task)
    if everybody != task:
        print(show.full_cohorts(algorithm, task.clients))
    return run.Settings(
        algorithm, values, FLAGS.task, everybody,
        common_flags.seeds(), FLAGS.data_seed, FLAGS.init_seed, FLAGS.sample_seed,
        common_flags.validation(VALIDATION), *common_flags.maps(), FLAGS.data_dir, FLAGS.state_dtype,
    )  # fmt: skip


def main() -> int:
    if FLAGS.list:
        list_all()
        return 0
    common_flags.set_up_devices()
    resolved = settings()
    name = resolved.algorithm
    result = run.train(resolved, Path(FLAGS.out or folder(resolved)), overwrite=FLAGS.overwrite, plot=FLAGS.plot)
    if result.diverged:
        raise cli.RunError(f"{divergence(resolved, result.diverged)}; what was done is in {result.folder}")
    title = f"{FLAGS.task}, seeds {', '.join(FLAGS.seeds)}: last evaluation"
    show.results_table(show.both_ways(name, result.last), title)
    show.results_table(show.both_ways(name, result.recent), f"mean of the last {run.LAST} evaluations")
    if resolved.task.privacy != "none":
        print(f"privacy: {result.privacy['text']}")
    print(f"results: {result.folder}")
    return 0


def folder(resolved: run.Settings) -> str:
    """The default of --out: task, method, what of its hyper-parameters was given, and options other than the task's."""
    task, plain = resolved.task, TASKS[FLAGS.task]
    changed = [f"{field}={getattr(task, field)}" for field in (*OPTIONS, "label_noise")
               if getattr(task, field) != getattr(plain, field)]  # fmt: skip
    parts = [resolved.algorithm, *([FLAGS.hparams] if FLAGS.hparams else []), *changed]
    return f"runs/{FLAGS.task}/{'-'.join(part.replace(' ', '') for part in parts)}"


def divergence(resolved: run.Settings, diverged: dict[int, int]) -> str:
    """What diverged, when, and what to turn."""
    where = ", ".join(f"seed {seed} in round {round_}" for seed, round_ in diverged.items())
    scale = resolved.hparams.get("fair_scale")
    remedy = f"lower --lr={resolved.task.lr:g}"
    if scale is not None:
        remedy = f"lower fair_scale={scale:g} (fair_scale=none is 1/K, the stable reading), alpha or --lr"
    return f"diverged ({where}): the model is not finite; {remedy}"


def list_all() -> None:
    """Everything that has a name."""
    print("algorithms (--algorithm, --hparams)")
    for name, factory in ALGORITHMS.items():
        paper = (inspect.getmodule(factory).__doc__ or "").splitlines()[0]
        print(f"  {name:18} {paper}\n  {'':18} {hparams.describe(name)}")
    print("tasks (--task)")
    for name, task in TASKS.items():
        print(f"  {name:24} {task.dataset}, {task.model}, {task.clients} clients, {task.cohort_size} a round, "
              f"K={task.steps}, B={task.batch_size}, rate {task.lr:g} x {task.lr_decay:g} a round")  # fmt: skip
    for field, table in OPTIONS.items():
        print(f"{HELP[field]} (--{field})")
        for name, factory in table.items():
            print(f"  {calls.describe(name, hyperparameters(factory))}")
    print(f"schedules of traced hyper-parameters\n  {calls.describe_all(SCHEDULES).removeprefix('one of ')}")
    print(f"models (--model)\n  {', '.join(MODELS)}")
    print(f"data sets (--dataset)\n  {', '.join(DATASETS)}")


if __name__ == "__main__":
    cli.run(main)
