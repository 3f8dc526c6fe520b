"""`sweep` as a user meets it: its plan, its results, killed and resumed, and what it refuses."""

import re

import pytest
from absl import flags
from absl.testing import flagsaver

from experiments import sweep
from experiments.execution import batches, folder, session
from experiments.reporting import page
from tests.support.folders import both, sweep_folder
from tests.support.runs import MINI, TINY_FLAGS, compilations, kill_at_random, start

pytestmark = pytest.mark.usefixtures("parsed_flags")

POINTS = [(1.0, 83.0, 90.0), (2.0, 12.9, 0.5)]  # tau, mean, variance
TEN = ",".join(map(str, range(1, 11)))
BAD = [
    (["--grid=tau="], "--grid=tau= is not NAME=VALUE"),
    (["--grid=tau"], "--grid=tau is not NAME=VALUE"),
    (["--grid=tau=1,1"], "names a value twice"),
    (["--grid=tau=1", "--grid=tau=2"], "--grid=tau=... is given twice"),
    (["--grid=tua=1"], "nothing is called 'tua'; fedeba_plus takes tau=0.1"),
    (["--grid=tau=fast"], "--grid: tau=fast is not valid for fedeba_plus"),
    (["--grid=tau=-1"], "--grid: tau=-1 is not valid"),
    (["--grid=steps=0.5"], "--steps=0.5 is not valid; steps takes int values"),
    (["--grid=cohort_size=5,80"], "--cohort_size=80 exceeds --clients=50"),
    (["--grid=tau=0.1..1"], "ranges need --random"),
    (["--grid=tau=1..0.1", "--random=3"], "is not a range; write LOW..HIGH"),
    (["--grid=tau=0..inf", "--random=3"], "--grid=tau=0..inf is not a range; write LOW..HIGH"),
    (["--grid=tau=-1e308..1e308", "--random=3"], "is not a range; write LOW..HIGH"),
    (["--grid=tau=0..1:log", "--random=3"], "is not a range; write LOW..HIGH"),
    (["--point=tau"], "--point=tau: 'tau' is not NAME=VALUE"),
    (["--point="], "--point= is not NAME=VALUE"),
    (["--point=tau=1,tau=2"], "--point=tau=1,tau=2: tau is given twice; give it once"),
    (["--point=tau=-1"], "--point: tau=-1 is not valid for fedeba_plus"),
    (["--point=tua=1"], "--point: nothing is called 'tua'"),
    (["--point=tau=1", "--grid=alpha=0,1"], "--point and --grid are both given"),
    (["--random=-1"], "--random=-1 is not valid"),
    (["--random=3"], "--random=3 has nothing to draw from; give --grid=NAME=LOW..HIGH"),
    (["--random=3", "--grid=tau=1..2", "--random_seed=-1"], "--random_seed: -1 is not a seed"),
    (["--batch_runs=-1"], "--batch_runs=-1 is not valid"),
    (["--algorithm=nothing"], "--algorithm=nothing is not known"),
    (["--validation=0"], "--select_on=validation needs a validation split"),
    (["--seeds=3:3"], "must name different seeds"),
    # More than anybody wants: counted, not made.
    (["--seeds=0:2000000000"], "--seeds=0:2000000000 makes 2000000000 runs, more than --max_runs=10000; give fewer"),
    (["--seeds=0:100", "--max_runs=50"], "makes 100 runs, more than --max_runs=50"),
    (["--random=1000000000", "--grid=tau=1..2"], "--random=1000000000 makes 1000000000 runs, more than --max_runs"),
    ([f"--grid={name}={TEN}" for name in ("tau", "alpha", "theta", "lr", "steps")], "--grid makes 100000 runs"),
    (["--seeds=0:2000", f"--grid=tau={TEN}"], "1 algorithms x 10 points x 2000 seeds makes 20000 runs"),
]


@pytest.mark.parametrize(("arguments", "message"), BAD, ids=[" ".join(a) for a, _ in BAD])
def test_bad_sweeps_are_told_in_one_line(arguments, message):
    with flagsaver.flagsaver():
        flags.FLAGS(["sweep", f"--task={MINI}", *arguments])
        with pytest.raises(ValueError) as error:
            sweep.runs()
    assert message in str(error.value)
    assert "\n" not in str(error.value)


@pytest.fixture
def call(monkeypatch):
    """main() with flags, on the suite's devices."""
    monkeypatch.setattr(session, "set_up", lambda: None)

    def run(*arguments):
        with flagsaver.flagsaver():
            flags.FLAGS(["sweep", *TINY_FLAGS, "--algorithm=fedavg", *arguments])
            sweep.main()

    return run


def test_a_dry_run_shows_the_plan_with_its_cost_and_writes_nothing(call, tmp_path, capsys):
    call("--grid=lr=0.1,0.2", "--seeds=0:2", "--dry_run", f"--out={tmp_path / 'out'}")
    first, second = capsys.readouterr().out.splitlines()
    assert first == f"4 runs (4 to do), 1 compilation, varying lr; {tmp_path / 'out'}"
    assert second.startswith("  fedavg: 4 runs, 4 at once, 2 rounds, run map sharded, client map map; ")
    assert " MiB, about " in second
    assert second.endswith(" s for 1 round and an evaluation)")
    assert not (tmp_path / "out").exists()


def test_a_dry_run_trains_few_rounds_however_rare_evaluations_are(call, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(batches, "TIMED", 2)
    changes = ["--rounds=1000", "--eval_every=100000000", "--batch_runs=40", "--seeds=0:2"]
    call(*changes, "--dry_run", f"--out={tmp_path / 'out'}")
    _, group = capsys.readouterr().out.splitlines()
    assert group.startswith("  fedavg: 2 runs, 2 at once, 1000 rounds, ")  # of 40 that were allowed
    assert re.search(r"about \d+ s at most \([\d.]+ s for 2 rounds and an evaluation\)$", group)


def test_a_metric_that_a_useless_model_wins_is_announced(call, tmp_path, capsys, monkeypatch):
    points = [("fedavg", {"tau": tau}, 0, both(mean, mean), variance) for tau, mean, variance in POINTS]
    held = sweep_folder(tmp_path / "held", points)
    monkeypatch.setattr(session, "run", lambda *_, **__: None)
    told = (
        "fedavg: by variance the best setting is fedavg tau=2, with a mean accuracy of 12.9 %; fedavg tau=1 has 83.0 %"
    )
    call("--metric=variance", f"--out={held}")
    assert told in capsys.readouterr().out
    call("--metric=worst5", f"--out={held}")
    assert "beware" not in capsys.readouterr().out  # the best of both has it
    page.report([held], tmp_path / "report", metric="variance", plot=False)
    assert told in " ".join(capsys.readouterr().out.split())
    assert told in (tmp_path / "report" / "report.md").read_text()
    page.report([held], tmp_path / "report", metric="mean", plot=False)
    assert "beware" not in capsys.readouterr().out


def test_many_values_are_one_compilation_and_more_seeds_run_what_is_missing(call, tmp_path, capsys):
    arguments = ["--algorithm=fedeba", "--grid=tau=0.1,0.5,1,5,10", f"--out={tmp_path}"]
    with compilations() as compiled:
        call(*arguments)
    assert len(compiled) == 1
    shown = capsys.readouterr().out
    assert "best validation mean: fedeba tau=" in shown
    assert f"results: {tmp_path}; tables and pictures: python -m experiments.report {tmp_path}" in shown
    assert {path.name for path in tmp_path.iterdir()} == {*folder.OURS, folder.LOCK} - {folder.ROUNDS}
    call(*arguments, "--seeds=0,1")
    assert "10 runs (5 to do), 1 compilation, varying tau" in capsys.readouterr().out
    rows = folder.read_rows(tmp_path / folder.RESULTS)
    assert len({row["run"] for row in rows}) == 10
    assert {row["split"] for row in rows} == {"test", "validation"}


def test_points_and_random_points(call):
    with flagsaver.flagsaver():
        flags.FLAGS(["sweep", f"--task={MINI}", "--point=tau=0.1,alpha=0", "--point=tau=1"])
        assert [(run.hparams["tau"], run.hparams["alpha"]) for run in sweep.runs()] == [(0.1, 0.0), (1.0, 0.9)]
    with flagsaver.flagsaver():
        flags.FLAGS(["sweep", f"--task={MINI}", "--grid=tau=0.01..10:log", "--random=7", "--random_seed=3"])
        first = sweep.runs()
        assert len({run.hparams["tau"] for run in first}) == 7
        assert sweep.runs() == first


@pytest.mark.slow
def test_killed_at_random_moments_ends_with_the_same_bytes(tmp_path):
    """kill -9, twenty times, at moments drawn over the length of a run."""
    arguments = [*TINY_FLAGS, "--rounds=12", "--eval_every=2", "--grid=tau=0.5,1,2", "--seeds=0:2", "--batch_runs=2"]
    names = (folder.MARK, folder.RESULTS, folder.SUMMARY)

    def begin(out):
        cache = f"--compilation_cache={tmp_path / 'cache'}"
        return start("experiments.sweep", *arguments, cache, f"--out={out}", stdout=None, stderr=None)

    def contents(out):
        return {name: (out / name).read_bytes() for name in names}

    whole, *others = kill_at_random(begin, tmp_path, 20, 0)
    for out in others:
        assert contents(out) == contents(whole)
