"""Train one algorithm on one task, over one seed or several.

    python -m experiments.train --algorithm=fedeba_plus --hparams=tau=0.1,alpha=0.9,theta=0 \\
        --task=fashion_mnist_mlp --rounds=2000 --seeds=0,1,2 --out=runs/NAME

Several seeds are one program. --list shows the algorithms, tasks, models and data sets. Settings of the task
(clients, rate, rounds ...) are the paper's unless a flag changes them. Presets: --flagfile=FILE.
"""

import dataclasses
import inspect
from pathlib import Path

from absl import flags

from experiments import cli, devices, hparams, run, show
from experiments.tasks import CHOICES, HELP, TASKS, Task, resolve
from fedeba_jax import ALGORITHMS
from fedeba_jax.data.sources import DATASETS
from fedeba_jax.models import MODELS

FLAGS = flags.FLAGS
flags.DEFINE_string("algorithm", "fedeba_plus", "Algorithm; --list shows them.")
flags.DEFINE_string("hparams", "", "Hyper-parameters of the algorithm, as tau=0.1,alpha=0.9; --list shows them.")
flags.DEFINE_string("task", "fashion_mnist_mlp", f"One of {', '.join(TASKS)}.")
flags.DEFINE_list("seeds", ["0"], "Seeds, each a run: 0,1,2.")
flags.DEFINE_integer("seed", None, "One seed; the same as --seeds with one entry.")
flags.DEFINE_integer("data_seed", None, "Seed of the data split, if it shall not follow the seed.")
flags.DEFINE_integer("init_seed", None, "Seed of the initial model, if it shall not follow the seed.")
flags.DEFINE_integer("sample_seed", None, "Seed of client and batch sampling, if it shall not follow the seed.")
flags.DEFINE_float("validation", 0.0, "Fraction of each client's training data held back and evaluated.")
flags.DEFINE_string("out", None, "Folder of the results; default runs/TASK/ALGORITHM[-HPARAMS].")
flags.DEFINE_bool("overwrite", False, "Replace a run that --out already holds.")
flags.DEFINE_string("data_dir", None, "Where data sets live; default $FEDEBA_DATA, or ./data.")
flags.DEFINE_string("client_map", "auto", f"How the clients of a round run: {devices.MAPS}.")
flags.DEFINE_string("run_map", "auto", f"How several seeds run: {devices.MAPS}.")
flags.DEFINE_integer("host_devices", 0, "CPU devices to make; 0 is one a core.")
flags.DEFINE_string("compilation_cache", None, "Folder that keeps compiled programs; empty for none.")
flags.DEFINE_bool("plot", True, "Write a picture (needs the plot extra).")
flags.DEFINE_bool("list", False, "Show algorithms, tasks, models and data sets, and stop.")
_DEFINE = {int: flags.DEFINE_integer, float: flags.DEFINE_float, str: flags.DEFINE_string}
for _field in dataclasses.fields(Task):
    _valid = f" ({', '.join(CHOICES[_field.name])})" if _field.name in CHOICES else ""
    _DEFINE[_field.type](_field.name, None, f"Of the task, if changed: {HELP[_field.name]}{_valid}.")  # type: ignore[index]


def settings() -> run.Settings:
    """The flags as settings, checked before anything is compiled."""
    changes = {f.name: FLAGS[f.name].value for f in dataclasses.fields(Task) if FLAGS[f.name].value is not None}
    _check_seed_flags()
    seeds = [FLAGS.seed] if FLAGS.seed is not None else FLAGS.seeds
    if not 0 <= FLAGS.validation < 1:
        raise ValueError(f"--validation={FLAGS.validation} is not a fraction; give a number in [0, 1)")
    task = resolve(FLAGS.task, changes)
    for name, value, known in (("dataset", task.dataset, DATASETS), ("model", task.model, MODELS)):
        if value not in known:
            raise ValueError(f"--{name}={value} is not known; choose one of {', '.join(known)}")
    for flag in ("client_map", "run_map"):
        if FLAGS[flag].value != "auto":
            devices.by_name(FLAGS[flag].value, flag)
    return run.Settings(
        FLAGS.algorithm, hparams.parse(FLAGS.algorithm, FLAGS.hparams), FLAGS.task, task,
        tuple(_seed(s) for s in seeds), FLAGS.data_seed, FLAGS.init_seed, FLAGS.sample_seed,
        FLAGS.validation, FLAGS.client_map, FLAGS.run_map, FLAGS.data_dir,
    )  # fmt: skip


def main() -> int:
    if FLAGS.list:
        list_all()
        return 0
    devices.set_up(host_devices=FLAGS.host_devices, cache=FLAGS.compilation_cache)
    resolved = settings()
    suffix = f"-{FLAGS.hparams.replace(' ', '')}" if FLAGS.hparams else ""
    out = FLAGS.out or f"runs/{FLAGS.task}/{FLAGS.algorithm}{suffix}"
    result = run.train(resolved, Path(out), overwrite=FLAGS.overwrite, plot=FLAGS.plot)
    show.results_table({FLAGS.algorithm: result.last}, f"{FLAGS.task}, seeds {FLAGS.seeds}: last evaluation")
    show.results_table({FLAGS.algorithm: result.recent}, f"mean of the last {run.LAST} evaluations")
    print(f"results: {result.folder}")
    if result.diverged:
        raise cli.RunError(divergence(resolved, result.diverged))
    return 0


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
    print(f"models (--model)\n  {', '.join(MODELS)}")
    print(f"data sets (--dataset)\n  {', '.join(DATASETS)}")


def _seed(text: str | int) -> int:
    try:
        seed = int(text)
    except ValueError:
        seed = -1
    if not 0 <= seed < 2**31:
        raise ValueError(f"--seeds: {text!r} is not a seed; give whole numbers from 0, as 0,1,2")
    return seed


def _check_seed_flags() -> None:
    if FLAGS.seed is not None and FLAGS["seeds"].present:
        raise ValueError("--seed and --seeds are both given; give one of them")
    if len(set(FLAGS.seeds)) < len(FLAGS.seeds) or not FLAGS.seeds:
        raise ValueError(f"--seeds={','.join(FLAGS.seeds)} must name different seeds; give each once")
    for flag in ("seed", "data_seed", "init_seed", "sample_seed"):
        if FLAGS[flag].value is not None:
            _seed(FLAGS[flag].value)


if __name__ == "__main__":
    cli.run(main)
