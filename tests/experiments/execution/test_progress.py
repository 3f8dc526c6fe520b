"""What a person sees while runs are trained: lines that never stop for long, figures, the best runs."""

import io
import re
import threading
import types

import pytest
from rich.console import Console

from experiments.execution import progress
from experiments.execution.progress import Lines, Progress
from experiments.execution.runner import Chunk, Plan
from fedeba_jax.metrics import SHOWN
from tests.support.runs import make

LONG = 30.0  # seconds that a test waits at most for what comes in a fraction of one


def plan(runs):
    return Plan(runs, [types.SimpleNamespace(missing=runs)], {})


def chunk(
    runs, means, *, start=0, rounds=1, models=("global",), diverged=(), final=False, compiled=False, split="test"
):
    """One chunk of these runs with these accuracies; the variance is a tenth."""
    rows = [
        {
            "run": run.id, "round": start + rounds, "split": split, "model": model, "final": final,
            "status": "diverged" if run.seed in diverged else "ok",
            **dict.fromkeys(SHOWN, 1.0), "mean": mean, "variance": mean / 10,
        }
        for run, mean in zip(runs, means, strict=True)
        for model in models
    ]  # fmt: skip
    return Chunk(runs, rows, start, rounds, 0.5, compiled)


# Lines.


def test_a_line_comes_at_least_every_quiet_seconds_without_being_told(capsys):
    printed = threading.Semaphore(0)

    def status():
        printed.release()
        return "still at it"

    lines = Lines(status, quiet=0.05, often=1000.0)
    lines.start()
    for _ in range(3):
        assert printed.acquire(timeout=LONG)
    lines.stop()
    told = capsys.readouterr().out
    assert told.count("still at it\n") >= 3
    assert not lines._thread.is_alive()
    lines.tell()
    assert capsys.readouterr().out == "", "often is long: this one can wait"


def test_lines_are_not_too_many_unless_they_cannot_wait(capsys):
    lines = Lines(lambda: "a line", quiet=1000.0, often=1000.0)
    lines.start()
    for _ in range(5):
        lines.tell()
    assert capsys.readouterr().out == ""
    lines.tell(now=True)
    lines.stop()
    assert capsys.readouterr().out == "a line\n"


def test_a_told_line_counts(capsys):
    """The thread keeps silent while lines come anyway."""
    lines = Lines(lambda: "a line", quiet=1000.0, often=0.0)
    lines.start()
    for _ in range(5):
        lines.tell()
    lines.stop()
    assert capsys.readouterr().out.count("a line\n") == 5


def test_the_limits_are_30_and_2_seconds():
    assert (progress.QUIET, progress.OFTEN) == (30.0, 2.0)
    lines = Progress()._lines
    assert (lines._quiet, lines._often) == (30.0, 2.0)


def test_a_chunk_that_takes_long_is_told_while_it_runs(capsys, monkeypatch):
    """Also before the first chunk is done, when the program is still being compiled."""
    monkeypatch.setattr(progress, "OFTEN", 0.0)  # how long a wait must be to be told
    told, shown = threading.Semaphore(0), Progress()
    shown._lines = Lines(lambda: (told.release(), shown.status())[1], quiet=0.05, often=1000.0)
    runs = make("fedavg", rounds=100)
    with shown:
        shown(plan(runs))
        assert told.acquire(timeout=LONG)
        assert told.acquire(timeout=LONG)
        first = capsys.readouterr().out
        shown(chunk(runs, [60.0], rounds=20))
        while told.acquire(blocking=False):
            pass
        assert told.acquire(timeout=LONG)
    assert re.search(r"^round 0/100  compiling; \d+ s into the next rounds$", first, re.MULTILINE)
    then = r"^round 20/100  40.0 rounds/s, 2 s left  acc 60.00 %  var 6.0; \d+ s into the next rounds$"
    assert re.search(then, capsys.readouterr().out, re.MULTILINE)


# What they say.


def last_line(capsys):
    return capsys.readouterr().out.splitlines()[-1]


def test_progress_says_whose_accuracy_it_shows(capsys):
    for name, models, mean in (("focus", ("cluster_0", "personal"), 61.0), ("fedavg", ("global",), 60.0)):
        with Progress() as shown:
            runs = make(name, rounds=10)
            shown(plan(runs))
            shown(chunk(runs, [mean], rounds=10, models=models, final=True))
        whose = "personal " if name == "focus" else ""
        assert (
            last_line(capsys) == f"round 10/10  20.0 rounds/s, 0 s left  {whose}acc {mean:.2f} %  var {mean / 10:.1f}"
        )


def test_figures_of_one_setting_are_means_over_its_seeds(monkeypatch):
    monkeypatch.setattr(progress, "OFTEN", LONG)  # says nothing of how long it waits, however slow the machine
    shown, runs = Progress(), make("fedavg", seeds=(0, 1), rounds=4)
    shown(plan(runs))
    shown._take(chunk(runs, [40.0, 60.0], compiled=True))
    assert shown.status() == "round 2/8  compiling  acc 50.00 %  var 5.0"
    shown._take(chunk(runs, [50.0, 70.0], start=1, diverged=(1,)))
    assert shown.status() == "round 4/8  4.0 rounds/s, 1 s left  acc 50.00 %  var 5.0; 1 diverged"


def test_a_batch_that_diverged_leaves_no_rounds_to_wait_for():
    shown, runs = Progress(), make("fedavg", rounds=100)
    shown(plan(runs))
    shown._take(chunk(runs, [1.0], rounds=10, diverged=(0,), final=True))
    assert shown.status().startswith("round 100/100")


def test_rounds_before_a_resumption_are_done():
    runs = make("fedavg", rounds=10, eval_every=2)
    told = Progress()
    told(plan(runs))
    told(chunk(runs, [50.0], start=6, rounds=2))
    assert told.status().startswith("round 8/10 ")
    told(chunk(runs, [50.0], start=8, rounds=2, final=True))
    assert told.status().startswith("round 10/10 ")


@pytest.mark.parametrize(("metric", "best"), [("mean", "tau=2"), ("variance", "tau=1")])
def test_of_several_settings_the_best_is_named(capsys, metric, best):
    runs = make("fedeba", grid=("tau=1,2,3",), validation=0.1)
    with Progress("validation", metric) as shown:
        shown(plan(runs))
        shown(chunk(runs[:2], [50.0, 60.0], rounds=2, split="validation", final=True))
        named = f"; best validation {metric}: fedeba {best} seed=0"
        assert last_line(capsys) == f"round 4/6  8.0 rounds/s, 0 s left{named}"
        shown(chunk(runs[2:], [99.0], rounds=2, split="validation", diverged=(0,), final=True))
        assert last_line(capsys) == f"round 6/6  6.0 rounds/s, 0 s left{named}; 1 diverged"


def test_the_best_of_a_method_without_a_global_model():
    runs = make("focus", grid=("lr=0.1,0.2",))
    shown = Progress()
    shown(plan(runs))
    shown._take(chunk(runs, [50.0, 60.0], models=("cluster_0", "cluster_1", "personal")))
    assert {row["model"] for _, row in shown._ranked()} == {"personal"}
    assert [shown._label(*ranked) for ranked in shown._ranked()] == [
        "focus lr=0.2 seed=0 (personal)", "focus lr=0.1 seed=0 (personal)"
    ]  # fmt: skip


def test_of_both_models_the_global_one_is_ranked():
    runs = make("ditto", grid=("lam=0,0.5",))
    shown = Progress()
    shown(plan(runs))
    shown._take(chunk(runs, [50.0, 60.0], models=("global", "personal")))
    assert {row["model"] for _, row in shown._ranked()} == {"global"}


def test_a_terminal_has_a_bar_and_a_table_of_the_best(monkeypatch):
    screen = Console(force_terminal=True, highlight=False, width=160, file=io.StringIO(), legacy_windows=False)
    monkeypatch.setattr(progress, "console", screen)
    runs = make("fedeba", grid=(f"tau={','.join(str(t) for t in range(1, 12))}",))
    with Progress() as shown:
        assert shown._lines is None
        shown(plan(runs))
        shown(chunk(runs, [float(run.hparams["tau"]) for run in runs]))
    text = screen.file.getvalue()
    assert "best runs so far, by test mean" in text
    assert "fedeba tau=11 seed=0" in text
    assert "fedeba tau=3 seed=0" not in text, "only the best eight"
    assert "round 11/22" in text
    with Progress() as shown:
        shown(plan(runs[:1]))
        shown(chunk(runs[:1], [60.0], rounds=2, final=True))
    assert "acc 60.00 %" in screen.file.getvalue()
