"""A batch of runs as compiled programs: compiled once, and the same results however runs are batched."""

import numpy as np
import pytest

from experiments.execution import folder, program
from experiments.reporting import loading, page
from fedeba_jax import ALGORITHMS
from fedeba_jax.method import supposed_rule
from tests.support.marks import slow_but
from tests.support.runs import compilations, execute, final_rows, make


def test_a_run_compiles_its_chunk_once(tmp_path):
    with compilations() as compiled:
        execute(make("fedavg", rounds=4), tmp_path)
    assert len(compiled) == 1


def test_a_last_chunk_that_is_shorter_is_a_program_of_its_own(tmp_path):
    with compilations() as compiled:
        rows = execute(make("fedavg", rounds=5, eval_every=2), tmp_path)
    assert [row["round"] for row in rows] == [2, 4, 5]
    assert len(compiled) == 2


def test_separate_seeds_change_separate_things(tmp_path):
    """As one batch: they are what the runs of a program may differ in."""
    given = [{}, {"init_seed": 5}, {"sample_seed": 5}, {"data_seed": 5}]
    runs = [run for changes in given for run in make("fedavg", **changes)]
    rows = execute(runs, tmp_path, log_rounds=True)
    rounds = folder.read_rows(tmp_path / "rounds.jsonl")
    cohorts = [[row["cohort"] for row in rounds if row["run"] == run.id] for run in runs]
    losses = [next(row["loss"] for row in rows if row["run"] == run.id) for run in runs]
    base, init, sample, data = range(4)
    assert cohorts[init] == cohorts[base]
    assert losses[init] != losses[base]
    assert cohorts[sample] != cohorts[base]
    assert cohorts[data] == cohorts[base]
    assert losses[data] != losses[base]


def test_cohorts_by_strata_are_the_same_on_any_number_of_devices(tmp_path):
    runs = make("ditto", clients=12, cohort_size=4, sampling="stratified(4)", rounds=2, eval_every=2)
    rows = {name: execute(runs, tmp_path / name, log_rounds=True, client_map=name) for name in ("map", "sharded")}
    one, two = (folder.read_rows(tmp_path / name / "rounds.jsonl") for name in rows)
    assert [row["cohort"] for row in one] == [row["cohort"] for row in two]
    assert [[client // 3 for client in row["cohort"]] for row in one] == [[0, 1, 2, 3]] * 2
    losses = [[row["loss"] for row in found] for found in rows.values()]
    np.testing.assert_allclose(*losses, rtol=1e-3)


@pytest.mark.parametrize(("aggregator", "asked"), [("weighted_sum", True), ("median", False)])
def test_attacks_that_search_know_the_rule_or_the_guards_of_the_method(tmp_path, monkeypatch, aggregator, asked):
    found = []
    monkeypatch.setattr(program, "supposed_rule", lambda *given: found.append(supposed_rule(*given)) or found[-1])
    runs = make("robust_fedeba_plus", attack="opt_alie(0.4)", aggregator=aggregator, rounds=1)
    execute(runs, tmp_path)
    assert [rule.name for rule in found] == ["agreeing"] * asked


# One exchange, two, clients' own models, several models, a memory by client; others differ in the library alone.
A_FEW = ("fedavg", "fedeba_plus", "ditto", "focus", "afl")


@pytest.mark.parametrize("name", slow_but(A_FEW, ALGORITHMS))
def test_every_algorithm_trains(name, tmp_path):
    rows = execute(make(name, rounds=1), tmp_path)
    assert {"global", "personal"} & {row["model"] for row in rows}
    assert all(0 <= row["mean"] <= 100 for row in rows)
    assert {row["status"] for row in rows} == {"ok"}


def test_ragged_clients_and_local_epochs_train(tmp_path):
    runs = make("prac_fedeba_plus", partition="dirichlet", local_epochs=1, rounds=1)
    (row,) = execute(runs, tmp_path)
    assert row["settings"]["test_split"] == "holdout"
    assert row["status"] == "ok"


def test_a_sweep_over_noise_is_one_program_and_each_run_states_its_privacy(tmp_path):
    runs = make("fedeba", grid=("privacy=client(0),client(2),client(10, clip=0.5)",))
    with compilations() as compiled:
        rows = final_rows(execute(runs, tmp_path))
    assert len(compiled) <= 1
    assert [row["privacy"]["guarantee"] for row in rows] == [False, True, True]
    assert rows[1]["privacy"]["epsilon"] > rows[2]["privacy"]["epsilon"] > 0
    assert len({row["mean"] for row in rows}) == 3
    assert np.isfinite([row["loss"] for row in rows]).all()
    lines = page.privacy(loading.group(loading.load([tmp_path])))
    assert [line.partition(":")[0] for line in lines] == [
        "privacy of fedeba privacy=client(0.0)",
        "privacy of fedeba privacy=client(2.0)",
        "privacy of fedeba privacy=client(10.0, clip=0.5)",
    ]
