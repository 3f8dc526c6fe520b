"""What a run may claim about privacy, and what is refused before anything runs."""

import importlib.util
import json

import numpy as np
import pytest
from absl import flags
from absl.testing import flagsaver

from experiments import train
from experiments.command import grids, hparams
from experiments.execution import folder
from experiments.privacy import accounting, statements
from experiments.reporting import loading, page, summary
from tests.support.runs import MINI, execute, final_rows, make

pytestmark = pytest.mark.usefixtures("parsed_flags")


def four_digits(value):
    return pytest.approx(value, rel=5e-4)


def claim(algorithm, mode, text="", *, rounds=2000, counts=(480,) * 100, task="fashion_mnist_mlp", **changes):
    (run,) = grids.make(
        [algorithm], [hparams.pairs(text)], task_name=task, changes={"privacy": mode, **changes}, seeds=(0,)
    )
    return statements.statement(run, rounds=rounds, counts=counts)


def test_a_statement_of_clients_says_everything():
    said = claim("fedavg", "client(2)", "weighting=uniform")
    assert said["epsilon"] == four_digits(28.12)
    expected = {
        "guarantee": True, "mode": "client", "delta": 1e-3, "unit": "client", "relation": "replace one client",
        "sampling": "10 of 100 clients in each round, without replacement", "clip": 1.0, "sigma": 2.0, "releases": 2000,
        "released": "the model of every round", "accountant": "RDP", "most_weight": 0.1, "sensitivity": 0.2,
    }  # fmt: skip
    assert {key: said[key] for key in expected} == expected
    assert "trusted" in said["to"]
    assert "epsilon 28.12 at delta 0.001" in said["text"]
    assert "\n" not in said["text"]
    json.dumps(said)


def test_strata_are_accounted_for_one_by_one():
    """A client is in one of them, which draws the same share of its clients."""
    said = claim("fedavg", "client(2)", "weighting=uniform", sampling="stratified(5)")
    assert said["sampling"] == "2 of 20 clients of each stratum in each round, without replacement"
    assert said["epsilon"] == four_digits(28.12)


@pytest.mark.parametrize(
    ("algorithm", "text", "most"),
    [
        ("fedavg", "weighting=examples", 0.2),
        ("fedeba", "tau=1", 0.2),
        ("fedeba", "tau=5", np.exp(2.3 / 5) / (9 + np.exp(2.3 / 5))),  # clipped losses bound it further
        ("fedeba", "tau=anneal(5, 0.01)", 0.2),
        ("prac_fedeba_plus", "tau=0.1", 0.2),
    ],
)
def test_the_sensitivity_is_that_of_the_weights_used(algorithm, text, most):
    said = claim(algorithm, "client(2, clip=0.5)", text)
    assert said["most_weight"] == pytest.approx(most, rel=1e-5)
    assert said["sensitivity"] == pytest.approx(2 * most * 0.5, rel=1e-5)
    assert said["epsilon"] == four_digits(28.12)  # noise grows with the sensitivity


def test_a_statement_of_examples_counts_what_the_busiest_client_sent(monkeypatch):
    monkeypatch.setattr(statements, "participations", lambda *_: np.full(100, 200))
    said = claim("fedavg", "example(2)")
    assert (said["epsilon"], said["accountant"]) == (four_digits(13.22), "PLD")  # 200 rounds of K = 10 steps
    assert (said["releases"], said["unit"]) == (2000, "example")
    assert said["sampling"] == "Poisson, rate 0.1042 in each local step"
    assert claim("fedavg", "example(2)", local_epochs=2)["releases"] == 200 * 2 * 10
    everything = claim("fedsgd", "example(10)", rounds=200)
    assert (everything["releases"], everything["sampling"]) == (200, "Poisson, rate 1 in each local step")


def test_the_largest_epsilon_counts_where_clients_differ(monkeypatch):
    counts, rounds = [100, 200, 400, 400], [1, 5, 3, 10]
    monkeypatch.setattr(statements, "participations", lambda *_: np.array(rounds))
    said = claim("fedavg", "example(2)", counts=counts, clients=4, cohort_size=2)
    each = [accounting.poisson(2.0, 50 / n, 10 * t, 1e-5).value for n, t in zip(counts, rounds, strict=True)]
    assert said["epsilon"] == pytest.approx(max(each))


def test_pairs_that_another_exceeds_in_both_are_left_out():
    assert statements._not_dominated({(0.5, 10), (0.25, 50), (0.125, 30), (0.125, 100), (0.5, 5)}) == [
        (0.5, 10), (0.25, 50), (0.125, 100)
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("algorithm", "mode", "reason"),
    [
        ("fedavg", "none", "nothing is clipped or noised"),
        ("fedeba_plus", "paper(2)", "noise injection"),
        ("fedavg", "client(0)", "sigma = 0"),
        ("fedavg", "example(0)", "sigma = 0"),
        ("fedavg", "example(2, delta=0.01)", "delta is above 1/48000"),
    ],
)
def test_no_epsilon_where_none_can_be_claimed(algorithm, mode, reason):
    said = claim(algorithm, mode)
    assert (said["guarantee"], said["epsilon"]) == (False, None)
    assert said["text"].startswith("no guarantee: ")
    assert reason in said["text"]
    assert "epsilon" not in said["text"]


def test_a_claim_without_an_accountant_is_an_error_and_no_claim_is_none(monkeypatch):
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "dp_accounting" else find(name))
    with pytest.raises(ValueError, match=r"pip install 'fedeba_jax\[privacy\]'"):
        claim("fedavg", "client(3.125)", "weighting=uniform")
    for free in ("none", "client(0)"):
        assert claim("fedavg", free, "weighting=uniform")["epsilon"] is None


# Refusals


BAD = [
    (["--privacy=client"], "--privacy=client lacks sigma"),
    (["--privacy=client(-1)"], "sigma=-1 is not valid for client; give sigma (>= 0)"),
    (["--privacy=client(2, weight_cap=0.5)"], "weight_cap=0.5 is not valid"),
    (["--privacy=client(2, delta=0)"], "delta=0 is not valid"),
    (["--privacy=dp(2)"], "--privacy=dp(2) is not known; give one of none(), paper(sigma, clip)"),
    (["--privacy=client(2)"], "--algorithm=fedeba_plus is not possible: what one client can change"),
    (["--privacy=example(2)"], "(losses, gradients of all their data), so no epsilon could be claimed"),
    (["--privacy=paper(2)", "--algorithm=fedavg"], "alignment variable, which this method does not have"),
    (["--privacy=paper(2)", "--batch_size=0"], "give --batch_size"),
    (["--privacy=paper(2, clip=inf)"], "give a finite clip"),
    (["--privacy=client(2)", "--algorithm=prac_fedeba_plus", "--hparams=theta=20"], "give theta=0 (open) or theta=90"),
    (["--privacy=client(2)", "--algorithm=prac_fedeba_plus", "--local_epochs=1"], "unequal numbers of steps"),
    (["--privacy=client(2, delta=0.1)", "--algorithm=fedavg"], "delta=0.1 lets one of 50 clients be published"),
]


@pytest.mark.parametrize(("arguments", "message"), BAD, ids=[" ".join(a) for a, _ in BAD])
def test_what_cannot_be_kept_is_refused_before_anything_runs(arguments, message):
    with flagsaver.flagsaver():
        flags.FLAGS(["train", f"--task={MINI}", *arguments])
        with pytest.raises(ValueError) as error:
            train.runs()
    assert message in str(error.value)
    assert "\n" not in str(error.value)


# Runs


def test_a_run_states_its_privacy(tmp_path):
    rows = execute(make("fedavg", privacy="example(2)", seeds=(0, 1)), tmp_path, log_rounds=True)
    summary.write(tmp_path)
    (setting,) = json.loads((tmp_path / "summary.json").read_text())["settings"]
    said = setting["privacy"]
    claims = [row["privacy"] for row in final_rows(rows)]
    assert said == max(claims, key=lambda claimed: claimed["epsilon"])  # the worst of several seeds
    rounds = folder.read_rows(tmp_path / "rounds.jsonl")
    busiest = max(np.bincount([i for row in rounds if row["seed"] == seed for i in row["cohort"]]).max()
                  for seed in (0, 1))  # fmt: skip
    assert said["releases"] == busiest * 2
    assert said["epsilon"] > 0
    assert not any("privacy" in row for row in rows if not row["final"])
    told = page.privacy(loading.group(loading.load([tmp_path])))
    assert told == [f"privacy of fedavg: {text}" for text in dict.fromkeys(claimed["text"] for claimed in claims)]
    assert f"privacy of fedavg: {said['text']}" in told
