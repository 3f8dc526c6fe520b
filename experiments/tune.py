"""Tune methods on equal terms: random points, successive halving on validation data, then test runs on fresh seeds.

    python -m experiments.tune --algorithms=fedavg,fedeba_plus --task=fashion_mnist_mini_mlp --budget=16 --seeds=0,1 \\
        --test_seeds=100:106 --out=runs/tune

Every method gets --budget points of its own space: the learning rate, and what the method declares (docs/tuning.md).
Half of the points go on for twice the rounds, until two are left for all rounds, or for --tuning_rounds. In the rungs
they are evaluated every --tuning_eval_every rounds. --dry_run shows the plan: runs, rounds and an estimate. Stopped, it
is resumed by the same command; with more methods it tunes those that are missing. Runs that --results has, or that
--out has already, are not run again.

Into --out go rung_1, rung_2, ... and test, folders like those of a sweep; tune.json, tune.md, report.html, and
tune.png and .svg. The default of --out is runs/tune/TASK, of --validation 0.1, of --algorithm all methods.
"""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import jax
from absl import flags
from rich.console import Console

from experiments.command import cli, grids, hparams, spaces, tasks
from experiments.command import flags as common_flags
from experiments.command.grids import Assignment
from experiments.command.opening import opened
from experiments.command.runs import Run
from experiments.command.spaces import Rung
from experiments.execution import folder, runner, session
from experiments.execution.batches import Kept, measured
from experiments.execution.progress import Progress
from experiments.paper import evidence
from experiments.paper.evidence import Evidence
from experiments.reporting import loading, page, tables, tuning, web
from experiments.reporting.series import Series, View
from experiments.reporting.style import drawn
from experiments.reporting.tuning import Method, Trial
from fedeba_jax import ALGORITHMS

FLAGS = flags.FLAGS
flags.DEFINE_integer("budget", 16, "Random points of each method.", lower_bound=1)
flags.DEFINE_integer("tuning_rounds", None, "Rounds of the last rung, if fewer than those of the test.", lower_bound=1)
flags.DEFINE_integer(
    "tuning_eval_every", None, "Rounds between evaluations in the rungs; default: those of the task.", lower_bound=1
)
flags.DEFINE_list("test_seeds", ["100:106"], "Seeds of the test runs; none of --seeds.")
ALONE = ("distributed", "coordinator_address", "process_id", "num_processes")  # rungs follow one another in one process
common_flags.declare(*(name for name in common_flags.TRAINING if name not in ALONE))
common_flags.declare("dry_run", "batch_runs", "random_seed", "results")
VALIDATION = 0.1
FORMAT, VERSION = "fedeba_jax tuning", 1
DEFAULTS = {"algorithm": ",".join(ALGORITHMS)}


def define_flags() -> None:
    """Called by the binary alone: benchmarks have a flag of this name, too."""
    flags.DEFINE_alias("algorithms", "algorithm")


class Tuning:
    """What the flags ask for, checked."""

    def __init__(self) -> None:
        self.seeds, self.test_seeds = common_flags.seeds(), common_flags.seeds("test_seeds")
        if both := sorted({*self.seeds} & {*self.test_seeds}):
            raise ValueError(f"--test_seeds and --seeds both have {both[0]}; give fresh seeds for the test")
        self.others = common_flags.others(VALIDATION)
        if not self.others["validation"]:
            raise ValueError("--validation=0 leaves nothing to choose points on; give a fraction, as 0.1")
        self.changes = common_flags.changes()
        self.task = tasks.resolve(FLAGS.task, self.changes)
        rounds = FLAGS.tuning_rounds or self.task.rounds
        if rounds > self.task.rounds:
            raise ValueError(f"--tuning_rounds={rounds} exceeds --rounds={self.task.rounds}; give fewer")
        every = FLAGS.tuning_eval_every
        if every and every > rounds:
            raise ValueError(f"--tuning_eval_every={every} exceeds the {rounds} rounds of the last rung; give fewer")
        self.eval_every = every or self.task.eval_every  # in the rungs
        self.rungs = spaces.rungs(FLAGS.budget, rounds, self.eval_every)
        self.algorithms: list[str] = FLAGS.algorithm
        for algorithm in self.algorithms:
            hparams.known(algorithm)
        seed = common_flags.seed("random_seed", FLAGS.random_seed)
        self.spaces = {algorithm: spaces.space(algorithm, self.task) for algorithm in self.algorithms}
        self.points = {algorithm: spaces.points(space, FLAGS.budget, seed) for algorithm, space in self.spaces.items()}

    def rung(self, rung: Rung, alive: dict[str, list[int]]) -> list[Run]:
        """The runs of the points that are still in it."""
        return self._runs(
            {algorithm: [self.points[algorithm][i] for i in places] for algorithm, places in alive.items()},
            self.seeds,
            {"rounds": rung.rounds, "eval_every": self.eval_every},
            **self.others,
        )

    def test(self, chosen: dict[str, int | None]) -> list[Run]:
        """The runs of the chosen points and of the defaults, on all training data."""
        return self._runs(
            {
                algorithm: [*([] if place is None else [self.points[algorithm][place]]), {}]
                for algorithm, place in chosen.items()
            },
            self.test_seeds,
            {},
            **(self.others | {"validation": 0.0}),
        )

    def _runs(
        self, assignments: dict[str, list[Assignment]], seeds: Sequence[int], changes: dict[str, Any], **others: Any
    ) -> list[Run]:
        changes = self.changes | changes
        return [
            run
            for algorithm, own in assignments.items()
            for run in grids.make(
                [algorithm], own, task_name=FLAGS.task, changes=changes, seeds=seeds, most=FLAGS.max_runs, **others
            )
        ]

    def values(self, algorithm: str, point: Assignment) -> dict[str, float]:
        """A point as numbers; of the defaults, {}, too."""
        known = {name: h.default for name, h in hparams.known(algorithm).items()} | {"lr": float(self.task.lr)}
        return {name: float(point.get(name, known[name])) for name in self.spaces[algorithm]}

    def plan(self) -> list[str]:
        """Runs and rounds, in words."""
        rungs, seeds, tests = self.rungs, len(self.seeds), 2 * len(self.test_seeds)
        stages = ", then ".join(f"{points} points x {rounds} rounds" for points, rounds in rungs)
        runs = seeds * sum(rung.points for rung in rungs) + tests
        methods = len(self.algorithms)
        return [
            f"{FLAGS.task}, {methods} methods: {stages}, on seeds {','.join(FLAGS.seeds)}; then the chosen point and "
            f"the defaults x {self.task.rounds} rounds, on seeds {','.join(FLAGS.test_seeds)}",
            f"the rungs are evaluated every {self.eval_every} rounds; of these evaluations the last "
            f"{', '.join(map(str, self.counted()))} count",
            f"each method: {runs:,} runs, {self.rounds():,} rounds; in all {methods * runs:,} runs, "
            f"{methods * self.rounds():,} rounds",
            *(
                f"  {algorithm}: {', '.join(f'{name}={within}' for name, within in space.items())}"
                for algorithm, space in self.spaces.items()
            ),
        ]

    def counted(self) -> list[int]:
        """How many evaluations the figures of each rung average."""
        return [folder.averaged(-(-rung.rounds // self.eval_every)) for rung in self.rungs]

    def rounds(self) -> int:
        """Rounds of one method, over all of its runs."""
        tuned = len(self.seeds) * sum(points * rounds for points, rounds in self.rungs)
        return tuned + 2 * len(self.test_seeds) * self.task.rounds


def runs() -> list[Run]:
    """The runs of the first rung: those that are known beforehand."""
    asked = Tuning()
    return asked.rung(asked.rungs[0], {algorithm: list(range(FLAGS.budget)) for algorithm in asked.algorithms})


def at_once() -> int:
    """Runs of a rung at once: on a CPU one for each core, in all rungs, so that these share a program."""
    return FLAGS.batch_runs or (jax.device_count() if jax.default_backend() == "cpu" else 0)


def estimate(asked: Tuning) -> str:
    """Hours in all, from the first rounds of each method."""
    hours = {}
    planned = runner.plan(*opened(runs(), FLAGS.data_dir), set(), session.how(at_once()))
    for group in planned.groups:
        hours[group.algorithm] = measured(group).of(asked.rounds()) / group.batch_runs / 3600
    each = ", ".join(f"{algorithm} {time:.2g}" for algorithm, time in hours.items())
    return f"about {sum(hours.values()):.2g} hours here ({each})"


def main() -> None:
    session.set_up()
    asked = Tuning()
    out = Path(FLAGS.out or f"runs/tune/{FLAGS.task}")
    print("\n".join(asked.plan()), flush=True)
    if FLAGS.dry_run:
        print(estimate(asked))
        return
    kept, known = Kept(), committed()
    trials, chosen = tune(asked, out, kept, known)
    print("test: the chosen points and the defaults", flush=True)
    series = trained(asked.test(chosen), out / "test", known, Progress(), batch_runs=FLAGS.batch_runs, kept=kept)
    methods = [collected(asked, series, algorithm, trials[algorithm], place) for algorithm, place in chosen.items()]
    write(asked, out, methods, series)


def committed() -> Evidence:
    """The runs of --results, and of the tunings in it."""
    if not FLAGS.results:
        return {}
    results = Path(FLAGS.results)
    return evidence.gather(evidence.folders_in(results, *sorted(path for path in results.glob("*") if path.is_dir())))


def trained(wanted: Sequence[Run], place: Path, known: Evidence, progress: Progress, **options: Any) -> list[Series]:
    """The runs, as they are known, or else trained; one that was evaluated at other rounds is not known."""
    every = [known.get(evidence.key(run)) for run in wanted]
    there = [one if one and one.settings["eval_every"] == run.task.eval_every else None
             for one, run in zip(every, wanted, strict=True)]  # fmt: skip
    missing = [run for run, one in zip(wanted, there, strict=True) if one is None]
    if len(missing) < len(wanted):
        print(f"{len(wanted) - len(missing)} of {len(wanted)} runs are in {FLAGS.results}", flush=True)
    if missing:
        session.run(missing, place, progress, **options)
    return [one for one in there if one] + (of_runs(loading.load([place]), missing) if missing else [])


def tune(
    asked: Tuning, out: Path, kept: Kept, known: Evidence
) -> tuple[dict[str, list[list[Trial]]], dict[str, int | None]]:
    """All rungs; what each point of each method came to in them, and the place of the chosen one."""
    alive = {algorithm: list(range(FLAGS.budget)) for algorithm in asked.algorithms}
    trials: dict[str, list[list[Trial]]] = {algorithm: [[] for _ in own] for algorithm, own in asked.points.items()}
    for number, rung in enumerate(asked.rungs, 1):
        wanted = asked.rung(rung, alive)
        if not wanted:
            break
        print(f"rung {number} of {len(asked.rungs)}: {rung.points} points x {rung.rounds} rounds", flush=True)
        place = out / f"rung_{number}"
        options = {"batch_runs": at_once(), "only_these": True, "kept": kept}
        series = trained(wanted, place, known, Progress("validation"), **options)
        for algorithm, places in alive.items():
            for i in places:
                values = asked.values(algorithm, asked.points[algorithm][i])
                trials[algorithm][i].append(tuning.trial(tuning.of_point(series, algorithm, values), rung.rounds))
            order = [places[i] for i in tuning.ordered([trials[algorithm][i][-1] for i in places])]
            after = asked.rungs[number].points if number < len(asked.rungs) else 1
            alive[algorithm] = order[:after]
    return trials, {algorithm: places[0] if places else None for algorithm, places in alive.items()}


def of_runs(series: Sequence[Series], runs: Sequence[Run]) -> list[Series]:
    """Those of these runs, of one task; the folder may hold others."""
    names = ("lr", "rounds", "eval_every", "validation")  # what settings of one task may differ in
    wanted = [(run.algorithm, run.seed, run.record["hparams"], *map(run.settings.get, names)) for run in runs]
    return [one for one in series if (one.algorithm, one.seed, one.hparams, *map(one.settings.get, names)) in wanted]


def collected(
    asked: Tuning, series: Sequence[Series], algorithm: str, trials: list[list[Trial]], chosen: int | None
) -> Method:
    """One method with its test figures."""
    points = [asked.values(algorithm, point) for point in asked.points[algorithm]]
    defaults = tuning.of_point(series, algorithm, asked.values(algorithm, {}))
    figures = {tuning.UNTUNED: tuning.tested(defaults)}
    if chosen is not None:
        figures = {tuning.TUNED: tuning.tested(tuning.of_point(series, algorithm, points[chosen])), **figures}
    space = {name: str(within) for name, within in asked.spaces[algorithm].items()}
    return Method(algorithm, space, points, trials, chosen, figures, defaults[0].shown("personal"))


def write(asked: Tuning, out: Path, methods: list[Method], series: Sequence[Series]) -> None:
    """The table, the plane, and everything as JSON."""
    title = f"{FLAGS.task}, tuned: {FLAGS.budget} points of each method"
    below, made = tuning.notes(methods, asked.task.rounds, asked.test_seeds), kinds(asked, methods, series)
    table = tuning.table(title, methods, below)
    tables.show_plain(table, Console(highlight=False, width=220), wrap=0)
    out.mkdir(parents=True, exist_ok=True)  # it is not there if all runs are in --results
    (out / "tune.md").write_text(tables.plain_markdown(table))
    content = {
        "format": FORMAT,
        "version": VERSION,
        "task": FLAGS.task,
        "budget": FLAGS.budget,
        "random_seed": FLAGS.random_seed,
        "seeds": asked.seeds,
        "test_seeds": asked.test_seeds,
        "rungs": [rung._asdict() for rung in asked.rungs],
        "rule": tuning.RULE,
        "methods": tuning.as_json(methods),
    }
    folder.write_json(out / "tune.json", content)
    provenance = [*page.sources(series), *page.privacy([row.setting for table in made for row in table.rows])]
    web.write(out / page.HTML, title, made, View(task=FLAGS.task), lines=[*below, *provenance])
    print(f"table: {out / 'tune.md'}; page: {out / page.HTML}; all points: {out / 'tune.json'}")
    drawn(out / "tune.png", partial(tuning.plane, methods, title))


def kinds(asked: Tuning, methods: list[Method], series: Sequence[Series]) -> list[tables.Table]:
    """The test runs as the tables of a report: of the chosen points, and of the defaults.

    Their rows are those of tune.md, and so are their verdicts: of each method what a client would use.
    """
    used = [one._replace(evals={key: own for key, own in one.evals.items() if key[1] == one.shown("personal")})
            for one in series]  # fmt: skip
    found: dict[str, list[Series]] = {tuning.TUNED: [], tuning.UNTUNED: []}
    for one in methods:
        if one.chosen is not None:
            found[tuning.TUNED] += tuning.of_point(used, one.algorithm, one.points[one.chosen])
        found[tuning.UNTUNED] += tuning.of_point(used, one.algorithm, asked.values(one.algorithm, {}))
    return [
        tables.build(loading.group(own, model=None), f"{FLAGS.task}, {kind}", model=None)
        for kind, own in found.items()
        if own
    ]


if __name__ == "__main__":
    define_flags()
    common_flags.set_defaults(DEFAULTS)
    cli.run(main)
