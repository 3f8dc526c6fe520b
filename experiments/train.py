"""Train one algorithm on one task, over one seed or several.

    python -m experiments.train --algorithm=fedeba_plus --hparams=tau=0.1,alpha=0.9,theta=0 \\
        --task=fashion_mnist_mlp --rounds=2000 --seeds=0,1,2 --out=runs/NAME

Several seeds are one program. --list shows the algorithms, tasks, models and data sets. Settings of the task
(clients, rate, rounds ...) are the paper's unless a flag changes them. Presets: --flagfile=FILE. A run that was stopped
is resumed by the same command. The default of --out is runs/TASK/ALGORITHM[-HPARAMS][-OPTIONS], of --validation 0.
"""

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from absl import flags

from experiments.command import cli, hparams, listing
from experiments.command import flags as common_flags
from experiments.command.runs import Run
from experiments.command.tasks import OPTIONS, SGD, TASKS
from experiments.command.values import Call, short
from experiments.execution import session
from experiments.execution.progress import Progress
from experiments.reporting import pictures, summary
from experiments.reporting.series import Setting
from experiments.reporting.style import drawn

FLAGS = flags.FLAGS
flags.DEFINE_string("hparams", "", "Hyper-parameters of the algorithm, as tau=0.1,alpha=0.9; --list shows them.")
flags.DEFINE_integer("seed", None, "One seed; the same as --seeds with one entry.")
common_flags.declare(*common_flags.TRAINING, "plot", "list")


def runs() -> list[Run]:
    """The runs that the flags ask for, one for each seed."""
    if FLAGS.seed is not None and FLAGS["seeds"].present:
        raise ValueError("--seed and --seeds are both given; give one of them")
    if FLAGS.seed is not None:
        FLAGS["seeds"].value = [str(common_flags.seed("seed", FLAGS.seed))]
    if len(FLAGS.algorithm) != 1:
        raise ValueError(f"--algorithm={','.join(FLAGS.algorithm)} names {len(FLAGS.algorithm)}; train takes one")
    given = hparams.pairs(FLAGS.hparams)
    hparams.check_names(FLAGS.algorithm[0], given)  # fields of the task have flags of their own
    return common_flags.runs([given], "--hparams")


def main() -> None:
    if FLAGS.list:
        print(listing.everything())
        return
    session.set_up()
    asked = runs()
    out = Path(FLAGS.out or folder(asked[0]))
    session.run(asked, out, Progress(), log_rounds=True, only_these=True)
    title = f"{FLAGS.task}, seeds {', '.join(FLAGS.seeds)}"
    settings = summary.show(summary.write(out), title=title)
    if FLAGS.plot:
        drawn(out / "curves.png", partial(pictures.overview, settings, f"{asked[0].algorithm} on {title}"))
    print(f"results: {out}")
    for setting in settings:
        if setting.diverged:
            raise cli.RunError(f"{divergence(asked[0], setting)}; what was done is in {out}")


def folder(run: Run) -> str:
    """The default of --out: task, method, what of its hyper-parameters was given, and options other than the task's."""
    task, usual = run.task, TASKS[run.task_name]
    changed = [
        f"{field}={getattr(task, field)}"
        for field in (*OPTIONS, "label_noise")
        if getattr(task, field) != getattr(usual, field)
    ]
    parts = [run.algorithm, *([FLAGS.hparams] if FLAGS.hparams else []), *changed]
    return f"runs/{run.task_name}/{'-'.join(part.replace(' ', '') for part in parts)}"


def divergence(run: Run, setting: Setting) -> str:
    """What diverged, when, and what to turn."""
    bad = [one for one in setting.runs if one.diverged]
    named = [len(one.diverged_clients) < run.task.cohort_size for one in bad]
    where = [
        f"seed {one.seed} in round {one.diverged}, {'broken by' if known else 'which sampled'} clients "
        f"{_few(one.diverged_clients)}"
        for one, known in zip(bad, named, strict=True)
    ]
    what = "the model or a client's reply" if any(named) else "the model"
    return f"diverged ({'; '.join(where)}): {what} is not finite; lower {', or '.join(causes(run))}"


def _few(clients: Sequence[int], most: int = 10) -> str:
    return ", ".join(map(str, clients[:most])) + ", ..." * (len(clients) > most)


def causes(run: Run) -> list[str]:
    """What may be too large, the most likely first: a server of its own, what exceeds its default, noise, the rate."""
    task, found = run.task, []
    if task.server != SGD:
        found.append(f"--server={task.server}")
    for name, h in hparams.known(run.algorithm).items():
        value, usual = run.hparams[name], h.default or 0.0
        if h.traced and (isinstance(value, Call) or (value is not None and abs(value) > abs(usual))):
            stable = " (fair_scale=none is 1/K, the stable reading)" if name == "fair_scale" else ""
            found.append(f"{name}={short(value)}{stable}")
    if task.privacy.arguments.get("sigma"):
        found.append(f"the noise of --privacy={task.privacy}")
    return [*found, f"--lr={task.lr:g}"]


if __name__ == "__main__":
    cli.run(main)
