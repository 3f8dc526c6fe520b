"""Sweep hyper-parameters x algorithms x seeds on a task, as one program where only numbers differ.

    python -m experiments.sweep --task=fashion_mnist_mini_mlp --rounds=100 --algorithm=fedeba_plus \\
        --grid=tau=0.05,0.1,0.5,1,5 --grid=alpha=0,0.1,0.5,0.9 --grid=theta=0,15,30,45,90 --seeds=0:2 --out=runs/grid

--dry_run shows the plan: it compiles each program and trains ten rounds or fewer of it, to time them. A sweep that was
stopped is resumed by the same command; with more values or seeds it runs what is missing. Presets:
--flagfile=experiments/configs/NAME.flags; those of the paper's tables: experiments.reproduce. Results: python -m
experiments.report OUT. The default of --out is runs/sweep/TASK, of --validation 0.1.
"""

import re
from pathlib import Path

from absl import flags

from experiments.command import cli, grids
from experiments.command import flags as common_flags
from experiments.command.opening import opened
from experiments.command.runs import Run, grouped
from experiments.execution import cluster, runner, session
from experiments.execution.progress import Progress
from experiments.reporting import loading, selection, series, summary

FLAGS = flags.FLAGS
flags.DEFINE_multi_string("grid", [], "NAME=VALUE,VALUE,... of a hyper-parameter or a field of the task; repeatable.")
flags.DEFINE_multi_string("point", [], "NAME=VALUE,NAME=VALUE,...: a single point instead of a grid; repeatable.")
flags.DEFINE_integer("random", 0, "If not 0: so many random points of the grid, which may have ranges LOW..HIGH[:log].")
flags.DEFINE_bool("ray", False, "Run the batches over a cluster (needs the ray extra; docs/scaling.md).")
flags.DEFINE_string("ray_address", "", "Of a Ray cluster, as auto; without it one is started on this machine.")
flags.DEFINE_integer("cpus_per_task", 1, "CPUs, and host devices, of a batch.", lower_bound=1, upper_bound=1024)
flags.DEFINE_float("gpus_per_task", 0, "GPUs of a batch.", lower_bound=0)
flags.DEFINE_string("shard", "", "I/N: of N equal parts of the sweep the I-th, from 1, into OUT/shard_I_of_N.")
common_flags.declare(*common_flags.TRAINING, "select_on", "metric", "dry_run", "batch_runs", "random_seed")
VALIDATION = 0.1  # the default fraction: the best point is not chosen on test data


def runs() -> list[Run]:
    """The runs that the flags ask for."""
    if FLAGS.point and (FLAGS.grid or FLAGS.random):
        raise ValueError("--point and --grid are both given; give a list of points or a grid")
    for flag, number in (("random", FLAGS.random), ("batch_runs", FLAGS.batch_runs)):
        if number < 0:
            raise ValueError(f"--{flag}={number} is not valid; give 0 or more")
    if FLAGS.select_on == "validation" and not common_flags.others(VALIDATION)["validation"]:
        raise ValueError(
            "--select_on=validation needs a validation split; give --validation=0.1, or --select_on=test "
            "(chooses on the test data, as the paper did)"
        )
    axes = [grids.parse_axis(text) for text in FLAGS.grid]
    if FLAGS.point:
        assignments = grids.listed(FLAGS.point)
    elif FLAGS.random:
        random_seed = common_flags.seed("random_seed", FLAGS.random_seed)
        assignments = grids.sampled(axes, FLAGS.random, random_seed, FLAGS.max_runs)
    else:
        assignments = grids.grid(axes, FLAGS.max_runs)
    return common_flags.runs(assignments, "--point" if FLAGS.point else "--grid", validation=VALIDATION)


def shard(asked: list[Run], text: str) -> list[Run]:
    """One of N equal parts of the runs, for a job of an array; runs that share a compilation follow each other."""
    match = re.fullmatch(r"(\d+)/(\d+)", text)
    number, count = (int(match[1]), int(match[2])) if match else (0, 0)
    if not 1 <= number <= count <= len(asked):
        raise ValueError(f"--shard={text} is not valid; give I/N with I from 1 to N, and N up to {len(asked)} runs")
    ordered = [run for group in grouped(asked) for run in group]
    return ordered[len(ordered) * (number - 1) // count : len(ordered) * number // count]


def resources() -> cluster.Resources | None:
    """What each batch takes of a cluster; None without one."""
    given = [name for name in ("ray_address", "cpus_per_task", "gpus_per_task") if FLAGS[name].present]
    if not FLAGS.ray:
        if given:
            raise ValueError(f"--{given[0]} has no effect without --ray; give both")
        return None
    if FLAGS.distributed:
        raise ValueError("--ray and --distributed are both given; give one of them")
    return cluster.Resources(FLAGS.cpus_per_task, FLAGS.gpus_per_task, FLAGS.ray_address, FLAGS.compilation_cache)


def main() -> None:
    session.set_up()
    asked = runs()
    out = Path(FLAGS.out or f"runs/sweep/{FLAGS.task}")
    if FLAGS.shard:
        asked, out = shard(asked, FLAGS.shard), out / f"shard_{FLAGS.shard.replace('/', '_of_')}"
    if FLAGS.dry_run:
        plan = runner.plan(*opened(asked, FLAGS.data_dir), runner.done_in(out), session.how(FLAGS.batch_runs))
        print(session.describe(plan, out, in_detail=True, with_cost=True))
        return
    progress = Progress(FLAGS.select_on, FLAGS.metric)
    session.run(asked, out, progress, batch_runs=FLAGS.batch_runs, in_detail=True, over=resources())
    view = series.View(metric=FLAGS.metric, split=FLAGS.select_on)
    for line in selection.costly(loading.group(summary.write(out)), view):
        print(line)
    print(f"results: {out}; tables and pictures: python -m experiments.report {out}")


if __name__ == "__main__":
    cli.run(main)
