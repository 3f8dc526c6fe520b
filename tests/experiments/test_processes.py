"""Several processes are one: the same results, the same files, the same end."""

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import jax
import numpy as np
import pytest

from experiments.execution import folder, processes
from fedeba_jax import client_map as maps
from tests.support import over_processes
from tests.support.marks import slow_but
from tests.support.runs import ROOT, TINY_FLAGS, binary, start

RESULT_FILES = (folder.MARK, folder.RESULTS, folder.ROUNDS, folder.SUMMARY)
FLAGS = [*TINY_FLAGS, "--cohort_size=4", "--rounds=24", "--eval_every=2", "--noplot"]
SETTINGS = {
    "fedavg": ["--algorithm=fedavg"],
    "fedeba_plus": ["--algorithm=fedeba_plus"],
    "ditto": ["--algorithm=ditto"],
    "fedfv": ["--algorithm=fedfv"],
    "fedeba_plus, varp": ["--algorithm=fedeba_plus", "--server=varp(1.0)"],
    "ditto, from the host": ["--algorithm=ditto", "--data_budget=0"],
}


def contents(out):
    return {name: (out / name).read_bytes() for name in RESULT_FILES}


def launched(*arguments):
    return start("experiments.launch", "--processes=2", "--", "train", *arguments)


def wait_for(path, process, seconds=120):
    end = time.monotonic() + seconds
    while not path.exists():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < end
        time.sleep(0.02)


def children(process):
    """The processes that a launch started, by their numbers."""
    pids = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    commands = {int(pid): Path(f"/proc/{pid}/cmdline").read_text() for pid in pids}
    return {int(re.search(r"--process_id=(\d+)", command)[1]): pid for pid, command in commands.items()}


def begun_by_two(tmp_path, setting):
    """Flags, the folder of an undisturbed run of one process, and that of two that have begun, which are running."""
    flags = [*FLAGS, *SETTINGS[setting], f"--compilation_cache={tmp_path / 'cache'}"]
    whole, out = tmp_path / "whole", tmp_path / "out"
    alone = binary("experiments.train", *flags, "--host_devices=2", f"--out={whole}")
    assert alone.returncode == 0, alone.stderr
    process = launched(*flags, "--host_devices=1", f"--out={out}")
    wait_for(out / folder.RESULTS, process)
    return flags, whole, out, process


@pytest.mark.parametrize("killed", slow_but([1], [0, 1]))
@pytest.mark.parametrize("setting", slow_but(["fedeba_plus, varp"], SETTINGS))
def test_two_processes_one_of_which_dies_are_resumed_to_the_bytes_of_one(tmp_path, setting, killed):
    flags, whole, out, process = begun_by_two(tmp_path, setting)
    begun = time.monotonic()
    os.kill(children(process)[killed], signal.SIGKILL)
    _, stderr = process.communicate(timeout=60)
    assert time.monotonic() - begun < 20
    assert process.returncode == 1
    told = [f"error: a process died (told by process {number}); the same command resumes" for number in (0, 1)]
    assert sorted(stderr.splitlines()) == told
    assert len((out / folder.RESULTS).read_text().splitlines()) < 12
    process = launched(*flags, "--host_devices=1", f"--out={out}")
    stdout, stderr = process.communicate(timeout=300)
    assert (process.returncode, stderr) == (0, "")
    assert stdout.count("results: ") == 1
    assert contents(out) == contents(whole)


@pytest.mark.slow
@pytest.mark.parametrize("setting", ["ditto", "fedeba_plus, varp"])
def test_a_run_of_two_processes_is_resumed_by_one(tmp_path, setting):
    """With two devices to the same bytes; with three, whose rows are padded otherwise, up to rounding."""
    flags, whole, out, process = begun_by_two(tmp_path, setting)
    os.kill(children(process)[1], signal.SIGKILL)
    process.communicate(timeout=60)
    assert len((out / folder.RESULTS).read_text().splitlines()) < len((whole / folder.RESULTS).read_text().splitlines())
    shutil.copytree(out, tmp_path / "three")
    for devices, resumed in ((2, out), (3, tmp_path / "three")):
        done = binary("experiments.train", *flags, f"--host_devices={devices}", f"--out={resumed}")
        assert done.returncode == 0, done.stderr
    assert contents(out) == contents(whole)
    losses = [[row["loss"] for row in folder.read_rows(path / folder.RESULTS)] for path in (whole, tmp_path / "three")]
    np.testing.assert_allclose(*losses, rtol=0.05)


@pytest.mark.parametrize(("count", "devices"), slow_but([(2, 2)], [(2, 1), (2, 2)]))
def test_rounds_over_processes_are_those_of_one(tmp_path, count, devices):
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    command = [sys.executable, "-m", "tests.support.over_processes", str(port)]
    several = [
        subprocess.Popen([*command, str(i), str(count), str(devices), str(tmp_path / "models.npz")], cwd=ROOT)
        for i in range(count)
    ]
    expected = over_processes.in_both_precisions(lambda: maps.mapped)
    assert [process.wait(300) for process in several] == [0] * count
    got = dict(np.load(tmp_path / "models.npz"))
    assert got.keys() == expected.keys()
    for name, value in expected.items():
        tolerance = 1e-8 if value.dtype == np.float64 else 1e-5
        np.testing.assert_allclose(got[name], value, rtol=tolerance, atol=tolerance, err_msg=name)


def test_processes_that_were_started_with_other_flags_are_told(monkeypatch):
    monkeypatch.setattr(jax, "process_count", lambda: 2)
    monkeypatch.setattr(processes.multihost_utils, "process_allgather", lambda own: np.stack([own, own]))
    processes.check_same(settings="a", data="b")

    def gather(own):
        return np.stack([own, own + np.array([[0], [1]], np.uint8)])

    monkeypatch.setattr(processes.multihost_utils, "process_allgather", gather)
    with pytest.raises(ValueError, match="process 1 has other data than process 0; start all with the same command"):
        processes.check_same(settings="a", data="b")


@pytest.mark.slow
def test_other_flags_end_all_processes_in_one_line(tmp_path):
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{found.getsockname()[1]}"
    together = ["--distributed", f"--coordinator_address={address}", "--num_processes=2"]
    both = [
        start("experiments.train", *FLAGS, *together, f"--process_id={i}", f"--lr={rate}", f"--out={tmp_path / 'out'}")
        for i, rate in enumerate((0.1, 0.2))
    ]
    for process in both:
        _, stderr = process.communicate(timeout=120)
        assert stderr == (
            "error: process 1 has other settings than process 0; start all with the same command, data and version\n"
        )
        assert process.returncode == 2
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_what_slurm_tells_its_tasks_is_enough(tmp_path, monkeypatch):
    flags = [*TINY_FLAGS, "--cohort_size=4", "--algorithm=fedavg", "--data_budget=0"]
    alone = binary("experiments.train", *flags, "--noplot", "--host_devices=2", f"--out={tmp_path / 'alone'}")
    assert alone.returncode == 0, alone.stderr
    told = {"JOB_ID": os.getpid(), "STEP_NODELIST": "localhost", "NTASKS": 2}
    both = []
    for number in (0, 1):
        for name, value in (told | {"PROCID": number, "LOCALID": number}).items():
            monkeypatch.setenv(f"SLURM_{name}", str(value))
        command = [*flags, "--distributed", "--host_devices=1", f"--out={tmp_path / 'out'}"]
        both.append(start("experiments.train", *command))
    for process in both:
        _, stderr = process.communicate(timeout=300)
        assert (process.returncode, stderr) == (0, "")
    assert contents(tmp_path / "out") == contents(tmp_path / "alone")
    assert list((tmp_path / "out").glob("*.png")), "the first goes on alone, and draws"


def test_flags_of_processes_need_to_be_told_to_come_together(tmp_path):
    done = binary("experiments.train", *FLAGS, "--num_processes=2", f"--out={tmp_path / 'out'}")
    assert (done.returncode, done.stderr) == (
        2, "error: --num_processes has no effect without --distributed; give both\n"
    )  # fmt: skip


def test_launch_starts_train_and_sweep_alone():
    done = binary("experiments.launch", "--processes=2", "--", "demo")
    assert done.returncode == 2
    assert done.stderr == "error: 'demo' cannot be launched; write -- and then train or sweep with its flags\n"
