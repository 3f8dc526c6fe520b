"""The whole report: its files, its lines, its errors, and the binary."""

import csv
import os
import subprocess
import sys
from pathlib import Path

import pytest

from experiments.execution.folder import as_line
from experiments.reporting import pictures
from experiments.reporting.heat import heat_map
from experiments.reporting.loading import group, load
from experiments.reporting.page import report
from experiments.reporting.series import View
from tests.support.folders import DATA, Run, both, origin, sweep_folder, train_folder, write_folder

ROOT = Path(__file__).parents[3]


def test_a_choice_on_validation_needs_a_validation_split(tmp_path):
    for tau in (0.1, 1.0):
        train_folder(tmp_path / str(tau), "fedeba", {0: [(50, 1)]}, hparams={"tau": tau})
    folders = [tmp_path / "0.1", tmp_path / "1.0"]
    with pytest.raises(ValueError, match=r"0\.1 has no validation split; run with --validation=0\.1, or --select_on="):
        report(folders, tmp_path / "out")
    assert not (tmp_path / "out").exists()
    report(folders, tmp_path / "out", select_on=None, plot=False)
    assert not (tmp_path / "out" / "chosen.csv").exists()


def test_an_unfinished_folder_is_reported_as_such(tmp_path, capsys):
    points = [("fedeba", {"tau": 0.1}, 0, both(50, 50), 1.0), ("fedeba", {"tau": 0.1}, 1, {"test": [90]}, 1.0),
              ("fedeba", {"tau": 1.0}, 0, {"test": [80], "validation": [80]}, 1.0)]  # fmt: skip
    folder = sweep_folder(tmp_path / "s", points, planned_runs=6)
    with open(folder / "results.jsonl", "a") as file:
        file.write('{"run": "half a li')
    report([folder], tmp_path / "out", plot=False)
    printed = capsys.readouterr().out
    assert "s is NOT FINISHED: 1 of 6 runs are done" in printed
    assert "fedeba tau=1 (unfinished: round 2 of 4)" in printed
    settings = list(csv.DictReader((tmp_path / "out" / "settings.csv").read_text().splitlines()))
    assert [row["seeds"] for row in settings] == ["0", "0"], "seed 1 is half-trained"
    chosen = list(csv.DictReader((tmp_path / "out" / "chosen.csv").read_text().splitlines()))
    assert [row["tau"] for row in chosen] == ["0.1"], "finished settings are chosen before unfinished ones"


def test_a_report_compares_with_the_baseline_that_was_asked_for(tmp_path, capsys):
    points = [("fedeba", {"tau": tau}, seed, both(50 + tau + seed, 50), 9.0) for tau in (1.0, 2.0) for seed in range(6)]
    folder = sweep_folder(tmp_path / "s", points)
    report([folder], tmp_path / "none", plot=False, select_on=None)
    assert "compared with" not in capsys.readouterr().out
    assert not (tmp_path / "none" / "settings_compared.tex").exists()
    report([folder], tmp_path / "out", plot=False, select_on=None, baseline="fedeba tau=1")
    assert "toy_task: all settings, compared with fedeba tau=1" in capsys.readouterr().out
    assert "| fedeba tau=2 | 6 | +1.00 [+1.00, +1.00] | 0.0312 | better |" in (tmp_path / "out/report.md").read_text()
    assert r"& better &" in (tmp_path / "out" / "settings_compared.tex").read_text()
    rows = list(csv.DictReader((tmp_path / "out" / "settings.csv").read_text().splitlines()))
    assert [row["mean_verdict"] for row in rows] == ["", "better"]
    with pytest.raises(ValueError, match=r"--baseline=fedavg is not among the settings; give an algorithm \(fedeba\)"):
        report([folder], tmp_path / "out", plot=False, select_on=None, baseline="fedavg")


def test_an_interrupted_run_is_reported_as_such(tmp_path, capsys):
    report([train_folder(tmp_path / "t", "fedavg", {0: [(40, 9)]}, interrupted=True)], tmp_path / "out", plot=False)
    assert "t is NOT FINISHED: stopped after round 2 of 4" in capsys.readouterr().out


def test_sources_name_every_commit_and_data_set_that_rows_came_from(tmp_path, capsys):
    other = {"name": "other", "md5": {"x_train": "9876543210"}}
    runs = [
        Run("fedavg", {"test": [(50, 1)] * 2}, seed=0, settings={"dataset": "toy"}),
        Run("fedavg", {"test": [(50, 1)] * 2}, seed=1, settings={"dataset": "toy"}, origins=(0, 1)),
        Run("fedavg", {"test": [(50, 1)] * 2}, seed=0, settings={"dataset": "other"}, origins=(2,)),
    ]
    origins = [origin("a" * 40), origin("b" * 40 + "+"), origin(None, other), origin("c" * 40)]
    folder = write_folder(tmp_path / "f", runs, origins=origins)
    report([folder], tmp_path / "out", plot=False, select_on=None)
    line = (f"{folder}: toy_task, 3 runs, 4 rounds, data toy (md5 01234567), other (md5 98765432), "
            "commits aaaaaaaaaa, bbbbbbbbbb+, unknown")  # fmt: skip
    assert f"\n{line}\n" in capsys.readouterr().out
    assert f"\n- {line}\n" in (tmp_path / "out" / "report.md").read_text()


def test_privacy_claims_are_listed(tmp_path, capsys):
    claims = [{"text": f"epsilon {seed}", "epsilon": 1.0 * seed, "guarantee": True} for seed in (1, 1, 2)]
    runs = [Run("fedavg", {"test": [(50, 1)]}, seed=i, privacy=claim) for i, claim in enumerate(claims)]
    report([write_folder(tmp_path / "f", runs)], tmp_path / "out", plot=False)
    printed = capsys.readouterr().out
    assert printed.count("privacy of fedavg: epsilon 1\n") == 1
    assert printed.count("privacy of fedavg: epsilon 2\n") == 1


def test_a_report_says_which_prediction_a_row_shows(tmp_path):
    models = {"ditto": ("global", "personal"), "focus": ("cluster_0", "personal"), "fedavg": ("global",)}
    runs = [Run(name, {("test", model): [(50, 1)] for model in own}) for name, own in models.items()]
    folder = write_folder(tmp_path / "f", runs)
    report([folder], tmp_path / "global", plot=False)
    rows = list(csv.DictReader((tmp_path / "global" / "settings.csv").read_text().splitlines()))
    assert {row["algorithm"]: row["prediction"] for row in rows} == {"ditto": "", "focus": "personal", "fedavg": ""}
    text = (tmp_path / "global" / "report.md").read_text()
    assert "| focus prediction=personal |" in text
    assert "shown in place of a global model" in text
    report([folder], tmp_path / "personal", model="personal", plot=False)
    text = (tmp_path / "personal" / "report.md").read_text()
    assert "| focus |" in text
    assert "| fedavg prediction=global |" in text


def gated_folder(folder, values):
    """FedEBA+ over tau and theta, with so many values of a third parameter; one point diverged."""
    points = [
        ("fedeba_plus", {"tau": tau, "theta": theta, "mu": mu}, seed, both(50 + tau + theta / 10 + seed, 50),
         10.0 + theta, *([2] if tau == theta == 1.0 else []))
        for tau in (0.1, 1.0) for theta in (0.0, 1.0, 45.0) for mu in values for seed in (0, 1)
    ]  # fmt: skip
    return sweep_folder(folder, points, varies=("tau", "theta") + (("mu",) if len(values) > 1 else ()))


def test_every_picture_is_made(tmp_path):
    folder = gated_folder(tmp_path / "s", (1.0,))
    other = train_folder(tmp_path / "t", "prac", {0: [(40, 9), (50, 5)]}, hparams={"theta": 0.0}, gate=1)
    report([folder, other], tmp_path / "out", axes=["theta", "tau"])
    made = {path.name for path in (tmp_path / "out").glob("*.png") if path.stat().st_size > 5000}
    assert made == {"heat_fedeba_plus_mean.png", "heat_fedeba_plus_variance.png", "plane.png", "curves.png",
                    "clients.png", "gates.png"}  # fmt: skip
    assert {path.stem for path in (tmp_path / "out").glob("*.svg")} == {Path(name).stem for name in made}
    written = (tmp_path / "out" / "report.md").read_text()
    assert all(f"({name})" in written for name in made)
    assert "commit ffffffffff+" in written


@pytest.mark.parametrize("values", [(1.0, 2.0), tuple(range(10))], ids=["panels", "averaged"])
def test_heat_maps_over_more_than_two_parameters(tmp_path, values):
    settings = group(load([gated_folder(tmp_path / "s", values)]))
    shown = heat_map(settings, ["theta", "tau"], View(last=1))
    assert len(shown.panels) == (1 if len(values) > 9 else len(values))
    assert shown.values.shape == (len(shown.panels), 2, 3)
    assert (shown.notes[0, 1, 1], shown.values[0, 0, 0]) == ("div.", pytest.approx(50.6))
    pictures.heat(settings, ["theta", "tau"], View(last=1), tmp_path / "heat.png")
    assert (tmp_path / "heat.png").stat().st_size > 5000


def test_pictures_that_cannot_be_made_are_told_and_old_ones_go(tmp_path, capsys):
    folder = train_folder(tmp_path / "t", "fedavg", {0: [(40, 9)]})
    out = tmp_path / "out"
    gated = train_folder(tmp_path / "g", "fedeba_plus", {0: [(40, 9), (50, 9)]}, hparams={"theta": 0.5}, gate=0.5)
    report([gated], out)
    assert (out / "gates.png").exists()
    (out / "notes.txt").write_text("mine")
    report([folder], out)
    printed = capsys.readouterr().out
    for line in ("no heat map: it needs two numeric parameters that vary", "no curves.png: it needs two evaluations",
                 "no plane.png: it needs two settings", "no gates.png: no algorithm here has a gate"):  # fmt: skip
        assert line in printed
    left = {"report.json", "report.md", "report.html", "settings.csv", "settings.tex", "notes.txt"}
    left |= {"clients.png", "clients.svg"}
    assert {p.name for p in out.iterdir()} == left


def test_wrong_input_is_one_line_with_the_file_and_the_remedy(tmp_path, runs):
    def told(*folders, **options):
        with pytest.raises(ValueError) as error:
            report(folders, tmp_path / "out", plot=False, **options)
        assert "\n" not in str(error.value)
        return str(error.value)

    assert "no folder is given" in told()
    assert "nowhere is not there; give folders of experiments.train" in told(tmp_path / "nowhere")
    assert "experiment.json is a file" in told(runs / "avg" / "experiment.json")
    assert f"so it holds no run; did you mean {runs / 'avg'}?" in told(runs)
    (tmp_path / "empty").mkdir()
    assert "empty has no experiment.json, so it holds no run" in told(tmp_path / "empty")
    assert "--model=personal was not evaluated; choose one of global" in told(runs / "avg", model="personal")
    assert "--heat=tau,mu must name two numeric parameters that vary; these do: tau" in told(
        runs / "sweep", axes=["tau", "mu"]
    )
    other_data = DATA | {"name": "b", "md5": {"x_train": "1"}}
    other = train_folder(tmp_path / "other", "fedavg", {0: [(1, 1)]}, data=other_data)
    assert "other (b) are not of the same data; report them apart" in told(runs / "avg", other)
    (runs / "avg" / "results.jsonl").unlink()
    assert "results.jsonl is missing: nothing was evaluated yet" in told(runs / "avg")
    (runs / "sweep" / "results.jsonl").write_text(as_line({"run": "0", "round": 1}) + "{broken\n")
    assert "results.jsonl, line 2 is damaged (its checksum is wrong); give the command that made it" in told(
        runs / "sweep"
    )
    (runs / "sweep" / "results.jsonl").write_text(as_line({"run": "0", "round": 1}))
    assert "sweep is not as this version of fedeba_jax writes it (KeyError('algorithm'))" in told(runs / "sweep")
    (runs / "sweep" / "results.jsonl").write_text("")
    assert "results.jsonl is empty" in told(runs / "sweep")
    (runs / "sweep" / "experiment.json").write_text("{")
    assert "experiment.json is not JSON" in told(runs / "sweep")


def test_a_report_replaces_its_own_files_and_no_others(tmp_path, runs, monkeypatch):
    out = tmp_path / "mine"
    report([runs / "avg"], out, plot=False, select_on=None)
    made = {path.name for path in out.iterdir()}
    assert made == {"report.json", "report.md", "report.html", "settings.csv", "settings.tex"}
    (out / "chosen.csv").write_text("of somebody else")
    (out / "settings.csv").write_text("an old table")
    report([runs / "avg"], out, plot=False, select_on=None)
    assert (out / "chosen.csv").read_text() == "of somebody else"
    assert (out / "settings.csv").read_text() != "an old table"
    with pytest.raises(ValueError, match=r"--out=.*mine holds a chosen\.csv that is not of its report; move it, or"):
        report([runs / "sweep"], out, plot=False, select_on="test")
    (out / "report.json").unlink()
    for path in (out, runs):
        before = {found: found.read_bytes() for found in path.iterdir() if found.is_file()}
        with pytest.raises(ValueError, match="holds files that are not of a report; give another folder"):
            report([runs / "avg"], path, plot=False, select_on=None)
        assert {found: found.read_bytes() for found in path.iterdir() if found.is_file()} == before


def test_what_files_say_is_text_wherever_it_is_shown(tmp_path, capsys):
    """Neither the terminal nor HTML or LaTeX does what a name in a result file asks for."""
    name = "<script>x</script>\x1b[31m[red]|\\input{x}\n# title"
    folder = train_folder(tmp_path / "t", name, {0: [(40, 9)]}, data=DATA | {"name": name})
    report([folder], tmp_path / "out", select_on=None, plot=False)
    shown = {path.name: path.read_text() for path in (tmp_path / "out").iterdir()} | {"": capsys.readouterr().out}
    assert not any("\x1b" in text or "\n# title" in text for text in shown.values())
    assert "<script>" not in shown["report.md"]
    assert "<script>x" not in shown["report.html"]
    assert "[red]" in shown[""]
    assert r"\input" not in shown["settings.tex"].replace(r"\textbackslash{}input", "")


def test_a_report_never_goes_where_a_run_or_a_file_is(tmp_path, runs):
    (tmp_path / "old").mkdir()
    (tmp_path / "old" / "config.json").write_text("{}")
    for name in ("avg", "old"):
        with pytest.raises(ValueError, match=f"{name} is the folder of a run; give another, as .*{name}/report"):
            report([runs / "avg"], tmp_path / name)
    (tmp_path / "file").write_text("")
    with pytest.raises(ValueError, match=r"--out=.*file is a file; give a folder"):
        report([runs / "avg"], tmp_path / "file")


def test_the_binary_takes_folders_as_arguments_and_as_a_flag(runs):
    environment = os.environ | {"PYTHONPATH": str(ROOT), "JAX_PLATFORMS": "cpu"}

    def binary(*arguments):
        command = [sys.executable, "-m", "experiments.report", *arguments]
        return subprocess.run(command, capture_output=True, text=True, cwd=runs, env=environment, timeout=100)

    done = binary("avg", "--runs=sweep", "--last=2", "--noplot", "--select_on=test")
    assert (done.returncode, done.stderr) == (0, "")
    assert "the choice used the test data" in done.stdout
    assert "*77.00 ± 5.00*" in done.stdout
    assert (runs / "report" / "report.md").exists()
    failed = binary("--metric=goodness", "avg")
    assert (failed.returncode, failed.stderr.count("\n")) == (2, 1)
