"""Methods under attack, from flags to a table: the worst case, the no-attack column, and what is said of a collapse."""

import math

import pytest
from absl.testing import flagsaver

from experiments import robustness
from experiments.reporting import attacked, pictures
from experiments.reporting import robustness as reporting
from experiments.reporting.loading import load
from experiments.reporting.selection import ON_TEST
from tests.support.folders import Run, write_folder

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


def test_a_lie_that_nobody_hears_is_not_run():
    given = {"method": ["fedavg", "term"], "against": ["mimic(loss=zero)", "inf", "mimic", "inf(loss=max_plus(2))"]}
    with flagsaver.flagsaver(**given, shares=["0.2"], taus=["1"], task="fashion_mnist_mini_mlp", seeds=["0"]):
        asked = robustness.runs()
    attacks = {name: [str(run.task.attack) for run in asked if run.algorithm == name] for name in given["method"]}
    assert attacks["fedavg"] == ["none", "mimic(0.2, loss=zero)", "inf(0.2)"]
    assert len(attacks["term"]) == 5


def test_some_methods_are_run_now():
    given = {"method": ["fedavg", "fedeba:median", "fedeba"], "against": ["mimic"], "task": "fashion_mnist_mini_mlp"}
    with flagsaver.flagsaver(**given, only=["fedeba: median"]):
        assert robustness.chosen(robustness.runs()) == {("fedeba", "median")}
    with flagsaver.flagsaver(**given):
        assert robustness.chosen(robustness.runs()) == {
            ("fedavg", "weighted_sum"), ("fedeba", "median"), ("fedeba", "weighted_sum"),
        }  # fmt: skip
    with flagsaver.flagsaver(**given, only=["term"]), pytest.raises(ValueError, match="--only=term is not among"):
        robustness.chosen(robustness.runs())


@pytest.mark.parametrize(
    ("attack", "left"),
    [
        ("mimic(loss=zero)", "mimic"),
        ("mimic(loss=zero, drawn=true)", "mimic(drawn=true)"),
        ("scaling(0.2, 1, loss=inflate(add=3, factor=2), drawn=true)", "scaling(0.2, 1, drawn=true)"),
        ("mimic", "mimic"),
    ],
)
def test_a_lie_is_taken_out_of_an_attack(attack, left):
    assert attacked.without_lie(attack) == left


def test_it_has_the_figures_of_the_attack_without_it(tmp_path):
    runs = [run(name, attack, 70.0) for name in ("fedavg", "term") for attack in ("none", "mimic(0.2, loss=zero)")]
    runs += [run("term", "mimic(0.2)", 60.0), run("term", "inf(0.2)", 50.0)]
    fedavg, term = settings_of(tmp_path / "runs", runs)
    assert {attack: one.accuracy for attack, one in fedavg.at(0.2).items()} == {"mimic": 70.0, "mimic(loss=zero)": 70.0}
    assert [*term.at(0.2)] == ["mimic(loss=zero)", "mimic", "inf"], "it hears lies: what was not run is not there"


UNDER_ATTACK = {"minority_accuracy": 30.0, "attacker_weight": 0.5, "excluded": None, "attackers": [3], "minority": [1]}


def run(algorithm, attack, *means, tau=1.0, validation=(), **others):
    """Four clients with the mean accuracy after the last round, unless `clients` says otherwise; the fourth attacks."""
    settings = {"attack": attack, "aggregator": "weighted_sum", "cohort_size": 2}
    said = {"attacked": None if attack == "none" else UNDER_ATTACK, "clients": (0.0, 0.0, 0.0, 0.0)} | others
    by_split = {"test": means} | ({"validation": validation} if validation else {})
    figures = {split: [(mean, 4.0) for mean in own] for split, own in by_split.items()}
    return Run(algorithm, figures, {"tau": tau}, settings=settings, **said)


def settings_of(folder, held, **others):
    return attacked.settings_of(load([write_folder(folder, held, **others)]))


@pytest.fixture
def made(tmp_path):
    runs = [run("a", "none", 50.0, 80.0), run("a", "mimic(0.2)", 50.0, 76.0)]
    runs += [run("a", "inf(0.2, loss=zero)", 1.0, 1.0, diverged=1)]
    runs += [run("b", "none", 60.0 + tau, tau=tau) for tau in (1.0, 2.0)]
    runs += [run("b", "mimic(0.2)", 40.0 * tau, tau=tau) for tau in (1.0, 2.0)]
    runs += [run("b", "inf(0.2, loss=zero)", 59.0 / tau, tau=tau) for tau in (1.0, 2.0)]
    return settings_of(tmp_path / "runs", runs)


def test_the_worst_case_is_the_worst_attack_of_the_best_parameters(made):
    assert attacked.shares(made) == [0.0, 0.2]
    a, b = attacked.tuned(made, 0.2)
    attack, outcome = a.worst(0.2)
    assert attack == "inf(loss=zero)"
    assert math.isnan(outcome.accuracy)
    assert b.parameters == "tau=1"  # 40 % at worst, and 29.5 % with tau=2
    assert b.worst(0.2)[0] == "mimic"
    assert attacked.recovery(b.worst(0.2)[1], b.without) is None
    assert attacked.recovery(a.outcomes["mimic", 0.2], a.without) == 4  # 75 % or more
    table = reporting.report(made, "title")
    assert "| `a` | 80.0 | diverged | `inf(loss=zero)` |" in table
    assert "| `a` | `inf(loss=zero)` | 80.0 → diverged | 0 → n/a |" in table
    assert "| `b tau=1` | 61.0 | 40.0 | `mimic` | 4 | 30.0 | 30.0 | 0.50 | never |" in table


def test_the_table_says_that_parameters_were_chosen_on_test_data(made):
    assert ON_TEST in reporting.report(made, "title")
    nothing_to_choose = [setting for setting in made if setting.parameters != "tau=2"]
    assert ON_TEST not in reporting.report(nothing_to_choose, "title")


@pytest.mark.parametrize(
    ("means", "expected"),
    [
        ((50.0, 76.0, 80.0, 80.0), 6),  # 63 % after round 4
        ((76.0, 50.0, 80.0, 75.0), 8),  # the fall after round 2 counts
        ((80.0, 80.0, 80.0, 69.0), None),  # it ends too low
        ((80.0, 80.0, 80.0, 74.0), 2),  # one evaluation alone is no fall
        ((90.0, 80.0, 75.0, 76.0), 2),
    ],
)
def test_who_falls_back_has_not_recovered(tmp_path, means, expected):
    """Without an attack the run ends with 80 %: the goal is 75 %, of the mean of two evaluations."""
    runs = [run("a", "none", 50.0, 60.0, 80.0, 80.0), run("a", "mimic(0.2)", *means)]
    (found,) = settings_of(tmp_path / "runs", runs)
    assert attacked.recovery(found.outcomes["mimic", 0.2], found.without) == expected


def test_a_run_that_diverged_has_not_recovered(made):
    a = made[0]
    assert attacked.recovery(a.outcomes["inf(loss=zero)", 0.2], a.without) is None


def test_the_drop_is_that_of_the_same_clients(tmp_path):
    """Without the attack clients have 60, 70, 80 and 90 %: 70 % without the fourth, who attacks, not 75 %."""
    spread = {"clients": (-15.0, -5.0, 5.0, 15.0)}
    runs = [run("a", "none", 50.0, 75.0, **spread), run("a", "mimic(0.2)", 50.0, 64.0)]
    (found,) = settings_of(tmp_path / "runs", runs)
    pairs = attacked.same_clients(found.at(0.2)["mimic"], found.without)
    assert pairs == {
        "mean": (pytest.approx(70), 64.0),
        "variance": (pytest.approx(200 / 3), 4.0),
        "worst5": (pytest.approx(60), 54.0),
        "minority_accuracy": (pytest.approx(70), 30.0),
    }
    assert attacked.recovery(found.at(0.2)["mimic"], found.without) is None, "65 % are near 70 %"
    assert "| `a` | `mimic` | 70.0 → 64.0 | 67 → 4 | 60.0 → 54.0 | 70.0 → 30.0 |" in reporting.report([found], "title")


def test_the_drop_is_that_of_the_last_evaluations(tmp_path):
    """Of six evaluations the last three count, with and without the attack."""
    spread = {"clients": (-15.0, -5.0, 5.0, 15.0)}
    runs = [run("a", "none", 1.0, 2.0, 3.0, 65.0, 75.0, 85.0, **spread)]
    runs += [run("a", "mimic(0.2)", 1.0, 2.0, 3.0, 60.0, 64.0, 71.0)]
    (found,) = settings_of(tmp_path / "runs", runs)
    pairs = attacked.same_clients(found.at(0.2)["mimic"], found.without)
    assert pairs["mean"] == (pytest.approx(70), pytest.approx(65))
    assert attacked.recovery(found.at(0.2)["mimic"], found.without) == 12, "65 % or more"
    assert reporting.OLDER not in reporting.report([found], "title")


def test_older_rows_have_single_clients_after_the_last_round_alone(tmp_path):
    spread = {"clients": (-15.0, -5.0, 5.0, 15.0)}
    runs = [run("a", "none", 1.0, 2.0, 65.0, 75.0, **spread), run("a", "mimic(0.2)", 1.0, 2.0, 60.0, 64.0)]
    series = load([write_folder(tmp_path / "runs", runs)])
    older = [one._replace(client_curve={m: {8: own[8]} for m, own in one.client_curve.items()}) for one in series]
    (found,) = attacked.settings_of(older)
    assert attacked.same_clients(found.at(0.2)["mimic"], found.without)["mean"] == (pytest.approx(70), 64.0)
    assert reporting.OLDER in reporting.report([found], "title")


def test_a_run_that_diverged_near_its_end_is_not_taken_for_an_older_one(tmp_path):
    runs = [run("a", "none", 60.0, 65.0, 75.0, 75.0), run("a", "mimic(0.2)", 60.0, 64.0, 70.0, 1.0, diverged=7)]
    assert reporting.OLDER not in reporting.report(settings_of(tmp_path / "runs", runs), "title")


def test_seeds_are_paired(tmp_path):
    """Seed 1 has no run without the attack: it does not count, nor is it known whether it recovered."""
    runs = [run("a", "none", 80.0), run("a", "mimic(0.2)", 60.0), run("a", "mimic(0.2)", 20.0, seed=1)]
    (found,) = settings_of(tmp_path / "runs", runs)
    assert attacked.same_clients(found.at(0.2)["mimic"], found.without)["mean"] == (80.0, 60.0)
    assert math.isnan(attacked.recovery(found.at(0.2)["mimic"], found.without))


def test_parameters_are_chosen_on_validation_data_where_there_is_some(tmp_path):
    runs = [run("b", "none", 60.0, tau=tau, validation=[60.0]) for tau in (1.0, 2.0)]
    runs += [run("b", "mimic(0.2)", 50.0 / tau, tau=tau, validation=[20.0 * tau]) for tau in (1.0, 2.0)]
    made = settings_of(tmp_path / "runs", runs)
    (b,) = attacked.tuned(made, 0.2)
    assert b.parameters == "tau=2"
    table = reporting.report(made, "title")
    assert "| `b tau=2` | 60.0 | 25.0 | `mimic` |" in table
    assert reporting.ON_VALIDATION in table
    assert ON_TEST not in table


def test_where_all_parameters_diverge_those_that_are_best_without_an_attack_are_shown(tmp_path):
    runs = [run("b", "none", 60.0 + tau, tau=tau) for tau in (1.0, 2.0)]
    runs += [run("b", "mimic(0.2)", 1.0, tau=tau, diverged=1) for tau in (1.0, 2.0)]
    (b,) = attacked.tuned(settings_of(tmp_path / "runs", runs), 0.2)
    assert b.parameters == "tau=2"


def test_what_collapses_is_told(tmp_path):
    """The first three clients have 60 % without the attack: 31 % is more than half of that, 29 % less."""
    runs = [run("a", "none", 60.0), run("a", "mimic(0.1)", 31.0), run("a", "inf(0.1)", 29.0)]
    runs += [run("a", "mimic(0.2)", 29.0), run("a", "inf(0.2)", 1.0, diverged=1), run("a", "gaussian(0.2)", 60.0)]
    runs += [run("b", "none", 60.0), run("b", "mimic(0.1)", 60.0)]
    table = reporting.report(settings_of(tmp_path / "runs", runs), "title")
    assert "| method | f = 10 % | f = 20 % |" in table
    assert "| `a` | 1 of 2: inf | 2 of 3: mimic, inf |" in table
    assert "| `b` | none of 1 | not run |" in table
    assert f"- {reporting.COLLAPSED}\n" in table


def test_what_was_left_out_is_told(tmp_path):
    """Two rounds of two clients: one of four replies."""
    runs = [run("a", "none", 80.0), run("a", "inf(0.2)", 70.0, attacked=UNDER_ATTACK | {"excluded": 1})]
    table = reporting.report(settings_of(tmp_path / "runs", runs), "title")
    assert "left out because they were not finite, of all replies: `a` under `inf` 25.0 % at f = 20 %" in table


@pytest.fixture
def incomplete(tmp_path):
    """Of `a` all, of `b` one attack of two with one seed of two, of `c` no run without an attack, of `d` nothing."""
    attacks = ("none", "mimic(0.2)", "inf(0.2)")
    runs = [run("a", attack, 80.0, seed=seed) for attack in attacks for seed in (0, 1)]
    runs += [run("b", "none", 70.0), run("b", "mimic(0.2)", 60.0), run("c", "mimic(0.2)", 50.0, seed=1)]
    runs += [run("c", "inf(0.2)", 10.0, seed=1, planned=4)]  # not finished
    records = {f"2{i}": {"algorithm": name, "settings": {"aggregator": "median"}} for i, name in enumerate("bd")}
    return settings_of(tmp_path / "incomplete", runs, planned_runs=30, records=records)


def test_an_incomplete_study_says_what_is_missing(incomplete):
    table = reporting.report(incomplete, "title")
    assert "| `b` | 70.0 | ≤ 60.0 | `mimic` |" in table
    assert "| `c` | n/a | ≤ 50.0 | `mimic` |" in table
    assert "| `a` | 80.0 | 80.0 |" in table
    for note in (
        reporting.AT_MOST,
        "not complete: 9 of 30 runs are done",
        "not begun: `b with median`, `d with median`",
        "not run yet: `b` under `inf` (f = 20 %)",
        "not run yet: `c` without attack, under `inf` (f = 20 %)",
        "fewer seeds than others: `b` without attack, under `mimic` (f = 20 %)",
    ):
        assert f"- {note}\n" in table


def test_methods_stand_in_the_order_of_the_plan_not_in_that_in_which_they_were_run(tmp_path):
    records = {f"2{i}": {"algorithm": name, "settings": {"aggregator": "weighted_sum"}} for i, name in enumerate("cab")}
    held = [run(name, "none", 80.0) for name in "abc"]
    made = settings_of(tmp_path / "runs", held, planned_runs=30, records=records)
    assert [setting.method for setting in made] == ["c", "a", "b"]


def test_a_complete_study_says_nothing_of_that(made):
    table = reporting.report(made, "title")
    assert "not run yet" not in table
    assert "≤" not in table


def test_a_study_without_attacks_so_far_has_an_empty_table(tmp_path):
    made = settings_of(tmp_path / "runs", [run("a", "none", 80.0)], planned_runs=3)
    assert "- not complete: 1 of 3 runs are done" in reporting.report(made, "title")


def test_the_heat_map_has_the_parameters_of_the_tables(made, incomplete, tmp_path, monkeypatch):
    drawn = []
    monkeypatch.setattr(pictures, "heat_tables", lambda panels, rows, *_: drawn.append((*panels.values(), rows)))
    more = [run("b", "mimic(0.1)", 50.0 * tau, tau=tau) for tau in (1.0, 2.0)]
    more += [run("b", "none", 60.0 + tau, tau=tau) for tau in (1.0, 2.0)]
    more += [run("b", "mimic(0.2)", 40.0 / tau, tau=tau) for tau in (1.0, 2.0)]
    reporting.draw(settings_of(tmp_path / "two", more), "title", tmp_path / "none.png")
    (_, worst), (attacks, each), rows = drawn.pop()
    assert worst == [[(62.0, "\ntau=2"), (100.0, "\ntau=2"), (40.0, "\ntau=1")]]
    assert (attacks, each, rows) == (["mimic"], [[(40.0, "")]], ["b"])
    reporting.draw(incomplete, "title", tmp_path / "none.png")
    (_, worst), (_, each), rows = drawn.pop()
    assert rows == ["c", "b", "a"], "from below"
    assert [cells[0][1] for cells in worst] == ["not run", "", ""]
    assert [cells[1][1] for cells in each] == ["not run", "not run", ""]


def test_the_heat_map_tells_what_diverged_from_what_was_not_run(made, incomplete):
    attack = made[0].at(0.2)["inf(loss=zero)"]
    assert reporting._cell(attack) == (-math.inf, "div.")
    assert str(reporting._cell(incomplete[1].at(0.2).get("inf"))) == "(nan, 'not run')"


def test_the_heat_map_shows_every_method(made, tmp_path):
    reporting.draw(made, "title", tmp_path / "robustness.png")
    assert (tmp_path / "robustness.png").stat().st_size > 10_000


def test_the_heat_map_has_room_for_long_names(tmp_path):
    """matplotlib warns where a layout leaves no room, and warnings are errors here."""
    attacks = ("none", "inner_product_manipulation(0.2, 0.25, loss=inflate(add=1000, factor=1000), drawn=true)")
    reporting.draw(settings_of(tmp_path / "runs", [run("a", one, 50.0) for one in attacks]), "t", tmp_path / "r.png")
    assert (tmp_path / "r.png").exists()


def test_the_heat_map_has_lies_beside_what_they_go_with():
    attacks = ["mimic", "inf(loss=zero)", "mimic(loss=zero)", "inf", "mimic(2)"]
    assert reporting._lies_beside(attacks) == ["mimic", "mimic(loss=zero)", "inf(loss=zero)", "inf", "mimic(2)"]


@pytest.mark.parametrize(
    "wrong",
    [
        [1],
        {"minority_accuracy": 30.0},
        UNDER_ATTACK | {"minority_accuracy": "30"},
        UNDER_ATTACK | {"attackers": None},
        UNDER_ATTACK | {"attackers": [[3]]},
        UNDER_ATTACK | {"minority": 3},
        UNDER_ATTACK | {"excluded": "1"},
    ],
)
def test_what_rows_say_of_attacks_is_checked(tmp_path, wrong):
    folder = write_folder(tmp_path / "runs", [run("a", "mimic(0.2)", 50.0)._replace(attacked=wrong)])
    with pytest.raises(ValueError, match="is not as this version of fedeba_jax writes it"):
        load([folder])
