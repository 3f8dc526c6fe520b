"""What a binary that trains does around the runner: devices as flags say, progress, a word when it is stopped."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from experiments.command import datasets
from experiments.command.flags import FLAGS
from experiments.command.runs import Run, varying
from experiments.execution import cluster, devices, folder, processes, runner
from experiments.execution.batches import How, Kept, estimate
from experiments.execution.progress import Progress
from fedeba_jax import client_map as maps


def set_up() -> None:
    """Devices and cache as the flags say, before JAX starts."""
    devices.set_up(host_devices=FLAGS.host_devices, cache=FLAGS.compilation_cache)
    given = {name: FLAGS[name].value for name in ("coordinator_address", "process_id", "num_processes")}
    if FLAGS.distributed:
        processes.join(*given.values(), chatty=FLAGS.debug)
    elif wrong := [name for name, value in given.items() if value is not None]:
        raise ValueError(f"--{wrong[0]} has no effect without --distributed; give both")


def how(batch_runs: int = 0) -> How:
    """The maps that the flags name, checked."""
    for flag, name in (("client_map", FLAGS.client_map), ("run_map", FLAGS.run_map)):
        if name != "auto":
            maps.by_name(name, f"--{flag}")
    if FLAGS.data_budget is not None and not FLAGS.data_budget >= 0:
        raise ValueError(f"--data_budget={FLAGS.data_budget} is not valid; give 0 or more GiB")
    budget = None if FLAGS.data_budget is None else FLAGS.data_budget * 2**30
    return How(FLAGS.client_map, FLAGS.run_map, batch_runs, budget)


def run(
    runs: Sequence[Run],
    out: Path,
    progress: Progress,
    *,
    batch_runs: int = 0,
    log_rounds: bool = False,
    only_these: bool = False,
    in_detail: bool = False,
    over: cluster.Resources | None = None,
    kept: Kept | None = None,
    now: Callable[[Run], bool] = lambda _: True,
) -> None:
    """Run what is missing, with progress, here or over a cluster; stopped, it says how to resume."""

    def tell(event: runner.Plan | runner.Chunk) -> None:
        if isinstance(event, runner.Plan):
            print(describe(event, out, in_detail=in_detail), flush=True)
        progress(event)

    try:
        with progress:
            common: dict[str, Any] = {"how": how(batch_runs), "data_dir": FLAGS.data_dir, "overwrite": FLAGS.overwrite}
            common["checkpoint_every"] = FLAGS.checkpoint_every
            if over:
                cluster.execute(runs, out, tell, resources=over, **common)
            else:
                runner.execute(
                    runs, out, tell, log_rounds=log_rounds, only_these=only_these, kept=kept, now=now, **common
                )
    except KeyboardInterrupt as stop:
        processes.leave()
        held = "what is done is" if (out / folder.RESULTS).exists() else "nothing was evaluated yet; it belongs"
        same = "the same command, without --overwrite," if FLAGS.overwrite else "the same command"
        raise type(stop)(f"{held} in {out}; {same} resumes it") from None
    processes.finish()  # the first one shows what there is


def describe(plan: runner.Plan, out: Path, *, in_detail: bool = False, with_cost: bool = False) -> str:
    """The plan in a few lines: how many runs and programs, and why a cohort is not as large as was asked for."""
    missing = len(plan.missing)
    if not missing:
        return f"{_count(len(plan.runs), 'run')}, done before; {out}"
    varies = ", ".join(varying(plan.runs)) or "nothing but the seed"
    programs = _count(len(plan.groups), "compilation")
    lines = [f"{_count(len(plan.runs), 'run')} ({missing} to do), {programs}, varying {varies}; {out}"]
    full = {run.algorithm: run.task.clients for run in plan.runs if run.task.cohort_size == run.task.clients}
    for algorithm, clients in full.items():
        lines.append(f"  {algorithm} as asked for uses every client in every round: cohort_size={clients}")
    for text, task in {run.task.dataset: run.task for run in plan.runs if datasets.is_own(run.task.dataset)}.items():
        told = f"{task.clients} clients by {task.partition}, tested by {task.test_split}, model {task.model}"
        lines.append(f"  {text}: {told}")
    for group in plan.groups if in_detail else []:
        batches = f"{_count(len(group.missing), 'run')}, {group.batch_runs} at once"
        maps = f"run map {group.program.run_map}, client map {group.program.client_map}"
        maps += ", examples on the host" * group.hosted
        cost = f"; {estimate(group)}" if with_cost else ""
        lines.append(f"  {group.algorithm}: {batches}, {group.task.rounds} rounds, {maps}{cost}")
    return "\n".join(lines)


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'s' * (number != 1)}"
