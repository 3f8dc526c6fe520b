"""What a binary does around the runner: the plan in words, maps by flags, a word when it is stopped."""

import types

import pytest
from absl.testing import flagsaver

from experiments.command.cli import Terminated
from experiments.execution import runner, session
from experiments.execution.batches import How
from experiments.execution.progress import Progress
from experiments.execution.runner import Plan
from tests.support.runs import make

pytestmark = pytest.mark.usefixtures("parsed_flags")


def plan(runs, missing=None):
    left = runs if missing is None else missing
    program = types.SimpleNamespace(run_map="map", client_map="sharded")
    group = types.SimpleNamespace(
        missing=left, algorithm=runs[0].algorithm, batch_runs=4, program=program, task=runs[0].task, hosted=False
    )
    return Plan(runs, [group] if left else [], {})


def test_the_plan_says_what_is_to_do_and_what_varies(tmp_path):
    runs = make("fedavg", grid=("lr=0.1,0.2",), seeds=(0, 1))
    assert session.describe(plan(runs), tmp_path) == f"4 runs (4 to do), 1 compilation, varying lr; {tmp_path}"
    assert session.describe(plan(runs, runs[:1]), tmp_path, in_detail=True).splitlines() == [
        f"4 runs (1 to do), 1 compilation, varying lr; {tmp_path}",
        "  fedavg: 1 run, 4 at once, 2 rounds, run map map, client map sharded",
    ]
    assert session.describe(plan(runs, []), tmp_path) == f"4 runs, done before; {tmp_path}"
    assert "1 run (1 to do), 1 compilation, varying nothing but the seed" in session.describe(plan(runs[:1]), tmp_path)


@pytest.mark.parametrize(
    ("algorithm", "text", "told"),
    [("afl", "participation=all", True), ("aaggff", "variant=S", True), ("afl", "", False), ("fedavg", "", False)],
)
def test_why_a_cohort_is_larger_than_asked_for_is_told(tmp_path, algorithm, text, told):
    note = f"  {algorithm} as asked for uses every client in every round: cohort_size=10"
    assert (note in session.describe(plan(make(algorithm, text)), tmp_path).splitlines()) == told


def test_what_own_data_decided_is_told(tmp_path):
    runs = make("fedavg", dataset="custom(my.npz)", partition="natural", test_split="holdout", model="logistic")
    note = "  custom(my.npz): 10 clients by natural, tested by holdout, model logistic"
    assert note in session.describe(plan(runs), tmp_path).splitlines()


def test_maps_are_those_of_the_flags_and_checked():
    assert session.how(3) == How("auto", "auto", 3)
    with flagsaver.flagsaver(client_map="vmap", run_map="chunked(2)"):
        assert session.how() == How("vmap", "chunked(2)", 0)
    with flagsaver.flagsaver(client_map="fast"), pytest.raises(ValueError) as error:
        session.how()
    assert "--client_map=fast is not valid; give auto" in str(error.value)


@pytest.mark.parametrize("stop", [KeyboardInterrupt, Terminated])
@pytest.mark.parametrize(
    ("overwrite", "evaluated", "told"),
    [
        (False, True, "what is done is in {out}; the same command resumes it"),
        (False, False, "nothing was evaluated yet; it belongs in {out}; the same command resumes it"),
        (True, True, "what is done is in {out}; the same command, without --overwrite, resumes it"),
    ],
)
def test_stopped_it_says_how_to_resume(tmp_path, monkeypatch, stop, overwrite, evaluated, told):
    def execute(*_, **options):
        assert options["overwrite"] == overwrite
        raise stop

    monkeypatch.setattr(runner, "execute", execute)
    if evaluated:
        (tmp_path / "results.jsonl").write_text("")
    with flagsaver.flagsaver(overwrite=overwrite), pytest.raises(stop) as stopped:
        session.run(make("fedavg"), tmp_path, Progress())
    assert type(stopped.value) is stop
    assert str(stopped.value) == told.format(out=tmp_path)
