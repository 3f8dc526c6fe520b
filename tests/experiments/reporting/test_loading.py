"""Folders become series, and series settings; what does not belong together is refused."""

import json

import pytest

from experiments.execution.folder import shown
from experiments.reporting.loading import group, load
from experiments.reporting.series import Traffic, View
from tests.support.folders import DATA, Run, both, origin, sweep_folder, train_folder, write_folder

CLAIM = {"text": "epsilon 3", "epsilon": 3.0, "guarantee": True}


def refused(*folders):
    with pytest.raises(ValueError) as error:
        load(folders)
    assert "\n" not in str(error.value)
    return str(error.value)


def test_every_folder_becomes_the_same_records(runs):
    series = load([runs / "avg", runs / "sweep", runs / "sweep"])  # named twice, read once
    assert [(s.algorithm, s.seed, s.source.folder.name) for s in series[:3]] == [
        ("fedavg", 0, "avg"), ("fedavg", 1, "avg"), ("fedeba_plus", 0, "sweep")
    ]  # fmt: skip
    assert len(series) == 2 + 5
    assert (series[0].rounds, series[2].rounds) == (8, 4)
    assert series[0].traffic[6] == Traffic(6, 18 * 2**20, 6 * 2**20, None)
    assert series[2].traffic[4] == Traffic(6, 2 * 2**30, 2 * 2**30, 2)
    assert (series[0].has_gate, series[2].has_gate) == (False, True)
    assert series[2].client_accuracy["global"].tolist() == [61, 71, 71, 81]
    assert series[-1].diverged == 3
    labels = [s.label for s in group(series)]
    assert labels == ["fedavg rounds=8", *(f"fedeba_plus tau={tau} rounds=4" for tau in ("0.1", "1", "10"))]


def test_seeds_of_several_folders_become_one_row(tmp_path):
    train_folder(tmp_path / "a", "fedavg", {0: [(50, 1)]})
    train_folder(tmp_path / "b", "fedavg", {1: [(60, 1)]})
    train_folder(tmp_path / "again", "fedavg", {0: [(50, 1)]})
    (setting,) = group(load([tmp_path / "a", tmp_path / "b"]))
    assert setting.values("mean", View(last=5)) == {0: 50, 1: 60}
    with pytest.raises(ValueError, match=r"fedavg, seed 0 is in .*a and in .*again; give one of them"):
        group(load([tmp_path / "a", tmp_path / "again"]))
    twice = sweep_folder(tmp_path / "twice", [("fedeba", {"tau": 0.1}, 0, both(50, 50), 1.0)] * 2)
    with pytest.raises(ValueError, match=r"fedeba tau=0\.1, seed 0 is twice in .*twice"):
        group(load([twice]))


def test_shown_is_the_global_model_or_else_the_personal_predictions():
    assert shown(["personal", "global"]) == "global"
    assert shown(["mean_theta", "personal"]) == "personal"
    assert shown(["global"], "personal") == "global"
    assert shown(["global", "personal"], "personal") == "personal"
    assert shown(["global"], "mean_theta") == "mean_theta"


def test_parameters_are_sorted_by_size_and_settings_too(tmp_path):
    runs = [
        Run("fedavg", {"test": [(50, 1)]}, {"server": server}, settings={"dataset": dataset})
        for dataset in ("b", "a")
        for server in ("sgd(10.0)", None, "sgd(2.0)")
    ]
    labels = [setting.label for setting in group(load([write_folder(tmp_path / "f", runs)]))]
    servers = ("none", "sgd(2.0)", "sgd(10.0)")
    assert labels == [f"fedavg server={server} dataset={dataset}" for server in servers for dataset in ("a", "b")]


def test_when_a_run_is_evaluated_does_not_make_it_another_setting(tmp_path):
    runs = [Run("fedavg", {"test": [(50, 1)]}, seed=i, settings={"eval_every": 2 - i}) for i in (0, 1)]
    assert [s.label for s in group(load([write_folder(tmp_path / "f", runs)]))] == ["fedavg"]


def test_a_row_keeps_the_code_and_the_data_that_made_it(tmp_path):
    runs = [
        Run("fedavg", {"test": [(50, 1), (51, 1)]}, seed=0),
        Run("fedavg", {"test": [(52, 1)] * 2}, seed=1, origins=(0, 1)),
    ]
    unused = origin("c" * 40)
    folder = write_folder(tmp_path / "f", runs, origins=[origin("a" * 40), origin(None), unused])
    series = load([folder])
    assert [[one.commit for one in s.origins] for s in series] == [["a" * 40], ["a" * 40, "unknown"]]
    assert series[0].origins[0].data == "toy"
    assert dict(series[0].origins[0].md5) == DATA["md5"]


def test_rounds_per_second_are_of_the_whole_batch_without_compilation(tmp_path):
    runs = [Run("fedavg", {"test": [(50, 1)]}, seed=seed) for seed in range(4)]
    timings = [
        {"runs": ["0", "1"], "rounds": 20, "seconds": 100.0, "compiled": True},
        {"runs": ["0", "1"], "rounds": 20, "seconds": 2.0, "compiled": False},
        {"runs": ["0", "1"], "rounds": 10, "seconds": 1.0, "compiled": False},
        {"runs": ["2"], "rounds": 20, "seconds": 9.0, "compiled": True},
    ]
    folder = write_folder(tmp_path / "f", runs, timings=timings)
    with open(folder / "timings.jsonl", "a") as file:
        file.write('{"runs": ["0"')
    assert [one.rounds_per_second for one in load([folder])] == [20.0, 20.0, None, None]  # 2 runs, 30 rounds, 3 s
    (folder / "timings.jsonl").unlink()
    assert {one.rounds_per_second for one in load([folder])} == {None}


def test_the_privacy_of_a_setting_is_that_of_its_worst_seed(tmp_path):
    def setting(name, *claims):
        runs = [Run("fedavg", {"test": [(50, 1)]}, seed=i, privacy=claim) for i, claim in enumerate(claims)]
        return group(load([write_folder(tmp_path / name, runs)]))[0]

    worse, none = CLAIM | {"epsilon": 4.0}, {"text": "no guarantee", "epsilon": None, "guarantee": False}
    assert setting("a", CLAIM, worse, CLAIM).privacy == worse
    assert setting("b", CLAIM, none, worse).privacy == none
    assert setting("c", None).privacy is None


def test_folders_of_other_data_are_refused_but_data_may_vary_in_one(tmp_path):
    other = {"name": "other", "source": "embedded", "md5": {"x_train": "1"}}
    runs = [Run("fedavg", {"test": [(50, 1)]}, settings={"dataset": name}, origins=(i,)) for i, name in enumerate("ab")]
    swept = write_folder(tmp_path / "swept", runs, origins=[origin(), origin(data=other)])
    assert [s.label for s in group(load([swept]))] == ["fedavg dataset=a", "fedavg dataset=b"]
    plain = train_folder(tmp_path / "plain", "fedavg", {0: [(50, 1)]})
    assert refused(swept, plain) == (
        f"{swept} (other, toy) and {plain} (toy) are not of the same data; report them apart"
    )
    changed = write_folder(tmp_path / "changed", runs, origins=[origin(), origin(data=other | {"name": "toy"})])
    assert "changed has runs of two versions of the data set toy (other md5); run it again" in refused(changed)


def test_folders_of_other_versions_are_refused_with_the_remedy(tmp_path):
    for old in ("config.json", "sweep.json"):
        folder = tmp_path / old.split(".")[0]
        folder.mkdir()
        (folder / old).write_text("{}")
        assert (
            refused(folder) == f"{folder} is of an older version of fedeba_jax ({old}); run it again in another folder"
        )
    run = Run("fedavg", {"test": [(50, 1)]})
    newer = write_folder(tmp_path / "newer", [run], version=4)
    assert "experiment.json has version 4, and this fedeba_jax reads version 3; use the" in refused(newer)
    foreign = write_folder(tmp_path / "foreign", [run], format="else")
    assert "experiment.json is not the file of an experiment of fedeba_jax" in refused(foreign)
    (foreign / "experiment.json").write_text(json.dumps([1]))
    assert "experiment.json is not the file of an experiment of fedeba_jax" in refused(foreign)


def test_a_run_that_lost_a_row_is_refused(tmp_path):
    folder = write_folder(tmp_path / "t", [Run("fedavg", {"test": [(40, 1), (50, 1)]})])
    table = folder / "results.jsonl"
    table.write_text(table.read_text().split("\n", 1)[1])
    assert f"{table}: rows of the runs 0 are gone; give the command that made it again" in refused(folder)


def test_what_is_missing_is_said(tmp_path):
    run = Run("fedavg", {"test": [(50, 1)]})
    half = run._replace(seed=1, planned=4)
    cases = {
        "": ([run, run._replace(seed=1)], 2),
        "1 of 2 runs are done": ([run, half], 2),
        "0 of 3 runs are done": ([half, half._replace(seed=2)], 3),
        "stopped after round 2 of 4": ([half, half._replace(seed=2)], 2),
    }
    for i, (missing, (runs, planned)) in enumerate(cases.items()):
        folder = write_folder(tmp_path / str(i), runs, planned_runs=planned)
        assert {one.source.missing for one in load([folder])} == {missing}
    (tmp_path / "0" / "results.jsonl").unlink()
    assert "results.jsonl is missing: nothing was evaluated yet; resume it" in refused(tmp_path / "0")
