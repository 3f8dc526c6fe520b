"""Methods under attack: a table and a heat map of the worst case over attacks (`make robustness`).

    python -m experiments.robustness --method=fedavg --method="fedeba_plus:median" --method=robust_fedeba_plus \\
        --against=sign_flipping --against="label_flipping(loss=max_plus)" --shares=0.1,0.2 --taus=0.1,1 --out=runs/try

Every method is run under every attack, with every share of attackers and without any, and at every tau if it has one.
Methods that hear of no losses are run once under attacks that differ in what is said of losses alone. Programs differ
by method and attack; shares, taus and seeds share them. Stopped, it is resumed by the same command; --only runs some
of the methods now; --overwrite trains anew. robustness.md and robustness.png in --out hold the result of all that is
there, and say what is missing. With --validation, parameters are chosen on validation data, else on test data.
"""

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from absl import flags

from experiments.command import calls, cli, hparams
from experiments.command import flags as common_flags
from experiments.command.runs import Run
from experiments.command.tasks import FIELDS
from experiments.command.values import shown
from experiments.execution import session
from experiments.execution.progress import Progress
from experiments.reporting import attacked, robustness, summary
from experiments.reporting.style import drawn

METHODS = ("fedavg", "fedeba_plus", "fedeba_plus:geometric_median", "robust_fedeba_plus")
ATTACKS = (
    "scaling(1, loss=inflate)",
    "sign_flipping(loss=inflate)",
    "label_flipping(loss=inflate)",
    "inner_product_manipulation(loss=max_plus)",
    "a_little_is_enough",
    "opt_alie(loss=max_plus)",
    "scaling(-10, loss=max_plus, drawn=true)",
)

FLAGS = flags.FLAGS
flags.DEFINE_multi_string("method", METHODS, "ALGORITHM, or ALGORITHM:AGGREGATOR with a robust rule; repeatable.")
flags.DEFINE_multi_string("against", ATTACKS, "An attack without its share, as sign_flipping(loss=zero); repeatable.")
flags.DEFINE_multi_string("only", [], "Of the methods, one to run now; the others wait. Repeatable; default all.")
flags.DEFINE_list("shares", ["0.1", "0.2"], "Shares of the clients that attack; 0 is always there.")
flags.DEFINE_list("taus", ["0.1", "1"], "Temperatures, of methods that have one.")
OWN = ("aggregator", "attack")  # fields of the task that the flags above set
common_flags.declare("task", *(field for field in FIELDS if field not in OWN), "data", "data_dir", "seeds", "out")
common_flags.declare("data_seed", "init_seed", "sample_seed", "validation", "plot", *common_flags.EXECUTION)

DEFAULTS = {
    "task": "fashion_mnist_mini_mlp",
    "cohort_size": 10,
    "rounds": 100,
    "seeds": "0,1",
    "out": "runs/robustness",
}


def runs(methods: Sequence[str] = ()) -> list[Run]:
    """The runs that the flags ask for, of these methods; default: of all."""
    found: dict[str, Run] = {}
    for method in methods or FLAGS.method:
        algorithm, colon, aggregator = (part.strip() for part in method.partition(":"))
        attacks = ["none", *(with_share(text, share) for share in FLAGS.shares for text in against(algorithm))]
        taus = FLAGS.taus if "tau" in hparams.known(algorithm) else [""]
        assignments = [
            {"attack": attack, "aggregator": aggregator if colon else "weighted_sum"} | ({"tau": tau} if tau else {})
            for tau in taus
            for attack in attacks
        ]
        found |= {run.id: run for run in common_flags.runs(assignments, "--against", algorithms=[algorithm])}
    return list(found.values())


def against(algorithm: str) -> list[str]:
    """The attacks; of those that differ in nothing but a lie that nobody hears, the first."""
    if attacked.hears_losses(algorithm):
        return FLAGS.against
    return list({attacked.without_lie(text): text for text in reversed(FLAGS.against)}.values())[::-1]


def with_share(written: str, share: str) -> str:
    """The text of an attack with its share as the first argument."""
    name, parenthesis, inside = written.strip().partition("(")
    if parenthesis and not inside.endswith(")"):
        raise ValueError(f"--against={shown(written)} is not an attack; write NAME or NAME(ARGUMENTS)")
    arguments = [share, *filter(None, calls.split(inside[:-1]))]
    return f"{name}({', '.join(arguments)})"


def method(run: Run) -> tuple[str, str]:
    """Its algorithm and its rule."""
    return run.algorithm, str(run.task.aggregator)


def chosen(asked: Sequence[Run]) -> set[tuple[str, str]]:
    """The methods to run now, of those that are asked for."""
    every, now = ({method(run) for run in own} for own in (asked, runs(FLAGS.only)))
    if now - every:
        raise ValueError(f"--only={shown(', '.join(FLAGS.only))} is not among the methods; give texts of --method")
    return now


def main() -> None:
    session.set_up()
    asked, out = runs(), Path(FLAGS.out)
    now = chosen(asked)
    session.run(asked, out, Progress(), only_these=True, now=lambda run: method(run) in now)
    settings = attacked.settings_of(summary.write(out))
    title = f"{FLAGS.task}, {asked[0].task.rounds} rounds, seeds {', '.join(FLAGS.seeds)}"
    told = robustness.report(settings, title)
    (out / "robustness.md").write_text(told)
    print(told)
    if FLAGS.plot:
        drawn(out / "robustness.png", partial(robustness.draw, settings, title))
    print(f"tables: {out / 'robustness.md'}")


if __name__ == "__main__":
    common_flags.set_defaults(DEFAULTS)
    cli.run(main)
