"""The folder of an experiment: its mark, its tables, its lock, and what it refuses."""

import json
import math
import os
import platform

import jax.numpy as jnp
import numpy as np
import pytest

from experiments.execution import folder
from tests.support.runs import make


def mark(path, runs, **changes):
    """A folder of these runs; changes are of what its mark says."""
    path.mkdir(exist_ok=True)
    folder.describe(path, runs, {})
    if changes:
        folder.write_mark(path, folder.description(path) | changes)
    return path


@pytest.mark.parametrize(
    ("evaluations", "expected"), [(0, 1), (1, 1), (2, 1), (3, 1), (4, 2), (5, 2), (9, 4), (10, 5), (11, 5), (100, 5)]
)
def test_a_figure_averages_five_evaluations_and_half_of_them_at_most(evaluations, expected):
    assert folder.averaged(evaluations) == expected
    assert folder.averaged(evaluations, 1) == 1
    assert folder.averaged(evaluations, folder.averaged(evaluations)) == expected


def test_the_figure_of_a_run_is_where_it_ended():
    assert folder.figure([10.0, 20.0, 60.0, 70.0, 80.0]) == 75
    assert folder.figure([7.0]) == 7
    assert math.isnan(folder.figure([]))


def test_a_new_folder_is_one_that_holds_nothing(tmp_path):
    assert folder.is_new(tmp_path)
    assert folder.is_new(tmp_path / "to" / "be" / "made")
    (tmp_path / folder.LOCK).write_text("")
    assert folder.is_new(tmp_path)
    (tmp_path / "checkpoint.bin.tmp").write_text("a process was killed while it wrote")
    assert folder.is_new(tmp_path)
    assert not folder.is_new(mark(tmp_path, make()))


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"notes.txt": "mine"}, "holds files that are not of an experiment; give another folder"),
        ({"config.json": "{}"}, r"is of an older version of fedeba_jax \(config\.json\); run it again in another"),
        ({"sweep.json": "{}"}, r"is of an older version of fedeba_jax \(sweep\.json\); run it again in another"),
        ({"experiment.json": "{"}, "is not JSON"),
        ({"experiment.json": "[]"}, "is not the file of an experiment of fedeba_jax; give another folder"),
        ({"experiment.json": '{"format": "other"}'}, "is not the file of an experiment of fedeba_jax"),
        (
            {"experiment.json": json.dumps({"format": folder.FORMAT, "version": 99})},
            "has version 99, and this fedeba_jax reads version 3; use the fedeba_jax that wrote it",
        ),
    ],
)
def test_what_is_not_ours_is_refused_in_one_line(tmp_path, files, message):
    for name, content in files.items():
        (tmp_path / name).write_text(content)
    with pytest.raises(ValueError, match=message) as error:
        folder.is_new(tmp_path)
    assert "\n" not in str(error.value)
    with pytest.raises(ValueError, match="is a file; give a folder"):
        folder.is_new(tmp_path / next(iter(files)))


def test_other_runs_are_told_by_the_three_first_differences_to_the_closest(tmp_path):
    held = mark(tmp_path, make(text="tau=0.5", seeds=(0, 1)))
    folder.check_no_others(held, make(text="tau=0.5", seeds=(0, 1, 2)))  # more is no other
    asked = [*make(text="tau=1,alpha=0", seeds=(0,), rounds=3, lr=0.2), *make(text="tau=0.5", seeds=(0,), rounds=3)]
    with pytest.raises(ValueError) as error:
        folder.check_no_others(held, asked)
    assert "(rounds=2 there, 3 now);" in str(error.value)
    with pytest.raises(ValueError) as error:
        folder.check_no_others(held, asked[:1])
    assert "(lr=0.1 there, 0.2 now, rounds=2 there, 3 now, tau=0.5 there, 1.0 now);" in str(error.value)


def test_the_mark_has_all_runs_and_origins_that_were_ever_here(tmp_path):
    first, second = make("fedavg", seeds=(0,)), make("fedavg", grid=("lr=0.1,0.2",), seeds=(1,))
    assert folder.describe(tmp_path, first, {"mnist": {"commit": "a"}}) == {"mnist": 0}
    assert folder.describe(tmp_path, first, {"mnist": {"commit": "a"}}) == {"mnist": 0}
    found = folder.describe(tmp_path, second, {"cifar10": {"commit": "b"}, "mnist": {"commit": "a"}})
    assert found == {"cifar10": 1, "mnist": 0}
    content = folder.description(tmp_path)
    assert list(content["runs"]) == [run.id for run in (*first, *second)]
    assert content["origins"] == [{"commit": "a"}, {"commit": "b"}]
    assert content["varies"] == ["lr"]


def test_clearing_removes_our_files_the_mark_last(tmp_path):
    """Killed in between, a folder is still known as ours."""
    assert folder.OURS[-1] == folder.MARK
    for name in (*folder.OURS, *folder.UNFINISHED, folder.LOCK, "notes.txt", "curves.png", "results.jsonl.aside"):
        (tmp_path / name).write_text("{}")
    folder.clear(tmp_path)
    left = {path.name for path in tmp_path.iterdir()}
    assert left == {folder.LOCK, "notes.txt", "curves.png", "results.jsonl.aside"}


def test_the_lock_is_let_go_and_leaves_no_folder_of_nothing(tmp_path):
    out = tmp_path / "out"
    with folder.Lock(out):
        with (
            pytest.raises(ValueError, match="another process is writing to this folder; wait for it"),
            folder.Lock(out),
        ):
            pass
        assert out.exists()
    assert not out.exists()
    with folder.Lock(out):
        (out / "results.jsonl").write_text("")
    assert {path.name for path in out.iterdir()} == {"lock", "results.jsonl"}
    (tmp_path / "empty").mkdir()
    with folder.Lock(tmp_path / "empty"):
        pass
    assert (tmp_path / "empty").exists(), "it was there before"


def test_rows_are_read_as_they_were_written_without_a_half_written_last_one(tmp_path):
    table = tmp_path / "results.jsonl"
    assert folder.read_rows(table) == []
    rows = [
        {"run": "a", "round": 1, "final": False, "mean": 0.5},
        {"run": "b", "round": 1, "final": True, "mean": None, "rows": 1},
    ]
    folder.append_rows(table, rows[:1])
    folder.append_rows(table, rows[1:])
    assert folder.read_rows(table) == rows
    assert [json.loads(line).keys() - {"crc"} for line in table.read_text().splitlines()] == [
        row.keys() for row in rows
    ]
    with open(table, "a") as file:
        file.write('{"run": "half a li')
    assert folder.read_rows(table) == rows
    table.write_text('{"run": "half a li\n')
    with pytest.raises(ValueError, match=r"results\.jsonl, line 1 is damaged \(its checksum is wrong\)"):
        folder.read_rows(table)


def test_every_flipped_bit_of_a_row_is_noticed():
    """A row is known by its checksum; the line's end by the line after it."""
    text = folder.as_line({"run": "a", "round": 1, "final": True, "mean": 71.25, "rows": 1})
    assert folder.Line(text, folder._row(text)).row == {"run": "a", "round": 1, "final": True, "mean": 71.25, "rows": 1}
    for place in range(len(text)):
        for bit in range(8):
            flipped = bytearray(text.encode())
            flipped[place] ^= 1 << bit
            assert folder._row(flipped.decode(errors="surrogateescape")) is None, flipped


def test_a_run_is_finished_if_all_its_rows_are_there():
    rows = [{"run": "a", "final": False}, {"run": "a", "final": True, "rows": 2}, {"run": "b", "final": False}]
    assert folder.finished(rows) == {"a"}
    assert folder.finished(rows[1:]) == folder.finished(rows[:1]) == set()


def test_every_flipped_bit_of_the_mark_is_noticed(tmp_path):
    held = mark(tmp_path, make(seeds=(0,)))
    whole = (held / folder.MARK).read_bytes()
    for place in range(0, len(whole), 3):
        damaged = bytearray(whole)
        damaged[place] ^= 1 << place % 8
        (held / folder.MARK).write_bytes(damaged)
        with pytest.raises(ValueError, match=r"experiment\.json (is|has)") as error:
            folder.description(held)
        assert "\n" not in str(error.value)


def test_json_is_written_whole_or_not_at_all(tmp_path):
    path = tmp_path / "summary.json"
    folder.write_json(path, {"a": 1})
    with pytest.raises(TypeError):
        folder.write_json(path, {"a": object()})
    assert json.loads(path.read_text()) == {"a": 1}


@pytest.mark.parametrize(
    ("value", "clean"),
    [
        (1 / 3, 0.3333333),
        (float("nan"), None),
        (float("inf"), None),
        (np.float32(0.1), 0.1),
        (np.int64(3), 3),
        (np.bool_(True), True),
        (np.array([1.5, np.nan]), [1.5, None]),
        (jnp.array([[1, 2]]), [[1, 2]]),
        ((1, "a", None), [1, "a", None]),
        ({1: {"a": 123456789.0}}, {"1": {"a": 123456800.0}}),
        (123456789, 123456789),
    ],
)
def test_json_has_plain_numbers_of_seven_digits(value, clean):
    assert json.loads(json.dumps(folder.cleaned(value))) == clean


def test_rows_say_where_they_come_from():
    found = folder.environment()
    assert set(found["packages"]) == set(folder.PACKAGES)
    assert found["commit"] is None or len(found["commit"].rstrip("+")) == 40
    assert (found["backend"], len(found["devices"])) == ("cpu", 2)
    assert found["machine"] == folder.machine()


@pytest.mark.parametrize(
    ("text", "cpu"),
    [
        ("processor\t: 0\nmodel name\t: AMD EPYC 9B14\nprocessor\t: 1\nmodel name\t: AMD EPYC 9B14\n", "AMD EPYC 9B14"),
        ("processor\t: 0\nmodel\t: 17\n", "of the system"),  # as Linux on ARM has it
        (None, "of the system"),  # not Linux
    ],
)
def test_the_machine_is_the_model_of_its_processor_and_its_cores(tmp_path, monkeypatch, text, cpu):
    monkeypatch.setattr(platform, "processor", lambda: "of the system")
    if text is not None:
        (tmp_path / "cpuinfo").write_text(text)
    found = folder.machine(tmp_path / "cpuinfo")
    assert found["cpu"] == cpu
    assert 1 <= found["cores"] <= os.cpu_count()


def test_a_machine_without_a_name_is_unknown(tmp_path, monkeypatch):
    for name in ("processor", "machine"):
        monkeypatch.setattr(platform, name, str)
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    assert folder.machine(tmp_path / "none") == {"cpu": "unknown", "cores": os.cpu_count()}


def test_rows_of_before_the_machine_was_recorded_tell_their_devices():
    old = {"devices": ["cpu", "cpu"], "packages": {"jax": "0.10.2"}}
    assert folder.told_machine(old) == "2 x cpu, jax 0.10.2"
    new = old | {"machine": {"cpu": "AMD EPYC", "cores": 2}}
    assert folder.told_machine(new) == "2 x cpu, AMD EPYC, 2 cores, jax 0.10.2"
