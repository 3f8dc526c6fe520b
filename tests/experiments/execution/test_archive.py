"""Packed folders: small, the same bytes for the same rows, read as any folder, continued after unpacking."""

import pytest

from experiments.execution import archive, folder, runner
from experiments.reporting import loading, page
from experiments.reporting.series import View
from tests.support.folders import Run, origin, write_folder, write_rows
from tests.support.runs import Killed, execute, kill_after, make

FIGURES = [(70.0, 30.0), (80.0, 20.0)]
SETTINGS = {"alpha": 0.5}


def runs(*seeds, **others):
    return [Run("fedavg", {"test": FIGURES}, SETTINGS, seed, **others) for seed in seeds]


def tables(path):
    return {one.name: one.read_bytes() for one in path.iterdir()}


def values(*folders):
    return sorted((one.seed, one.value("mean", View())) for one in loading.load(folders))


def test_rows_survive_and_the_same_rows_make_the_same_bytes(tmp_path):
    timings = [{"runs": ["0", "1"], "rounds": 2, "seconds": 1.5, "compiled": False}]
    made = write_folder(tmp_path / "made", runs(0, 1), timings=timings)
    assert archive.pack(made, tmp_path / "packed") == ["0", "1"]
    archive.unpack(tmp_path / "packed", tmp_path / "unpacked")
    archive.pack(tmp_path / "unpacked", tmp_path / "again")
    assert tables(tmp_path / "packed") == tables(tmp_path / "again")
    assert {"results.jsonl.xz", "timings.jsonl.xz", "experiment.json"} == set(tables(tmp_path / "packed"))
    by_row = {name: sorted((tmp_path / "unpacked" / name).read_text().splitlines()) for name in archive.TABLES}
    assert by_row == {name: sorted((made / name).read_text().splitlines()) for name in archive.TABLES}


def test_the_order_of_batches_leaves_no_trace(tmp_path):
    one, other = (write_folder(tmp_path / name, runs(0, 1)) for name in ("one", "other"))
    rows = folder.read_rows(other / folder.RESULTS)
    write_rows(other / folder.RESULTS, sorted(rows, key=lambda row: (row["round"], -row["seed"])))
    assert one.joinpath(folder.RESULTS).read_bytes() != other.joinpath(folder.RESULTS).read_bytes()
    for made in (one, other):
        archive.pack(made, tmp_path / f"packed_{made.name}")
    assert tables(tmp_path / "packed_one") == tables(tmp_path / "packed_other")


def test_reports_read_a_packed_folder_as_it_is(tmp_path, capsys):
    made = write_folder(tmp_path / "made", runs(0, 1))
    archive.pack(made, tmp_path / "packed")
    assert values(tmp_path / "packed") == values(made)
    page.report([tmp_path / "packed"], tmp_path / "report", select_on=None, plot=False)
    assert "80.00" in capsys.readouterr().out  # of two evaluations, the last counts


def test_unfinished_runs_are_left_out_but_stay_planned(tmp_path):
    made = write_folder(tmp_path / "made", [*runs(0), *runs(1, planned=8)], planned_runs=3)
    assert archive.pack(made, tmp_path / "packed") == ["0"]
    assert [one.seed for one in loading.load([tmp_path / "packed"])] == [0]
    assert loading.load([tmp_path / "packed"])[0].source.missing == "1 of 3 runs are done"
    unfinished = write_folder(tmp_path / "unfinished", runs(1, planned=8))
    with pytest.raises(ValueError, match="no finished run; there is nothing to pack yet"):
        archive.pack(unfinished, tmp_path / "nothing")


def test_packing_adds_to_a_packed_folder_and_numbers_origins_anew(tmp_path):
    first, second = (origin(commit=commit * 40) for commit in "ab")
    one = write_folder(tmp_path / "one", runs(0), origins=[first])
    rows = [row | {"run": "x"} for row in folder.read_rows(write_folder(tmp_path / "two", runs(1)) / folder.RESULTS)]
    write_rows(tmp_path / "two" / folder.RESULTS, rows)
    content = folder.description(tmp_path / "two") | {"runs": {"x": {}}, "origins": [second]}
    folder.write_mark(tmp_path / "two", content)
    archive.pack(one, tmp_path / "packed")
    assert archive.pack(tmp_path / "two", tmp_path / "packed") == ["0", "x"]
    assert archive.pack(one, tmp_path / "packed") == ["0", "x"]  # what is there already, again
    commits = {one.seed: one.origins[0].commit[0] for one in loading.load([tmp_path / "packed"])}
    assert commits == {0: "a", 1: "b"}
    other = write_folder(tmp_path / "other", [Run("fedavg", {"test": [(1.0, 1.0)] * 2}, SETTINGS)])
    with pytest.raises(ValueError, match="has the run 0 with other numbers"):
        archive.pack(other, tmp_path / "packed")


def test_damage_is_told_in_one_line(tmp_path):
    archive.pack(write_folder(tmp_path / "made", runs(0)), tmp_path / "packed")
    table = tmp_path / "packed" / "results.jsonl.xz"
    whole = table.read_bytes()
    table.write_bytes(whole[:-20])
    with pytest.raises(ValueError, match=r"results\.jsonl\.xz is damaged"):
        loading.load([tmp_path / "packed"])
    table.write_bytes(bytes(100))
    with pytest.raises(ValueError, match=r"results\.jsonl\.xz is damaged"):
        loading.load([tmp_path / "packed"])


def test_what_is_not_packed_or_in_the_way_is_refused(tmp_path):
    made = write_folder(tmp_path / "made", runs(0))
    with pytest.raises(ValueError, match="is not a packed folder"):
        archive.unpack(made, tmp_path / "out")
    archive.pack(made, tmp_path / "packed")
    with pytest.raises(ValueError, match="holds an experiment; give a new folder"):
        archive.unpack(tmp_path / "packed", made)
    with pytest.raises(ValueError, match="is not packed: runs are trained there"):
        archive.pack(tmp_path / "packed", made)
    with (
        pytest.raises(ValueError, match="is packed; unpack it into another folder"),
        runner.owned(tmp_path / "packed"),
    ):
        pass


@pytest.mark.usefixtures("shared_programs")
def test_a_folder_that_was_packed_half_way_is_continued(tmp_path):
    """Of four runs two are finished when it is packed; after unpacking, the same call runs the other two."""
    asked = make("fedavg", seeds=range(4))
    whole = execute(asked, tmp_path / "whole", batch_runs=2)
    with pytest.raises(Killed):
        execute(asked, tmp_path / "half", kill_after(3), batch_runs=2)
    assert len(archive.pack(tmp_path / "half", tmp_path / "packed")) == 2
    archive.unpack(tmp_path / "packed", tmp_path / "continued")
    told = []
    execute(asked, tmp_path / "continued", told.append, batch_runs=2)
    assert {run.seed for chunk in told for run in chunk.runs} == {2, 3}
    for name in ("whole", "continued"):
        archive.pack(tmp_path / name, tmp_path / f"packed_{name}")
    results = [(tmp_path / f"packed_{name}" / "results.jsonl.xz").read_bytes() for name in ("whole", "continued")]
    assert results[0] == results[1]
    assert len(whole) == 8
