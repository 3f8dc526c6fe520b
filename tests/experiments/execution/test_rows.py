"""Rows of the result tables: metrics agree with clients, costs with what passed, every model is there."""

import json

import jax.numpy as jnp
import numpy as np
import pytest

from experiments.execution import folder, rows
from experiments.execution.folder import shown
from experiments.execution.judges import Judges
from experiments.reporting import summary
from experiments.reporting.loading import load
from fedeba_jax import metrics
from fedeba_jax.data.dealing import Owned, Pools, Tables
from tests.support.marks import slow_but
from tests.support.runs import execute, final_rows, make

pytestmark = [pytest.mark.xdist_group("rows"), pytest.mark.usefixtures("shared_programs")]
ROUNDS = 2
MODELS = {"ditto": ["global", "personal"], "focus": ["cluster_0", "cluster_1", "personal"], "fedavg": ["global"]}


@pytest.fixture(scope="module")
def plus(tmp_path_factory):
    """Two seeds of FedEBA+, two rounds, with a validation split."""
    out = tmp_path_factory.mktemp("runs") / "plus"
    return out, execute(make(seeds=(0, 1), validation=0.1), out)


def test_results_agree_with_the_clients_and_the_trees_that_passed(plus):
    out, found = plus
    (setting,) = summary.summarize(load([out]))["settings"]
    for i, row in enumerate(final_rows(found)):
        expected = metrics.summarize(np.array(row["client_accuracy"]))
        for key, value in expected.items():
            assert row[key] == pytest.approx(float(value), rel=1e-5)
            written = setting["models"]["global"]["last_evaluation"][key]["values"][i]
            assert written == pytest.approx(float(value), rel=1e-5)
        assert row["loss"] == pytest.approx(np.mean(row["client_loss"]), rel=1e-5)
        assert row["loss_std"] == pytest.approx(np.std(row["client_loss"]), rel=1e-4)
        noise = metrics.sampling_noise(np.array(row["client_accuracy"]), np.array(row["client_examples"]))
        assert row["noise"] == pytest.approx(float(noise), rel=1e-5)
    model = 7_850
    open_round = 4 * 3 * (2 * model + 2)  # bytes up of 3 clients: loss; gradient; delta, loss
    assert setting["communication"]["bytes_up"] == [2 * open_round] * 2
    assert setting["communication"]["additional_cost"] == [0.5, 0.5]
    assert [row["bytes_up"] for row in final_rows(found)] == [2 * open_round] * 2
    assert [row["gate_open"] for row in final_rows(found)] == [2, 2]


def test_a_row_has_everything_that_its_run_depends_on(plus):
    first, *_ = plus[1]
    (run,) = make(validation=0.1)
    assert {key: first[key] for key in ("run", *run.record)} == {"run": run.id, **json.loads(json.dumps(run.record))}
    assert (first["round"], first["rounds"], first["split"], first["model"]) == (1, 2, "test", "global")
    assert (first["status"], first["diverged_round"], first["final"], first["origin"]) == ("ok", None, False, 0)
    assert not {"privacy", "flipped_labels", "client_accuracy", "client_loss", "client_examples"} & set(first)


@pytest.mark.parametrize("name", slow_but(["ditto"], MODELS))
def test_every_result_holds_every_model(tmp_path, name):
    found = execute(make(name, validation=0.1), tmp_path)
    assert [(row["split"], row["model"]) for row in found if row["round"] == ROUNDS] == [
        (split, model) for split in ("test", "validation") for model in MODELS[name]
    ]
    last = {row["model"]: row for row in found if (row["round"], row["split"]) == (ROUNDS, "test")}
    summary.write(tmp_path)
    (setting,) = json.loads((tmp_path / folder.SUMMARY).read_text())["settings"]
    assert set(setting["models"]) == set(MODELS[name])
    for model, row in last.items():
        written = setting["models"][model]["last_evaluation"]["mean"]["mean"]
        assert written == pytest.approx(row["mean"], rel=1e-5)
        assert np.mean(row["client_accuracy"]) == pytest.approx(row["mean"], rel=1e-5)
    assert shown(last) == ("personal" if name == "focus" else "global")


def test_rows_that_count_have_single_clients(tmp_path):
    """After rounds 2, 4, 6 and 7: the mean of the last two is the figure of the run."""
    found = execute(make("fedavg", rounds=7, eval_every=2, validation=0.1), tmp_path)
    assert [row["round"] for row in found if "client_accuracy" in row] == [6, 7]
    assert [row["round"] for row in found if "client_loss" in row] == [7]
    assert all(np.mean(row["client_accuracy"]) == pytest.approx(row["mean"]) for row in found[-4::2])
    (one,) = load([tmp_path])
    assert list(one.client_curve["global"]) == [6, 7]
    np.testing.assert_array_equal(one.client_curve["global"][7], one.client_accuracy["global"])


def test_every_model_of_a_run_is_evaluated(tmp_path):
    """AFL's mean iterate is its global model; the last iterate stands beside it."""
    found = execute(make("afl", "participation=all"), tmp_path)
    assert [(row["round"], row["model"]) for row in found] == [(t, m) for t in (1, 2) for m in ("global", "iterate")]
    assert found[0]["loss"] == found[1]["loss"]  # the mean of one
    assert found[2]["loss"] != found[3]["loss"]


# Text.


def test_text_is_judged_by_targets_and_not_by_sequences(tmp_path):
    """Two clients with two test sequences of four tokens each; of the second client five tokens do not count."""
    rng = np.random.default_rng(0)
    tokens, whose = rng.integers(0, 5, (12, 4)), np.repeat([0, 1], 6)
    y_test = np.array([[1, 2, 3, 4], [0, 1, 2, 3], [1, -1, -1, -1], [2, 0, -1, -1]])
    held = {"x_test": rng.integers(0, 5, (4, 4)), "y_test": y_test, "client_test": np.repeat([0, 1], 2)}
    np.savez(tmp_path / "text.npz", x=tokens, y=np.roll(tokens, -1, axis=1), client=whose, **held)
    from_file = {"dataset": f"custom({tmp_path / 'text.npz'})", "partition": "auto", "model": "auto"}
    sizes = {"clients": 0, "cohort_size": 0, "rounds": 1, "validation": 0.2}
    found = execute(make("fedavg", **from_file, **sizes), tmp_path / "out")
    (row,) = final_rows(found)
    accuracy = np.array(row["client_accuracy"])
    assert row["client_examples"] == [8, 3]
    assert row["noise"] == pytest.approx(float(metrics.sampling_noise(accuracy, np.array([8, 3]))), rel=1e-5)
    assert row["pooled_accuracy"] == pytest.approx((8 * accuracy[0] + 3 * accuracy[1]) / 11, rel=1e-5)
    assert final_rows(found, split="validation")


def test_padding_of_a_batch_is_nobodys_target():
    owned = Owned(None, np.array([[1, 1], [2, 1]]), np.array([[0, 1, 0], [0, 2, 1]]), np.array([[0, 1, 2], [0, 0, 1]]))
    y = np.array([[1, 1, 1], [0, -1, -1], [3, 3, -1]])
    made = rows.judged_on(Pools((None, y), (None, y)), Tables(owned, None, owned, None))
    assert made.keys() == {"test"}
    assert made["test"].tolist() == [[3, 1], [5, 1]]
    labels = rows.judged_on(Pools((None, y[:, 0]), (None, y[:, 0])), Tables(owned, owned, owned, None))
    assert all(labels[split] is owned.num_examples for split in ("test", "validation"))


# Label noise.


@pytest.fixture(scope="module")
def noisy(tmp_path_factory):
    return execute(make("fedavg", label_noise=0.5, seeds=(0, 1)), tmp_path_factory.mktemp("runs") / "noisy")


def test_a_run_tells_how_many_labels_are_wrong(noisy):
    assert {row["settings"]["label_noise"] for row in noisy} == {0.5}
    assert [row["flipped_labels"] for row in final_rows(noisy)] == [5000, 5000]
    assert not any("flipped_labels" in row for row in noisy if not row["final"])


def test_each_seed_has_its_own_noise(noisy, tmp_path):
    """The second of two seeds is bit-equal to the run of that seed alone, and differs from the run without noise."""
    both = final_rows(noisy)
    (one,) = final_rows(execute(make("fedavg", label_noise=0.5, seeds=(1,)), tmp_path / "alone", client_map="map"))
    assert both[1] == one
    assert both[0]["client_loss"] != one["client_loss"]
    (without,) = final_rows(execute(make("fedavg", seeds=(1,)), tmp_path / "clean", client_map="map"))
    assert "flipped_labels" not in without
    assert without["client_loss"] != one["client_loss"]


# Counters, by hand.


def info(**values):
    return {name: np.array(value) for name, value in values.items()}


def test_counters_add_up_and_remember_the_first_bad_round():
    """Two runs, two chunks of two rounds; the second diverges in round 4, has a NaN again in 5 and is fine in 6."""
    costs = {"bytes_down": [[1, 2], [3, 4]], "bytes_up": [[1, 1], [1, 1]], "exchanges": [[2, 1], [1, 1]]}
    costs |= {"weight_max": [[0.5, 0.5], [0.5, 0.5]], "cohort": [[[0, 1], [2, 3]], [[4, 5], [6, 7]]]}
    first = info(finite=[[True, True], [True, True]], gate=[[1, 0], [0, 0]], **costs)
    second = info(finite=[[True, True], [True, False]], gate=[[1, 1], [0, 1]], **costs)
    third = info(finite=[[True, True], [False, True]], gate=[[0, 0], [0, 0]], **costs)
    counters = rows.no_counts(2, 2)
    for start, chunk in ((0, first), (2, second), (4, third)):
        counters = rows.add(counters, chunk, start, cohort_size=10)
    assert counters.bytes_down.tolist() == [90, 210]
    assert counters.bytes_up.tolist() == [60, 60]
    assert counters.exchanges.tolist() == [9, 6]
    assert counters.gate_open.tolist() == [3, 1]
    assert counters.diverged_round.tolist() == [0, 4]
    assert counters.diverged_clients.tolist() == [[0, 0], [6, 7]]


def test_what_attackers_got_after_a_run_diverged_does_not_count():
    """Two runs, two chunks of three rounds; the second diverges in round 2, and its attackers have all the weight."""
    costs = {name: np.ones((2, 3), int) for name in ("bytes_down", "bytes_up", "exchanges")}
    costs |= {"weight_max": np.ones((2, 3)), "cohort": np.zeros((2, 3, 1), int)}
    costs |= {"attacker_weight": [[0.5, 0.0, 0.25], [1.0, 1.0, 1.0]], "excluded": [[0, 1, 0], [1, 2, 4]]}
    first = info(finite=[[True, True, True], [True, False, False]], **costs)
    second = info(finite=np.ones((2, 3), bool), **costs)
    counters = rows.no_counts(2, 1, attacked=True)
    for start, chunk in ((0, first), (3, second)):
        counters = rows.add(counters, chunk, start, cohort_size=1)
    assert counters.diverged_round.tolist() == [0, 2]
    assert counters.attacker_weight.tolist() == [1.5, 2.0]
    assert counters.excluded.tolist() == [2, 3]
    who = Judges(np.array([True, False]), np.array([True, False]))
    told = [rows.attacked(who, {}, np.array([50.0, 50.0]), counters, run, done=6) for run in (0, 1)]
    assert [row["attacker_weight"] for row in told] == [0.25, 1.0], "a share is 1 at most"


def test_a_round_whose_weights_are_no_numbers_has_no_part_in_the_attackers_weight():
    """Two runs whose weights are NaN in the round in which they diverge, the third and the first."""
    costs = {name: np.ones((2, 3), int) for name in ("bytes_down", "bytes_up", "exchanges")}
    costs |= {"weight_max": np.ones((2, 3)), "cohort": np.zeros((2, 3, 1), int)}
    weights = [[0.5, 0.25, np.nan], [np.nan, np.nan, np.nan]]
    chunk = info(finite=[[True, True, False], [False, False, False]], attacker_weight=weights, **costs)
    counters = rows.add(rows.no_counts(2, 1, attacked=True), chunk, 0, cohort_size=1)
    who = Judges(np.array([True, False]), np.array([True, False]))
    told = [rows.attacked(who, {}, np.array([50.0, 50.0]), counters, run, done=3) for run in (0, 1)]
    assert [row["attacker_weight"] for row in told] == [0.375, None]


def test_who_sent_what_is_not_finite_is_named_and_the_cohort_where_nobody_knows():
    costs = {name: np.ones((2, 1), int) for name in ("bytes_down", "bytes_up", "exchanges")}
    costs |= {"weight_max": np.ones((2, 1)), "cohort": [[[6, 7, 8]], [[3, 4, 5]]]}
    chunk = info(finite=[[False], [False]], offenders=[[[False, True, False]], [[False] * 3]], **costs)
    counters = rows.add(rows.no_counts(2, 3), chunk, 0, cohort_size=3)
    assert [[c for c in clients if c >= 0] for clients in counters.diverged_clients.tolist()] == [[7], [3, 4, 5]]
    (row, _) = rows.of_rounds(make("fedavg", seeds=(0, 1)), chunk, np.array([0, 0]), start=0)
    assert "offenders" not in row


def test_a_method_without_a_gate_has_no_count_of_it():
    chunk = info(finite=[[True]], weight_max=[[1.0]], cohort=[[[0]]], bytes_down=[[1]], bytes_up=[[1]], exchanges=[[1]])
    assert rows.add(rows.no_counts(1, 1), chunk, 0, 1).gate_open.tolist() == [-1]


def test_a_round_in_which_all_weights_are_zero_counts_as_diverged():
    chunk = info(
        finite=[[True, True]], weight_max=[[1.0, 0.0]], cohort=[[[3], [5]]],
        bytes_down=[[1, 1]], bytes_up=[[1, 1]], exchanges=[[1, 1]],
    )  # fmt: skip
    counters = rows.add(rows.no_counts(1, 1), chunk, 10, 1)
    assert (counters.diverged_round.tolist(), counters.diverged_clients.tolist()) == ([12], [[5]])


def test_one_row_per_round_counts_the_whole_cohort_and_ends_where_a_run_diverged():
    runs = make("fedavg", seeds=(0, 1))
    chunk = info(finite=[[True, True], [True, False]], bytes_up=[[5, 5], [5, 5]], cohort=[[[1], [2]], [[3], [4]]])
    found = rows.of_rounds(runs, chunk, np.array([0, 0]), start=4)
    assert [(row["run"], row["seed"], row["round"]) for row in found] == [
        (run.id, run.seed, t) for run in runs for t in (5, 6)
    ]
    assert {row["bytes_up"] for row in found} == {5 * 3}
    assert [row["cohort"].tolist() for row in found] == [[1], [2], [3], [4]]
    assert {row["seed"] for row in rows.of_rounds(runs, chunk, np.array([0, 6]), start=6)} == {0}


def test_losses_are_taken_to_float64_before_they_are_squared():
    host = rows.on_host({"loss": jnp.array([1e30, 3e30]), "finite": jnp.array([True])})
    assert host["loss"].dtype == np.float64
    assert host["finite"].dtype == bool
    measured = rows.metrics_of(np.array([50.0, 100.0]), host["loss"], np.array([1, 3]))
    assert measured["loss_std"] == pytest.approx(1e30)
    assert measured["loss_variance"] == pytest.approx(1e60)
    assert measured["pooled_accuracy"] == 87.5
    assert set(measured) == set(metrics.MEASURES) - {"bytes", "additional_cost", "rounds_per_second"}


def test_a_folder_lists_no_rounds_unless_asked_for(plus):
    assert not (plus[0] / folder.ROUNDS).exists()
