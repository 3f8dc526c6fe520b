"""The binary `reproduce`: it runs what is missing, shows it beside the paper, lists what there is, runs rows again."""

import shlex

import pytest
from absl.testing import flagsaver

from experiments import reproduce
from experiments.command import cli
from experiments.execution import archive, folder, session
from experiments.paper import claims, comparison, evidence, standing
from tests.support.folders import write_rows
from tests.support.runs import MINI, ROOT, TINY

pytestmark = pytest.mark.usefixtures("parsed_flags", "shared_programs")


@pytest.fixture(autouse=True)
def small(tmp_path, monkeypatch):
    """Two rounds on embedded images, on the suite's devices."""
    monkeypatch.setattr(session, "set_up", lambda: None)
    given = {"task": MINI, "seeds": "0", "out": str(tmp_path / "out"), "results": str(tmp_path / "results")}
    with flagsaver.flagsaver(), flagsaver.as_parsed(**given, **{name: str(value) for name, value in TINY.items()}):
        yield


def run(capsys, **given):
    with flagsaver.as_parsed(**given):
        reproduce.main()
    return capsys.readouterr().out


def test_what_is_missing_is_run_shown_and_committed_rows_are_not_run_again(tmp_path, capsys):
    asked = {"table": "theta", "rows": "fedavg,fedeba_plus tau=0.1 alpha=0.9 theta=15", "plot": "false"}
    plan = run(capsys, **asked, dry_run="true")
    assert "0 runs are there, 2 are missing" in plan
    assert f"{tmp_path / 'out' / MINI}: 2 runs" in plan
    shown = run(capsys, **asked)
    assert "fedeba_plus tau=0.1 alpha=0.9 theta=15" in shown
    assert "too few seeds" in shown
    assert "paper" not in shown.split("seeds")[1]  # another task than the paper's
    assert "| fedavg |" in (tmp_path / "out" / "theta" / "table.md").read_text()
    assert (tmp_path / "out" / "theta" / "table.csv").read_text().count("\nfashion_mnist_mini_mlp,fedavg,") == 4
    assert "fedeba_plus tau=0.1 alpha=0.9 theta=15" in (tmp_path / "out" / "theta" / "report.html").read_text()
    archive.pack(tmp_path / "out" / MINI, tmp_path / "results" / MINI)
    with flagsaver.as_parsed(out=str(tmp_path / "elsewhere")):
        assert "2 runs are there, none that can be run is missing" in run(capsys, **asked, seeds="0")
        assert not (tmp_path / "elsewhere" / MINI).exists()
    told = run(capsys, check="random")
    assert "rows are equal" in told
    rows = folder.read_rows(tmp_path / "results" / MINI / folder.RESULTS)
    (tmp_path / "results" / MINI / "results.jsonl.xz").unlink()
    write_rows(tmp_path / "results" / MINI / folder.RESULTS, [row | {"mean": row["mean"] + 1} for row in rows])
    with pytest.raises(cli.RunError, match="the numbers are not those of"):
        run(capsys, check=rows[0]["run"])
    assert "2 of 2 rows differ" in capsys.readouterr().out


def test_norun_shows_all_seeds_that_there_are_and_runs_nothing(tmp_path, capsys):
    asked = {"table": "theta", "rows": "fedavg", "plot": "false"}
    run(capsys, **asked, seeds="1,3")
    table = (tmp_path / "out" / "theta" / "table.csv").read_text()
    assert "fedavg,1 3,," in table
    with flagsaver.flagsaver():
        reproduce.FLAGS["seeds"].present = 0
        shown = run(capsys, **asked | {"rows": "fedavg,fedeba_plus tau=0.1 alpha=0.9 theta=15"}, run="false")
    assert "missing" not in shown
    assert "not run" in shown
    assert "fedavg,1 3,," in (tmp_path / "out" / "theta" / "table.csv").read_text()


def test_the_command_of_a_claim_gives_the_table_of_findings(capsys, tmp_path):
    """What FINDINGS.md prints beside a claim shows the same figures and verdicts, from the committed runs."""
    witness = claims.CLAIMS[11][0]
    command = shlex.split(claims.command(witness))
    given = dict(part.removeprefix("--").split("=") for part in command if "=" in part)
    assert command[-1] == "--norun"
    with flagsaver.flagsaver():
        for name in ("task", "seeds", *TINY):
            reproduce.FLAGS[name].present = 0
            reproduce.FLAGS[name].value = None if name in TINY else ""
        run(capsys, **given, run="false", plot="false", results=str(ROOT / "results"))
    found = evidence.gather(evidence.folders_in(ROOT / "results"))
    made = claims.sheet(witness.table, witness.task, found)
    assert (tmp_path / "out" / witness.table / "table.csv").read_text() == comparison.to_csv(made)


@pytest.mark.parametrize(
    ("task", "changed", "kept"),
    [
        ("", {}, True),
        ("", {"rounds": 500, "eval_every": 50}, True),  # shown with their rounds
        ("", {"rounds": 500, "lr": 0.2}, False),
        (MINI, {}, False),
    ],
)
def test_only_other_rounds_leave_the_papers_numbers_beside_ours(task, changed, kept, monkeypatch):
    monkeypatch.setattr(reproduce.common_flags, "changes", lambda: changed)
    with flagsaver.as_parsed(task=task):
        assert reproduce.papers_setting() is kept


@pytest.mark.slow  # what `check` does is above, with rows of this test's own
def test_a_committed_run_gives_the_same_numbers_again(capsys):
    """One at random: equal on this kind of machine, else within the spread of seeds."""
    told = run(capsys, check="random", results=str(ROOT / "results"))
    assert "rows are equal" in told or "std over seeds" in told


def test_a_figure_is_drawn(tmp_path, capsys):
    shown = run(capsys, figure="theta_std", rows="fedeba_plus tau=0.1 alpha=0.9 theta=15")
    assert "picture: " in shown
    assert (tmp_path / "out" / "theta_std" / "theta_std.svg").exists()


def test_committed_rows_are_shown_where_their_data_is_not(capsys, tmp_path, monkeypatch):
    asked = {"table": "theta", "rows": "fedavg", "plot": "false"}
    run(capsys, **asked)
    monkeypatch.setattr(standing, "data_of", lambda *_: ("make data", ""))
    shown = run(capsys, **asked, seeds="0,1")
    assert "1 runs are there, none that can be run is missing" in shown
    assert "1 rows are left as they are: its data is not here: make data" in shown
    assert "1 of 2" in shown
    with pytest.raises(ValueError, match="nothing of theta is there, or can be run here: its data is"):
        run(capsys, **asked, out=str(tmp_path / "empty"))


def test_the_list_names_every_table_and_figure(capsys):
    shown = run(capsys, list="true", task="")
    assert shown.count("\ntable ") + shown.startswith("table ") == 21
    assert shown.count("\nfigure ") == 15
    assert "no package registry has cifar100" in shown
    of_one = run(capsys, list="true", table="varp", task="")
    assert "qffl q=0.01 server=varp(1.0): 8.1 min (estimated)" in of_one


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "give one of --table=NAME and --figure=NAME"),
        ({"table": "theta", "figure": "theta_std"}, "give one of --table=NAME and --figure=NAME"),
        ({"table": "thta"}, "--table=thta is not in the paper; choose one of performance"),
        ({"figure": "toy_case"}, "cannot be run: it is arithmetic"),
        ({"table": "theta", "rows": "fedprox"}, "--rows=fedprox is no row of theta; it has fedeba_plus"),
        ({"table": "theta", "panel": "mnist_mlp"}, f"--panel=mnist_mlp is no task of theta; it has {MINI}"),
        (
            {"table": "dp", "rows": "qffl q=0.5 privacy=client(2)"},
            "nothing of dp is there, or can be run",
        ),
        ({"check": "abc"}, "holds no finished run"),
    ],
)
def test_what_is_wrong_is_told_in_one_line(given, message, capsys):
    with pytest.raises(ValueError, match=message) as error:
        run(capsys, **given)
    assert "\n" not in str(error.value)
