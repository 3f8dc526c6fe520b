"""Sweep hyper-parameters x algorithms x seeds on a task, as one program where only numbers differ.

    python -m experiments.sweep --task=fashion_mnist_mini_mlp --rounds=100 --algorithm=fedeba_plus \\
        --grid=tau=0.05,0.1,0.5,1,5 --grid=alpha=0,0.1,0.5,0.9 --grid=theta=0,15,30,45,90 --seeds=0:2 --out=runs/grid

--dry_run shows the plan. Killed and started again with the same command it goes on; with more values or seeds it
runs what is missing. Presets, one an ablation of the paper: --flagfile=experiments/configs/NAME.flags.
Results: python -m experiments.report OUT. The default of --out is runs/sweep/TASK, of --validation 0.1.
"""

from pathlib import Path

from absl import flags

from experiments import cli, common_flags, points, show, sweep_run
from experiments.program import Seeds
from fedeba_jax import ALGORITHMS
from fedeba_jax.algorithms.participation import uses_everybody
from fedeba_jax.data.sources import load

FLAGS = flags.FLAGS
flags.DEFINE_multi_string("grid", [], "NAME=VALUE,VALUE,... of a hyper-parameter or a field of the task; repeatable.")
flags.DEFINE_multi_string("point", [], "NAME=VALUE,NAME=VALUE,...: a single point instead of a grid; repeatable.")
flags.DEFINE_integer("random", 0, "If not 0: so many random points of the grid, which may have ranges LOW..HIGH[:log].")
flags.DEFINE_integer("random_seed", 0, "Seed of --random.")
flags.DEFINE_integer("batch_runs", 0, "Runs at once; 0 chooses by the cores, or by an accelerator's memory.")
flags.DEFINE_bool("dry_run", False, "Show the plan, with the time of a first chunk and the memory, and stop.")
flags.adopt_module_key_flags(common_flags)
VALIDATION = 0.1  # the default fraction: the best point is not chosen on test data


def all_points() -> list[points.Point]:
    """The points that the flags ask for."""
    if FLAGS.point and (FLAGS.grid or FLAGS.random):
        raise ValueError("--point and --grid are both given; give a list of points or a grid")
    if FLAGS.random < 0 or FLAGS.batch_runs < 0:
        flag = "random" if FLAGS.random < 0 else "batch_runs"
        raise ValueError(f"--{flag}={FLAGS[flag].value} is not valid; give 0 or more")
    validation = common_flags.validation(VALIDATION)
    if FLAGS.select_on == "validation" and not validation:
        raise ValueError("--select_on=validation needs a validation split; give --validation=0.1, or --select_on=test "
                         "(chooses on the test data, as the paper did)")  # fmt: skip
    axes = [points.parse_axis(text) for text in FLAGS.grid]
    if FLAGS.point:
        assignments = points.listed(FLAGS.point)
    elif FLAGS.random:
        assignments = points.sampled(axes, FLAGS.random, FLAGS.random_seed)
    else:
        assignments = points.grid(axes)
    chosen = (FLAGS.data_seed, FLAGS.init_seed, FLAGS.sample_seed)
    return points.make(
        FLAGS.algorithm, assignments, task_name=FLAGS.task, task=common_flags.task(), seeds=common_flags.seeds(),
        seeds_of=lambda seed: Seeds(*(seed if s is None else s for s in chosen)),
        validation=validation, state_dtype=FLAGS.state_dtype,
    )  # fmt: skip


def main() -> None:
    common_flags.set_up_devices()
    wanted = all_points()
    client_map, run_map = common_flags.maps()
    dataset = load(wanted[0].task.dataset, FLAGS.data_dir)
    sweep = sweep_run.Sweep(wanted, dataset, client_map, run_map, FLAGS.batch_runs)
    folder = Path(FLAGS.out or f"runs/sweep/{FLAGS.task}")
    table = folder / "results.jsonl"
    done = sweep_run.finished(table) if table.exists() else set()
    missing = [point for point in wanted if point.id not in done]
    groups = sweep.groups(done)
    print(f"{len(wanted)} points ({len(missing)} to run), {len(groups)} compilation{'s' * (len(groups) != 1)}, "
          f"varying {', '.join(points.varying(wanted)) or 'nothing'}; {folder}")  # fmt: skip
    full = [p for p in wanted if uses_everybody(ALGORITHMS[p.algorithm], p.hparams)]
    for note in {show.full_cohorts(p.algorithm, p.task.clients): None for p in full}:
        print(f"  {note}")
    for group in groups:
        program = group.program
        batches = f"{len(group.missing)} points in {len(group.batches())} batches of {group.batch_runs}"
        plan = f"{batches}, {group.task.rounds} rounds, run map {program.run_map}, client map {program.client_map}"
        print(f"  {program.algorithm}: {plan}{'; ' + sweep_run.estimate(group) if FLAGS.dry_run else ''}", flush=True)
    if FLAGS.dry_run:
        return
    with show.Best(points.varying(wanted), missing, FLAGS.select_on, FLAGS.metric) as best:
        sweep_run.execute(sweep, folder, best.tell)
    print(f"results: {folder}; tables and pictures: python -m experiments.report {folder}")


if __name__ == "__main__":
    cli.run(main)
