"""Sweep hyper-parameters x algorithms x seeds on a task, as one program where only numbers differ.

    python -m experiments.sweep --task=fashion_mnist_mini_mlp --rounds=100 --algorithm=fedeba_plus \\
        --grid=tau=0.05,0.1,0.5,1,5 --grid=alpha=0,0.1,0.5,0.9 --grid=theta=0,15,30,45,90 --seeds=0:2 --out=runs/grid

--dry_run shows the plan: it compiles each program and trains ten rounds or fewer of it, to time them. A sweep that was
stopped is resumed by the same command; with more values or seeds it runs what is missing. Presets, one for each
ablation of the paper: --flagfile=experiments/configs/NAME.flags. Results: python -m experiments.report OUT. The default
of --out is runs/sweep/TASK, of --validation 0.1.
"""

from pathlib import Path

from absl import flags

from experiments.command import cli, grids
from experiments.command import flags as common_flags
from experiments.command.opening import opened
from experiments.command.runs import Run
from experiments.execution import runner, session
from experiments.execution.progress import Progress
from experiments.reporting import loading, selection, summary

FLAGS = flags.FLAGS
flags.DEFINE_multi_string("grid", [], "NAME=VALUE,VALUE,... of a hyper-parameter or a field of the task; repeatable.")
flags.DEFINE_multi_string("point", [], "NAME=VALUE,NAME=VALUE,...: a single point instead of a grid; repeatable.")
flags.DEFINE_integer("random", 0, "If not 0: so many random points of the grid, which may have ranges LOW..HIGH[:log].")
flags.DEFINE_integer("random_seed", 0, "Seed of --random.")
flags.DEFINE_integer("batch_runs", 0, "Runs at once; 0 chooses by the cores, or by an accelerator's memory.")
flags.DEFINE_bool("dry_run", False, "Show the plan, with memory and time from ten rounds or fewer, and stop.")
common_flags.declare(*common_flags.TRAINING, "select_on", "metric")
VALIDATION = 0.1  # the default fraction: the best point is not chosen on test data


def runs() -> list[Run]:
    """The runs that the flags ask for."""
    if FLAGS.point and (FLAGS.grid or FLAGS.random):
        raise ValueError("--point and --grid are both given; give a list of points or a grid")
    for flag, number in (("random", FLAGS.random), ("batch_runs", FLAGS.batch_runs)):
        if number < 0:
            raise ValueError(f"--{flag}={number} is not valid; give 0 or more")
    others = common_flags.others(VALIDATION)
    if FLAGS.select_on == "validation" and not others["validation"]:
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
    return grids.make(
        FLAGS.algorithm,
        assignments,
        task_name=FLAGS.task,
        changes=common_flags.changes(),
        seeds=common_flags.seeds(),
        flag="--point" if FLAGS.point else "--grid",
        most=FLAGS.max_runs,
        **others,
    )


def main() -> None:
    session.set_up()
    asked = runs()
    out = Path(FLAGS.out or f"runs/sweep/{FLAGS.task}")
    if FLAGS.dry_run:
        plan = runner.plan(*opened(asked, FLAGS.data_dir), runner.done_in(out), session.how(FLAGS.batch_runs))
        print(session.describe(plan, out, in_detail=True, with_cost=True))
        return
    progress = Progress(FLAGS.select_on, FLAGS.metric)
    session.run(asked, out, progress, batch_runs=FLAGS.batch_runs, in_detail=True)
    summary.write(out)
    view = loading.View(metric=FLAGS.metric, split=FLAGS.select_on)
    for line in selection.costly(loading.group(loading.load([out])), view):
        print(line)
    print(f"results: {out}; tables and pictures: python -m experiments.report {out}")


if __name__ == "__main__":
    cli.run(main)
