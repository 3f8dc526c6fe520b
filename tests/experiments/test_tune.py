"""Tuning on equal terms: what is run, what is chosen, and that it can be stopped at any moment."""

import dataclasses
import json
import math

import jax
import pytest
from absl import flags
from absl.testing import flagsaver

from experiments import tune
from experiments.command.runs import Run
from experiments.execution import folder, runner, session
from experiments.execution.progress import Progress
from experiments.reporting import style, tuning
from tests.support import folders
from tests.support.runs import MINI, TINY, Killed

pytestmark = pytest.mark.usefixtures("parsed_flags")
TUNING = TINY | {"rounds": 8, "eval_every": 2}
FILES = ("tune.json", "tune.md", "rung_1/results.jsonl", "rung_2/results.jsonl", "test/results.jsonl")


@pytest.fixture(autouse=True)
def tiny(tmp_path, monkeypatch):
    """Four points of two methods, eight rounds, on the suite's devices."""
    monkeypatch.setattr(session, "set_up", lambda: None)
    settings = TUNING | {"algorithm": ["fedavg", "qffl"], "seeds": ["0"], "test_seeds": ["10", "11"], "budget": 4}
    settings |= {"results": ""}
    with flagsaver.flagsaver(**settings, task=MINI, out=str(tmp_path / "out")):
        yield


@pytest.fixture
def made_up(monkeypatch):
    """Runs that are not trained: the accuracy falls with the distance of the rate from 0.05, and 0.3 diverges."""
    asked = []

    def figures(run: Run):
        rate = float(run.task.lr)
        accuracy = 80 - 10 * abs(math.log10(rate / 0.05)) + (run.algorithm == "qffl")
        splits = ("test", "validation") if run.validation else ("test",)
        personal = {"ditto": {"global": 0, "personal": 10}, "local_only": {"personal": 11}}
        models = personal.get(run.algorithm, {"global": 0})
        return {
            (split, model): [(accuracy + more, 100 + 10 * rate - more)] * (run.task.rounds // folders.EVERY)
            for split in splits
            for model, more in models.items()
        }

    def run(runs, place, progress, **options):
        assert options.get("only_these", False) == (place.name != "test")
        asked.append((place.name, list(runs)))
        earlier = [dataclasses.replace(runs[0], seed=12), dataclasses.replace(runs[0], validation=0.1)]
        others = earlier if place.name == "test" else []
        rows = [
            folders.Run(r.algorithm, figures(r), r.record["hparams"], r.seed, r.settings,
                        diverged=2 if r.task.lr > 0.3 else None)
            for r in [*runs, *others]
        ]  # fmt: skip
        folders.write_folder(place, rows)

    monkeypatch.setattr(session, "run", run)
    return asked


def test_points_are_halved_and_the_best_is_tested_beside_the_defaults(made_up, tmp_path, capsys):
    tune.main()
    assert [(name, len(runs)) for name, runs in made_up] == [("rung_1", 8), ("rung_2", 4), ("test", 8)]
    assert [{run.task.rounds for run in runs} for _, runs in made_up] == [{4}, {8}, {8}]
    assert [{run.seed for run in runs} for _, runs in made_up] == [{0}, {0}, {10, 11}]
    assert [{run.validation for run in runs} for _, runs in made_up] == [{0.1}, {0.1}, {0.0}]
    found = json.loads((tmp_path / "out" / "tune.json").read_text())["methods"]
    for one in found.values():
        rates = [point["values"]["lr"] for point in one["points"]]
        near = sorted(range(4), key=lambda i: abs(math.log10(rates[i] / 0.05)) + 9 * (rates[i] > 0.3))
        assert one["chosen"] == near[0]
        assert {i for i in range(4) if len(one["points"][i]["rungs"]) == 2} == set(near[:2])
        assert {seed for seed in one["test"]["tuned"]["figures"]["mean"]["by_seed"]} == {"10", "11"}
    tested = {(run.algorithm, float(run.task.lr)) for run in made_up[-1][1]}
    assert {("fedavg", 0.1), ("qffl", 0.1)} <= tested, "the defaults"
    assert "too few seeds" in capsys.readouterr().out
    assert (tmp_path / "out" / "tune.md").read_text().count("| defaults |") == 2
    page = (tmp_path / "out" / "report.html").read_text()
    assert all(f"{MINI}, {kind}" in page for kind in ("tuned", "untuned"))
    assert "toy_task, 8 runs, 8 rounds, data toy (md5 01234567), commit ffffffffff" in page


def test_the_page_judges_as_the_table_does(made_up, tmp_path, monkeypatch):
    """The same rows, baselines and adjusted p: personal models beside training alone, others beside FedAvg."""
    shown = []
    monkeypatch.setattr(tune.web, "write", lambda out, title, made, view, **_: shown.extend(made))
    with flagsaver.flagsaver(algorithm=["fedavg", "qffl", "ditto", "local_only"], test_seeds=["20:26"]):
        tune.main()
    found = json.loads((tmp_path / "out" / "tune.json").read_text())["methods"]
    for kind, table in zip(("tuned", "untuned"), shown, strict=True):
        assert [row.setting.algorithm for row in table.rows] == list(found)
        assert [row.baseline.split(" ")[0] for row in table.rows] == ["", "fedavg", "local_only", ""]
        for row in table.rows:
            told = found[row.setting.algorithm]["test"][kind]["against"]
            for metric in tuning.COMPARED:
                against = row.cells[metric].against
                assert told.get(metric) == (None if against is None else pytest.approx(against._asdict()))
    verdicts = {name: one["test"]["tuned"]["against"].get("mean") for name, one in found.items()}
    assert verdicts["qffl"]["verdict"] == "better"
    assert verdicts["ditto"]["verdict"] == "worse"
    assert verdicts["ditto"]["adjusted"] == 2 / 2**6, "the only row beside local_only"


def test_rungs_may_have_fewer_rounds_than_the_test(made_up):
    with flagsaver.flagsaver(tuning_rounds=4):
        tune.main()
    assert [{run.task.rounds for run in runs} for _, runs in made_up] == [{2}, {4}, {8}]


def test_rungs_may_be_evaluated_more_often_than_the_test(made_up):
    """So several evaluations of a short rung count, and runs that were done before count as test runs."""
    with flagsaver.flagsaver(tuning_eval_every=1):
        tune.main()
    assert [{run.task.eval_every for run in runs} for _, runs in made_up] == [{1}, {1}, {2}]
    with flagsaver.flagsaver(budget=8, tuning_eval_every=3):
        assert [rung.rounds for rung in tune.Tuning().rungs] == [3, 6, 8]
        assert tune.Tuning().counted() == [1, 1, 1]
    with flagsaver.flagsaver(budget=8, rounds=96, tuning_eval_every=4):
        assert tune.Tuning().counted() == [3, 5, 5]


def test_the_test_takes_runs_with_its_own_evaluations_alone(made_up, tmp_path):
    """A folder may hold the same runs, evaluated at other rounds."""
    tune.main()
    runs = made_up[-1][1]
    others = [dataclasses.replace(run, task=dataclasses.replace(run.task, eval_every=1)) for run in runs]
    assert not {run.id for run in runs} & {run.id for run in others}
    series = tune.loading.load([tmp_path / "out" / "test"])
    assert len(tune.of_runs(series, runs)) == len(runs)
    assert tune.of_runs(series, others) == []


def test_runs_that_are_committed_are_not_run_again(made_up, tmp_path, capsys):
    """Here two methods of three, with all their rungs, in a folder of results that has tunings and other folders."""
    with flagsaver.flagsaver(out=str(tmp_path / "results" / "tuning")):
        tune.main()
    made_up.clear()
    with flagsaver.flagsaver(algorithm=["fedavg", "qffl", "term"], results=str(tmp_path / "results")):
        tune.main()
    assert [(name, {run.algorithm for run in runs}) for name, runs in made_up] == [
        (name, {"term"}) for name in ("rung_1", "rung_2", "test")
    ]
    assert "8 of 12 runs are in" in capsys.readouterr().out
    before, now = (json.loads((tmp_path / place / "tune.json").read_text()) for place in ("results/tuning", "out"))
    assert {name: now["methods"][name]["points"] for name in before["methods"]} == {
        name: one["points"] for name, one in before["methods"].items()
    }
    assert set(now["methods"]) == {"fedavg", "qffl", "term"}


def test_committed_runs_with_other_evaluations_are_run(made_up, tmp_path):
    with flagsaver.flagsaver(out=str(tmp_path / "results" / "tuning"), eval_every=4):
        tune.main()
    made_up.clear()
    with flagsaver.flagsaver(results=str(tmp_path / "results")):
        tune.main()
    assert [len(runs) for _, runs in made_up] == [8, 4, 8]


def test_a_method_whose_points_all_diverge_is_shown_at_its_defaults(made_up, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(style, "no_library", lambda: "matplotlib is not installed")
    with flagsaver.flagsaver(lr=40.0):
        tune.main()
    assert [(name, len(runs)) for name, runs in made_up] == [("rung_1", 8), ("test", 4)]
    shown = capsys.readouterr().out
    assert "every point diverged" in shown
    assert "no tune.png: matplotlib is not installed" in shown
    assert json.loads((tmp_path / "out" / "tune.json").read_text())["methods"]["fedavg"]["chosen"] is None


def test_the_rungs_of_a_method_share_a_program():
    asked = tune.Tuning()
    runs = [run for rung in asked.rungs for run in asked.rung(rung, {name: [0, 1] for name in asked.algorithms})]
    assert len({(run.algorithm, run.parts[1]) for run in runs}) == 2


@pytest.mark.parametrize("objective", ["cross_entropy", "lsr"])
def test_a_method_compiles_once_for_all_rungs_and_once_for_the_test(objective, tmp_path, capsys):
    """But for objectives that depend on the number of rounds: these compile in every rung."""
    with flagsaver.flagsaver(algorithm=["fedavg"], budget=2 * jax.device_count(), objective=objective):
        tune.main()
        rungs = len(tune.Tuning().rungs)
    capsys.readouterr()
    compiled = {
        place.parent.name: sum(row["compiled"] for row in folder.read_rows(place))
        for place in (tmp_path / "out").glob("*/timings.jsonl")
    }
    assert rungs > 1
    once = {"rung_1": 1, **{f"rung_{n}": int(objective == "lsr") for n in range(2, rungs + 1)}, "test": 1}
    assert compiled == once


def test_a_dry_run_tells_runs_rounds_and_time_and_writes_nothing(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(tune, "estimate", lambda asked: "about 3 hours here")
    with flagsaver.flagsaver(dry_run=True):
        tune.main()
    shown = capsys.readouterr().out
    assert "4 points x 4 rounds, then 2 points x 8 rounds" in shown
    assert "evaluated every 2 rounds; of these evaluations the last 1, 2 count" in shown
    assert "each method: 10 runs, 64 rounds; in all 20 runs, 128 rounds" in shown
    assert "qffl: lr=0.01..1:log, q=0.001..15:log" in shown
    assert "about 3 hours here" in shown
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"test_seeds": ["0:3"]}, "--test_seeds and --seeds both have 0; give fresh seeds"),
        ({"test_seeds": ["x"]}, "--test_seeds: 'x' is not a seed"),
        ({"tuning_rounds": 9}, "--tuning_rounds=9 exceeds --rounds=8; give fewer"),
        ({"tuning_eval_every": 9}, "--tuning_eval_every=9 exceeds the 8 rounds of the last rung; give fewer"),
        ({"tuning_rounds": 4, "tuning_eval_every": 5}, "--tuning_eval_every=5 exceeds the 4 rounds"),
        ({"validation": 0.0}, "--validation=0 leaves nothing to choose points on"),
        ({"algorithm": ["fedavg", "fedavgg"]}, "--algorithm=fedavgg is not known"),
        ({"random_seed": -1}, "--random_seed: -1 is not a seed"),
    ],
)
def test_errors(changes, message):
    with flagsaver.flagsaver(**changes), pytest.raises(ValueError, match=message):
        tune.main()


@pytest.mark.parametrize("name", ["budget", "tuning_rounds", "tuning_eval_every"])
def test_counts_are_at_least_one(name):
    with pytest.raises(flags.IllegalFlagValueError):
        flags.FLAGS[name].parse("0")


@pytest.mark.slow
@pytest.mark.usefixtures("shared_programs")
def test_stopped_at_any_chunk_it_is_resumed_to_the_same_bytes(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(tune, "Kept", runner.Kept)

    def files(place):
        return [(place / name).read_bytes() for name in FILES]

    tune.main()
    whole = files(tmp_path / "out")
    told = Progress.__call__
    left = [3] * 20

    def stopping(self, event):
        told(self, event)
        if isinstance(event, runner.Chunk) and left:
            left[0] -= 1
            if not left[0]:
                left.pop(0)
                raise Killed

    monkeypatch.setattr(Progress, "__call__", stopping)
    stops = 0
    with flagsaver.flagsaver(out=str(tmp_path / "stopped")):
        while True:
            try:
                tune.main()
                break
            except Killed:
                stops += 1
    assert stops > 2
    assert files(tmp_path / "stopped") == whole
    capsys.readouterr()
