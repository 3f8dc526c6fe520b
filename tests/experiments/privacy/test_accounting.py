"""What a run may claim: the accountant's vectors, statements of runs, and refusals before anything runs."""

import importlib.util
import json

import jax
import numpy as np
import pytest
from absl import flags
from absl.testing import flagsaver

from experiments import accounting, hparams, points, privacy, report, results, run, run_folder, sweep_run, train
from experiments.program import Seeds
from experiments.tasks import resolve
from fedeba_jax.data.sources import load

MINI = "fashion_mnist_mini_mlp"
TINY = {"clients": 10, "cohort_size": 3, "steps": 2, "batch_size": 10, "rounds": 2, "eval_every": 1}
SIGMAS = (1.0, 2.0, 5.0, 10.0, 50.0)


def four_digits(value):
    return pytest.approx(value, rel=5e-4)


# The accountant


@pytest.mark.parametrize(
    ("sigma", "pld", "rdp"),
    zip(SIGMAS, (41.77, 13.22, 4.108, 1.854, 0.3157), (47.07, 14.24, 4.446, 2.017, 0.3480), strict=True),
)
def test_poisson_vectors_of_examples(sigma, pld, rdp):
    """q = 50/480, 2000 releases, delta 1e-5."""
    assert accounting.poisson(sigma, 50 / 480, 2000, 1e-5) == (four_digits(pld), "PLD")
    assert accounting.poisson(sigma, 50 / 480, 2000, 1e-5, accountant="rdp") == (four_digits(rdp), "RDP")


@pytest.mark.parametrize(("sigma", "pld"), zip(SIGMAS, (32.13, 9.589, 2.781, 1.190, 0.1726), strict=True))
def test_poisson_vectors_of_clients(sigma, pld):
    """q = 0.1, 2000 releases, delta 1e-3."""
    assert accounting.poisson(sigma, 0.1, 2000, 1e-3).value == four_digits(pld)


def test_fixed_size_vectors():
    """10 of 100, replace one. Noise of half the right size, from the sensitivity of removing one, is sigma = 1."""
    assert accounting.fixed_size(2.0, 10, 100, 2000, 1e-3) == (four_digits(28.12), "RDP")
    assert accounting.fixed_size(1.0, 10, 100, 2000, 1e-3).value == four_digits(111.4)


def test_epsilon_falls_with_noise_and_grows_with_the_rest():
    base = accounting.fixed_size(2.0, 10, 100, 100, 1e-3).value
    assert accounting.fixed_size(4.0, 10, 100, 100, 1e-3).value < base
    assert accounting.fixed_size(2.0, 20, 100, 100, 1e-3).value > base
    assert accounting.fixed_size(2.0, 10, 100, 200, 1e-3).value > base
    assert accounting.fixed_size(2.0, 100, 100, 100, 1e-3).value > base  # everybody in every round


def test_a_hopeless_epsilon_is_the_quick_bound():
    assert accounting.poisson(0.1, 0.1, 2000, 1e-5).accountant == "RDP"


def test_a_missing_accountant_is_one_line_with_the_extra(monkeypatch):
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "dp_accounting" else find(name))
    with pytest.raises(ValueError, match=r"pip install 'fedeba_jax\[privacy\]'"):
        privacy.check("fedavg", {"weighting": "uniform"}, resolve(MINI, {"privacy": "client(2)"}))
    for free in ("none", "client(0)"):
        privacy.check("fedavg", {"weighting": "uniform"}, resolve(MINI, {"privacy": free}))


# Statements


def claim(algorithm, mode, text="", *, rounds=2000, counts=(480,) * 100, task="fashion_mnist_mlp", **changes):
    settings = resolve(task, {"privacy": mode, **changes})
    values = hparams.parse(algorithm, text)
    privacy.check(algorithm, values, settings)
    return privacy.statement(algorithm, values, settings, rounds=rounds, counts=counts, sample_seed=0)


def test_a_statement_of_clients_says_everything():
    said = claim("fedavg", "client(2)", "weighting=uniform")
    assert said["epsilon"] == four_digits(28.12)
    expected = {
        "guarantee": True, "mode": "client", "delta": 1e-3, "unit": "client", "relation": "replace one client",
        "sampling": "10 of 100 clients a round, without replacement", "clip": 1.0, "sigma": 2.0, "releases": 2000,
        "released": "the model of every round", "accountant": "RDP", "most_weight": 0.1, "sensitivity": 0.2,
    }  # fmt: skip
    assert {key: said[key] for key in expected} == expected
    assert "trusted" in said["to"]
    assert "epsilon 28.12 at delta 0.001" in said["text"]
    assert "\n" not in said["text"]
    json.dumps(said)


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
    monkeypatch.setattr(privacy, "participations", lambda key, rounds, sizes: np.full(100, 200))
    said = claim("fedavg", "example(2)")
    assert (said["epsilon"], said["accountant"]) == (four_digits(13.22), "PLD")  # 200 rounds of K = 10 steps
    assert (said["releases"], said["unit"]) == (2000, "example")
    assert said["sampling"] == "Poisson, rate 0.1042 a local step"
    assert claim("fedavg", "example(2)", local_epochs=2)["releases"] == 200 * 2 * 10
    everything = claim("fedsgd", "example(10)", rounds=200)
    assert (everything["releases"], everything["sampling"]) == (200, "Poisson, rate 1 a local step")


def test_the_largest_epsilon_counts_where_clients_differ(monkeypatch):
    counts, rounds = [100, 200, 400, 400], [1, 5, 3, 10]
    monkeypatch.setattr(privacy, "participations", lambda key, total, sizes: np.array(rounds))
    said = claim("fedavg", "example(2)", counts=counts, clients=4, cohort_size=2)
    each = [accounting.poisson(2.0, 50 / n, 10 * t, 1e-5).value for n, t in zip(counts, rounds, strict=True)]
    assert said["epsilon"] == pytest.approx(max(each))


def test_pairs_that_another_exceeds_in_both_are_left_out():
    assert privacy._not_dominated({(0.5, 10), (0.25, 50), (0.125, 30), (0.125, 100), (0.5, 5)}) == [
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


def test_of_several_seeds_the_worst_counts():
    low, high = ({"guarantee": True, "epsilon": e} for e in (1.0, 2.0))
    assert privacy.worst([low, high, low]) is high
    nothing = {"guarantee": False, "epsilon": None}
    assert privacy.worst([low, nothing, high]) is nothing


# Refusals


@pytest.fixture(scope="module", autouse=True)
def parsed_flags():
    flags.FLAGS(["test"])


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
            train.settings()
    assert message in str(error.value)
    assert "\n" not in str(error.value)


# Runs


def test_a_run_states_its_privacy(tmp_path):
    task = resolve(MINI, TINY | {"privacy": "example(2)"})
    settings = run.Settings("fedavg", {"weighting": "examples"}, MINI, task, seeds=(0, 1))
    result = run.train(settings, tmp_path, plot=False)
    said = json.loads((tmp_path / "summary.json").read_text())["privacy"]
    assert said == json.loads(json.dumps(run_folder._clean(result.privacy)))
    rounds = run_folder.read_rows(tmp_path / "rounds.jsonl")
    busiest = max(np.bincount([i for row in rounds if row["seed"] == seed for i in row["cohort"]]).max()
                  for seed in (0, 1))  # fmt: skip
    assert said["releases"] == busiest * 2
    assert said["epsilon"] > 0
    assert report.privacy(results.group(results.load([tmp_path]))) == [f"privacy of fedavg: {said['text']}"]


def test_a_sweep_over_noise_is_one_program_and_each_point_states_its_privacy(tmp_path):
    name, values = points.parse_axis("privacy=client(0),client(2),client(10, clip=0.5)")
    wanted = points.make(
        ["fedeba"], points.grid([(name, values)]), task_name=MINI, task=resolve(MINI, TINY), seeds=(0,),
        seeds_of=lambda seed: Seeds(seed, seed, seed), validation=0.0,
    )  # fmt: skip
    assert len(points.grouped(wanted)) == 1
    compiled = []

    def listener(event, duration, **context):
        if event == "/jax/core/compile/backend_compile_duration":
            compiled.append(str(context.get("fun_name")))

    jax.monitoring.register_event_duration_secs_listener(listener)
    try:
        sweep_run.execute(
            sweep_run.Sweep(wanted, load("fashion_mnist_mini"), "auto", "auto", 0), tmp_path, lambda chunk: None
        )
    finally:
        jax.monitoring.unregister_event_duration_listener(listener)
    assert sum("train_chunk" in name for name in compiled) <= 1
    rows = [row for row in run_folder.read_rows(tmp_path / "results.jsonl") if row["final"]]
    assert [row["privacy"]["guarantee"] for row in rows] == [False, True, True]
    assert rows[1]["privacy"]["epsilon"] > rows[2]["privacy"]["epsilon"] > 0
    assert len({row["mean"] for row in rows}) == 3
    lines = report.privacy(results.group(results.load([tmp_path])))
    assert [line.partition(":")[0] for line in lines] == [
        "privacy of fedeba privacy=client(0.0)",
        "privacy of fedeba privacy=client(2.0)",
        "privacy of fedeba privacy=client(10.0, clip=0.5)",
    ]
