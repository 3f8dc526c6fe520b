"""The report: folders of both kinds written by hand, and figures worked out by hand."""

import csv
import json
import math
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from experiments import report_plots, results, tables
from experiments.report import choose, report

ROOT = Path(__file__).parent.parent
DATA = {"name": "toy", "source": "embedded", "md5": {"x_train": "0123456789abcdef"}}
ENVIRONMENT = {"commit": "f" * 40 + "+"}
CLIENTS = 4


def evaluation(mean, variance):
    """A row's metrics; those that no test looks at follow from the two."""
    nothing = mean is None
    derived = {"std": math.sqrt(variance), "worst5": mean - 10, "best5": mean + 10, "cv": math.sqrt(variance) / mean,
               "angle": 1.0, "kl": 0.1, "entropy": 1.0, "jain": 0.9, "pooled_accuracy": mean, "loss": 1.0,
               "loss_std": 0.1} if not nothing else dict.fromkeys(results.METRICS)  # fmt: skip
    return derived | {"mean": mean, "variance": None if nothing else variance}


def train_folder(folder, algorithm, seeds, *, hparams=None, diverged=None, interrupted=False, gate=None, data=DATA):
    """seeds: seed -> a (mean, variance) an evaluation, every 2 rounds; an exchange of 3 + 1 MiB a round."""
    folder.mkdir(parents=True)
    evaluations = len(next(iter(seeds.values())))
    task = {"lr": 0.1, "rounds": 2 * evaluations + 2 * interrupted, "eval_every": 2}
    settings = {"algorithm": algorithm, "hparams": hparams or {}, "task_name": "toy_task", "task": task}
    settings |= {"seeds": list(seeds), "validation": 0.1, "data_seed": None, "init_seed": None, "sample_seed": None}
    write(folder / "config.json", {"settings": settings, "data": data, "environment": ENVIRONMENT})
    lines(folder / "evals.jsonl", [
        {"seed": seed, "round": 2 * (i + 1), "split": "test", "model": "global", **evaluation(*values[i])}
        for i in range(evaluations) for seed, values in seeds.items()
    ])  # fmt: skip
    lines(folder / "rounds.jsonl", [
        {"seed": seed, "round": t, "bytes_down": 3 * 2**20, "bytes_up": 2**20, "exchanges": 1 + (gate or 0)}
        | ({} if gate is None else {"gate": gate})
        for t in range(1, 2 * evaluations + 1) for seed in seeds
    ])  # fmt: skip
    accuracy = np.linspace(20, 80, CLIENTS) + np.zeros((len(seeds), 1))
    np.savez(folder / "clients.npz", accuracy=accuracy, loss=accuracy, seeds=np.array(list(seeds)))
    write(folder / "summary.json", {"rounds": 2 * evaluations, "interrupted": interrupted, "diverged": diverged or {}})
    return folder


def sweep_folder(folder, points, *, varies=("tau",), rounds=4, expected=None):
    """points: (algorithm, hparams, seed, means by split, variance[, diverged round]); an evaluation every 2 rounds."""
    folder.mkdir(parents=True)
    write(folder / "sweep.json", {"task": "toy_task", "settings": {"lr": 0.1, "eval_every": 2}, "validation": 0.1,
                                  "data": DATA, "environment": ENVIRONMENT, "varies": list(varies),
                                  "points": {str(i): {} for i in range(expected or len(points))}})  # fmt: skip
    rows = []
    for i, (algorithm, hparams, seed, by_split, variance, *diverged) in enumerate(points):
        for split, means in by_split.items():
            for n, mean in enumerate(means, 1):
                gone = bool(diverged) and 2 * n >= diverged[0]
                gated = "theta" in hparams
                row = {"point": str(i), "algorithm": algorithm, "hparams": hparams, "settings": {"lr": 0.1},
                       "seed": seed, "round": 2 * n, "rounds": rounds, "split": split, "model": "global",
                       **evaluation(None if gone else mean, variance),
                       "gate_open": n if gated else None, "exchanges": 3 * n if gated else 2 * n,
                       "bytes_down": n * 2**30, "bytes_up": n * 2**30, "status": "diverged" if gone else "ok",
                       "diverged_round": diverged[0] if gone else None, "final": 2 * n == rounds}  # fmt: skip
                if row["final"] and split == "test" and not gone:
                    row["client_accuracy"] = [mean - 10, mean, mean, mean + 10]
                rows.append(row)
    lines(folder / "results.jsonl", rows)
    return folder


def write(path, content):
    path.write_text(json.dumps(content))


def lines(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def both(test, validation):
    return {"test": [test, test], "validation": [validation, validation]}


@pytest.fixture
def runs(tmp_path):
    """FedAvg by train with two seeds; FedEBA+ by sweep: tau=0.1 best on validation, tau=1 on test, tau=10 diverges."""
    train_folder(tmp_path / "avg", "fedavg", {0: [(10, 9), (60, 400), (70, 300)], 1: [(10, 9), (70, 400), (80, 300)]})
    points = [
        ("fedeba_plus", {"tau": tau, "theta": 0.0}, seed, both(test + 10 * seed, valid + 10 * seed), variance)
        for tau, test, valid, variance in ((0.1, 71, 90, 200.0), (1.0, 72, 80, 250.0))
        for seed in (0, 1)
    ]
    points += [("fedeba_plus", {"tau": 10.0, "theta": 0.0}, 0, both(99, 99), 1.0, 3)]
    sweep_folder(tmp_path / "sweep", points)
    return tmp_path


def table_of(folders, **options):
    settings = results.group(results.load(folders))
    return tables.build(settings, "title", **({"model": "global", "last": 2} | options))


def test_both_kinds_of_folder_become_the_same_records(runs):
    series = results.load([runs / "avg", runs / "sweep", runs / "sweep"])  # named twice, read once
    assert [(s.algorithm, s.seed, s.source.kind) for s in series[:3]] == [
        ("fedavg", 0, "train"), ("fedavg", 1, "train"), ("fedeba_plus", 0, "sweep")
    ]  # fmt: skip
    assert len(series) == 2 + 5
    assert (series[0].rounds, series[2].rounds) == (6, 4)
    assert series[0].traffic[6] == results.Traffic(6, 18 * 2**20, 6 * 2**20, None)
    assert series[2].traffic[4] == results.Traffic(6, 2 * 2**30, 2 * 2**30, 2)
    assert (series[0].has_gate, series[2].has_gate) == (False, True)
    assert series[2].client_accuracy["global"].tolist() == [61, 71, 71, 81]
    assert series[-1].diverged == 3
    labels = [s.label for s in results.group(series)]
    assert labels == ["fedavg rounds=6", *(f"fedeba_plus tau={tau} rounds=4" for tau in ("0.1", "1", "10"))]


def test_seeds_of_several_folders_become_one_row(tmp_path):
    train_folder(tmp_path / "a", "fedavg", {0: [(50, 1)]})
    train_folder(tmp_path / "b", "fedavg", {1: [(60, 1)]})
    train_folder(tmp_path / "again", "fedavg", {0: [(50, 1)]})
    (setting,) = results.group(results.load([tmp_path / "a", tmp_path / "b"]))
    assert setting.values("mean", "test", "global", 5) == {0: 50, 1: 60}
    with pytest.raises(ValueError, match=r"fedavg, seed 0 is in .*a and in .*again; give one of them"):
        results.group(results.load([tmp_path / "a", tmp_path / "again"]))
    twice = sweep_folder(tmp_path / "twice", [("fedeba", {"tau": 0.1}, 0, both(50, 50), 1.0)] * 2)
    with pytest.raises(ValueError, match=r"fedeba tau=0\.1, seed 0 is twice in .*twice"):
        results.group(results.load([twice]))


def test_a_cell_is_the_mean_of_the_last_evaluations_over_seeds(runs):
    row = table_of([runs / "avg"]).rows[0]
    cell = row.cells["mean"]
    assert (cell.mean, cell.std) == (70, 5)  # seeds 65 and 75
    assert cell.half_width == pytest.approx(12.706 * 5)  # t_{0.975, 1} std(ddof=1) / sqrt(2)
    assert row.cells["variance"].mean == 350
    assert row.cells["bytes"].mean == 24 * 2**20
    assert row.cells["additional_cost"].mean == 0
    assert table_of([runs / "avg"], last=1).rows[0].cells["mean"].mean == 75
    swept = table_of([runs / "sweep"]).rows[0]
    assert swept.cells["additional_cost"].mean == pytest.approx(1 / 3)  # 6 exchanges in 4 rounds


def test_marks_know_the_direction_ties_and_what_takes_no_part():
    assert tables.mark([1, 3, 2], higher=True) == ["", "best", "second"]
    assert tables.mark([1, 3, 2], higher=False) == ["best", "", "second"]
    assert tables.mark([3, 3 + 1e-13, 2, 2], higher=True) == ["best", "best", "second", "second"]
    assert tables.mark([3, 3], higher=True) == ["", ""]
    assert tables.mark([math.nan, 1, 2], higher=True) == ["", "second", "best"]


def test_noise_is_decided_on_paired_seeds():
    best = {0: 70.0, 1: 80.0, 2: 90.0}
    assert tables.within_noise(best, {0: 69.0, 1: 79.0, 2: 89.1}) is False  # mean 0.967 > 4.303 * 0.0577 / sqrt(3)
    assert tables.within_noise(best, {0: 60.0, 1: 85.0, 2: 88.0}) is True  # mean 2.33 <= 4.303 * 7.51 / sqrt(3)
    assert tables.within_noise(best, {1: 79.0, 2: 89.1, 7: 0.0}) is False  # 0.95 > 12.706 * 0.0707 / sqrt(2)
    assert tables.within_noise(best, {0: 60.0}) is None
    assert tables.within_noise(best, dict(best)) is True


def test_a_diverged_setting_is_listed_and_never_best(runs):
    table = table_of([runs / "sweep"])
    assert [row.cells["mean"].mark for row in table.rows] == ["second", "best", ""]
    assert [row.cells["variance"].mark for row in table.rows] == ["best", "second", ""]
    assert table.rows[2].status == "diverged: seed 0 in round 3"
    assert "| fedeba_plus tau=10 (diverged: seed 0 in round 3) | 1 | n/a | n/a |" in tables.to_markdown(table)
    assert tables.ONE_SEED not in table.notes


def test_one_seed_says_that_there_is_no_noise_estimate(tmp_path):
    for name, mean in (("a", 50), ("b", 60)):
        train_folder(tmp_path / name, f"fed{name}", {0: [(mean, 1.0)]})
    table = table_of([tmp_path / "a", tmp_path / "b"])
    assert tables.ONE_SEED in table.notes
    assert table.rows[0].cells["mean"] == tables.Cell(50, 0, None, "second", None)
    assert "(some have only 1)" in table.notes[0]


def test_formats_hold_the_figures_and_the_marks(runs):
    table = table_of([runs / "avg", runs / "sweep"])
    markdown, latex = tables.to_markdown(table), tables.to_latex(table)
    # accuracy: 65 and 75; 71 and 81; 72 and 82: the differences to the best are 7, 7 and 1, 1: no noise at all
    assert "| fedavg rounds=6 | 2 | 70.00 ± 5.00 | 350.00 ± 0.00 |" in markdown
    assert "| fedeba_plus tau=0.1 rounds=4 | 2 | <u>76.00 ± 5.00</u> | **200.00 ± 0.00** |" in markdown
    assert "| fedeba_plus tau=1 rounds=4 | 2 | **77.00 ± 5.00** | <u>250.00 ± 0.00</u> |" in markdown
    assert "global model, test data" in markdown
    assert r"fedeba\_plus tau=0.1 rounds=4 & 2 & \underline{76.00 $\pm$ 5.00} & \textbf{200.00 $\pm$ 0.00}" in latex
    assert latex.count(r" \\") == 1 + 4
    rows = list(csv.DictReader(tables.to_csv(table).splitlines()))
    assert (rows[1]["algorithm"], rows[1]["tau"], rows[1]["seeds"]) == ("fedeba_plus", "0.1", "0 1")
    assert (rows[0]["tau"], rows[0]["rounds"]) == ("", "6")
    assert (rows[1]["mean_mean"], rows[1]["mean_std"], rows[1]["mean_ci95_half_width"]) == ("76", "5", "63.53")
    assert (rows[1]["mean_mark"], rows[1]["mean_within_noise_of_best"]) == ("second", "false")
    assert (rows[1]["bytes_mean"], rows[3]["bytes_mean"]) == (str(4 * 2**30), "")
    assert rows[3]["status"] == "diverged: seed 0 in round 3"


def test_what_is_within_noise_of_the_best_is_marked(tmp_path):
    train_folder(tmp_path / "a", "feda", {0: [(60, 1)], 1: [(70, 1)]})
    train_folder(tmp_path / "b", "fedb", {0: [(65, 1)], 1: [(66, 1)]})  # -5 and 4 of the best
    table = table_of([tmp_path / "a", tmp_path / "b"])
    assert "≈ **" not in tables.to_markdown(table)
    assert "| fedb | 2 | **65.50 ± 0.50** |" in tables.to_markdown(table)
    assert "| feda | 2 | ≈ <u>65.00 ± 5.00</u> |" in tables.to_markdown(table)
    assert r"$\approx$ \underline{65.00 $\pm$ 5.00}" in tables.to_latex(table)
    assert tables.NOISE in table.notes


def test_long_tables_show_their_best_rows(tmp_path):
    points = [("fedeba", {"tau": float(i)}, 0, both(i, i), 1.0) for i in range(1, tables.SHOWN + 3)]
    table = table_of([sweep_folder(tmp_path / "s", points)])
    assert [row.setting.label for row in tables._shown(table, "mean")][:1] == ["fedeba tau=3"]
    assert len(tables.to_csv(table).splitlines()) == 1 + tables.SHOWN + 2


def test_the_choice_follows_its_split_and_reports_test_figures(runs):
    settings = results.group(results.load([runs / "avg", runs / "sweep"]))
    on_validation = choose(settings, "validation", "mean", "global", 2)
    assert [s.label for s in on_validation.settings] == ["fedavg rounds=6", "fedeba_plus tau=0.1 rounds=4"]
    assert on_validation.settings[1].mean("mean", "test", "global", 2) == 76
    assert on_validation.notes == ["fedeba_plus: best of 2 settings; left out, diverged or unfinished: 1"]
    on_test = choose(settings, "test", "mean", "global", 2)
    assert on_test.settings[1].label == "fedeba_plus tau=1 rounds=4"
    assert "used the test data" in on_test.notes[0]
    fairest = choose(settings, "test", "variance", "global", 2)
    assert fairest.settings[1].label == "fedeba_plus tau=0.1 rounds=4"
    assert choose(results.group(results.load([runs / "avg"])), "validation", "mean", "global", 2) is None


def test_an_algorithm_that_always_diverged_has_no_choice(tmp_path):
    points = [("fedeba", {"tau": tau}, 0, both(50, 50), 1.0, 2) for tau in (0.1, 1.0)]
    settings = results.group(results.load([sweep_folder(tmp_path / "s", points)]))
    choice = choose(settings, "validation", "mean", "global", 1)
    assert choice == ([], ["fedeba: every setting diverged; none is chosen"])


def test_a_choice_on_validation_needs_a_validation_split(tmp_path):
    for tau in (0.1, 1.0):
        train_folder(tmp_path / str(tau), "fedeba", {0: [(50, 1)]}, hparams={"tau": tau})
    folders = [tmp_path / "0.1", tmp_path / "1.0"]
    with pytest.raises(ValueError, match=r"0\.1 has no validation split; run with --validation=0\.1, or --select_on="):
        report(folders, tmp_path / "out")
    assert not (tmp_path / "out").exists()
    report(folders, tmp_path / "out", select_on=None, plot=False)
    assert not (tmp_path / "out" / "chosen.csv").exists()


def test_an_unfinished_sweep_is_reported_as_such(tmp_path, capsys):
    points = [("fedeba", {"tau": 0.1}, 0, both(50, 50), 1.0), ("fedeba", {"tau": 0.1}, 1, {"test": [90]}, 1.0),
              ("fedeba", {"tau": 1.0}, 0, {"test": [80], "validation": [80]}, 1.0)]  # fmt: skip
    folder = sweep_folder(tmp_path / "s", points, expected=6)
    with open(folder / "results.jsonl", "a") as file:
        file.write('{"point": "half a li')
    settings = results.group(results.load([folder]))
    assert [list(s.values("mean", "test", "global", 1)) for s in settings] == [[0], [0]], "seed 1 is half-trained"
    report([folder], tmp_path / "out", plot=False)
    printed = capsys.readouterr().out
    assert "s is NOT FINISHED: 1 of 6 runs are done" in printed
    assert "fedeba tau=1 (unfinished: round 2 of 4)" in printed
    chosen = list(csv.DictReader((tmp_path / "out" / "chosen.csv").read_text().splitlines()))
    assert [row["tau"] for row in chosen] == ["0.1"], "finished settings are chosen before unfinished ones"


def test_the_front_is_what_nothing_beats():
    points = [(70, 100), (60, 50), (65, 120), (60, 60), (70, 100), (50, 50)]
    assert report_plots.pareto_front(points) == [0, 4, 1]
    assert report_plots.pareto_front([(1, 1)]) == [0]


def test_pictures_show_each_algorithms_best(tmp_path):
    points = [("fedeba", {"tau": float(i)}, 0, both(50 + i, 50), 1.0) for i in range(1, 12)]
    points += [("fedavg", {}, 0, both(40, 40), 1.0)]
    settings = results.group(results.load([sweep_folder(tmp_path / "s", points)]))
    chosen, said = report_plots.best(settings, report_plots.View("global", 1, "mean", "toy"))
    assert [s.label for s in chosen] == [*(f"fedeba tau={i}" for i in range(5, 12)), "fedavg"]
    assert said.startswith("the best 8 of 12 settings by mean")


@pytest.mark.parametrize("values", [(1.0,), (1.0, 2.0), tuple(range(10))], ids=["single", "panels", "averaged"])
def test_every_picture_is_made(tmp_path, values):
    points = [
        ("fedeba_plus", {"tau": tau, "theta": theta, "mu": mu}, seed, both(50 + tau + theta / 10 + seed, 50),
         10.0 + theta, *([2] if tau == theta == 1.0 else []))
        for tau in (0.1, 1.0) for theta in (0.0, 1.0, 45.0) for mu in values for seed in (0, 1)
    ]  # fmt: skip
    folder = sweep_folder(tmp_path / "s", points, varies=("tau", "theta") + (("mu",) if len(values) > 1 else ()))
    other = train_folder(tmp_path / "t", "prac", {0: [(40, 9), (50, 5)]}, hparams={"theta": 0.0}, gate=1)
    report([folder, other], tmp_path / "out", axes=["theta", "tau"])
    made = {path.name for path in (tmp_path / "out").glob("*.png") if path.stat().st_size > 5000}
    assert made == {"heat_fedeba_plus_mean.png", "heat_fedeba_plus_variance.png", "plane.png", "curves.png",
                    "clients.png", "gates.png"}  # fmt: skip
    written = (tmp_path / "out" / "report.md").read_text()
    assert all(f"({name})" in written for name in made)
    assert "commit ffffffffff+" in written


def test_pictures_that_cannot_be_made_are_told_and_old_ones_go(tmp_path, capsys):
    folder = train_folder(tmp_path / "t", "fedavg", {0: [(40, 9)]})
    out = tmp_path / "out"
    out.mkdir()
    for name in ("gates.png", "chosen.tex", "notes.txt"):
        (out / name).write_text("old")
    report([folder], out)
    printed = capsys.readouterr().out
    for line in ("no heat map: it needs two numeric parameters that vary", "no curves.png: it needs two evaluations",
                 "no plane.png: it needs two settings", "no gates.png: no algorithm here has a gate"):  # fmt: skip
        assert line in printed
    assert {p.name for p in out.iterdir()} == {"report.md", "settings.csv", "settings.tex", "clients.png", "notes.txt"}


def test_wrong_input_is_one_line_with_the_file_and_the_remedy(tmp_path, runs):
    def told(*folders, **options):
        with pytest.raises(ValueError) as error:
            report(folders, tmp_path / "out", plot=False, **options)
        assert "\n" not in str(error.value)
        return str(error.value)

    assert "no folder is given" in told()
    assert "nowhere is not there; give folders of experiments.train" in told(tmp_path / "nowhere")
    assert "config.json is a file" in told(runs / "avg" / "config.json")
    assert f"so it holds no run; did you mean {runs / 'avg'}?" in told(runs)
    (tmp_path / "empty").mkdir()
    assert "empty has neither config.json nor sweep.json" in told(tmp_path / "empty")
    assert "--model=personal was not evaluated; choose one of global" in told(runs / "avg", model="personal")
    assert "--heat=tau,mu must name two numeric parameters that vary; these do: tau" in told(
        runs / "sweep", axes=["tau", "mu"]
    )
    other_data = DATA | {"name": "b", "md5": {"x_train": "1"}}
    other = train_folder(tmp_path / "other", "fedavg", {0: [(1, 1)]}, data=other_data)
    assert "other (b) are not of the same data; report them apart" in told(runs / "avg", other)
    with pytest.raises(ValueError, match="avg is the folder of a run; give another"):
        report([runs / "avg"], runs / "avg")
    (runs / "avg" / "summary.json").unlink()
    assert "summary.json is missing: the run is not finished" in told(runs / "avg")
    (runs / "sweep" / "results.jsonl").write_text("{}\n{broken\n")
    assert "results.jsonl, line 2 is not JSON" in told(runs / "sweep")
    (runs / "sweep" / "results.jsonl").write_text("{}\n")
    assert "sweep is not as experiments.sweep of this version writes it (KeyError('point'))" in told(runs / "sweep")
    (runs / "sweep" / "results.jsonl").write_text("")
    assert "results.jsonl is empty" in told(runs / "sweep")
    (runs / "sweep" / "sweep.json").write_text("{")
    assert "sweep.json is not JSON" in told(runs / "sweep")


def test_an_interrupted_run_is_reported_as_such(tmp_path, capsys):
    report([train_folder(tmp_path / "t", "fedavg", {0: [(40, 9)]}, interrupted=True)], tmp_path / "out", plot=False)
    assert "t is NOT FINISHED: stopped after round 2 of 4" in capsys.readouterr().out


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
