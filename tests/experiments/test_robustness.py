"""Methods under attack, from flags to a table: the worst case, the no-attack column, and what is said of a collapse."""

import math

import pytest
from absl.testing import flagsaver

from experiments import robustness
from experiments.execution import folder
from experiments.reporting import robustness as reporting

pytestmark = pytest.mark.usefixtures("parsed_flags")


def test_a_share_is_put_first():
    assert robustness.with_share("mimic", "0.1") == "mimic(0.1)"
    assert robustness.with_share("scaling(1, loss=inflate(add=3))", "0.2") == "scaling(0.2, 1, loss=inflate(add=3))"
    with pytest.raises(ValueError, match=r"--against=mimic\(1 is not an attack"):
        robustness.with_share("mimic(1", "0.2")


def test_every_method_meets_every_attack_and_none():
    given = {
        "method": ["fedavg", "fedeba:median"],
        "against": ["mimic"],
        "shares": ["0.1", "0.2"],
        "taus": ["0.1", "1"],
    }
    with flagsaver.flagsaver(**given, task="fashion_mnist_mini_mlp", seeds=["0", "1"]):
        asked = robustness.runs()
    attacks = {(run.algorithm, str(run.task.aggregator), str(run.task.attack)) for run in asked}
    assert attacks == {
        (*method, attack)
        for method in (("fedavg", "weighted_sum"), ("fedeba", "median"))
        for attack in ("none", "mimic(0.1)", "mimic(0.2)")
    }
    assert len(asked) == 3 * 2 + 3 * 2 * 2  # FedAvg has no tau
    assert len({run.parts[1] for run in asked}) == 4, "shares, taus and seeds share a program"


def row(algorithm, attack, round_, mean, *, tau=1.0, seed=0, **more):
    settings = {"attack": attack, "aggregator": "weighted_sum"}
    common = {
        "run": algorithm,
        "algorithm": algorithm,
        "hparams": {"tau": tau},
        "settings": settings,
        "seed": seed,
        "round": round_,
    }
    metrics = {"mean": mean, "variance": 4.0, "worst5": 1.0}
    return {**common, "split": "test", "model": "global", "status": "ok", **metrics, **more}


@pytest.fixture
def made(tmp_path):
    attacked = {"minority_accuracy": 30.0, "attacker_weight": 0.5}
    rows = [row("a", "none", t, mean) for t, mean in ((1, 50.0), (2, 80.0))]
    rows += [row("a", "mimic(0.2)", t, mean, attacked=attacked) for t, mean in ((1, 50.0), (2, 70.0))]
    rows += [row("a", "inf(0.2, loss=zero)", t, None, status="diverged", attacked=attacked) for t in (1, 2)]
    rows += [row("b", "none", 2, 60.0 + tau, tau=tau) for tau in (1.0, 2.0)]
    rows += [row("b", "mimic(0.2)", 2, 40.0 * tau, tau=tau, attacked=attacked) for tau in (1.0, 2.0)]
    rows += [row("b", "inf(0.2, loss=zero)", 2, 59.0 / tau, tau=tau, attacked=attacked) for tau in (1.0, 2.0)]
    folder.append_rows(tmp_path / folder.RESULTS, rows)
    return tmp_path


def test_the_worst_case_is_the_worst_attack_of_the_best_parameters(made):
    settings = reporting.load(made)
    assert reporting.shares(settings) == [0.0, 0.2]
    a, b = reporting.tuned(settings, 0.2)
    attack, outcome = a.worst(0.2)
    assert attack == "inf(loss=zero)"
    assert math.isnan(outcome.accuracy)
    assert b.parameters == "tau=1"  # 40 % at worst, and 29.5 % with tau=2
    assert b.worst(0.2)[0] == "mimic"
    assert reporting.recovery(b.worst(0.2)[1], b.outcomes["none", 0.0]) is None
    assert reporting.recovery(a.outcomes["mimic", 0.2], a.outcomes["none", 0.0]) == 2  # 60 % or more
    table = reporting.report(made, "title")
    assert "| `a` | 65.0 | n/a | `inf(loss=zero)` |" in table
    assert "| `b tau=1` | 61.0 | 40.0 | `mimic` | 4 | 1.0 | 30.0 | 0.50 | never |" in table


def test_the_heat_map_shows_every_method(made):
    reporting.draw(made, "title", made / "robustness.png")
    assert (made / "robustness.png").stat().st_size > 10_000
