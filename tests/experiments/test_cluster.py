"""Sweeps over a cluster, and in parts: the table of the plain sweep, whatever dies on the way."""

import os
import signal
import socket
import time
import types
import warnings
from pathlib import Path

import pytest

from experiments import sweep
from experiments.execution import cluster as cluster_module
from experiments.execution import folder
from experiments.execution.batches import How, Kept
from experiments.reporting import loading
from tests.support.runs import TINY_FLAGS, binary, compilations, make, start

RESULT_FILES = (folder.MARK, folder.RESULTS, folder.SUMMARY)
GRID = ["--algorithm=fedavg,fedeba", "--grid=lr=0.05,0.1", "--seeds=0,1", "--batch_runs=2", "--eval_every=2"]


def contents(out):
    return {name: (out / name).read_bytes() for name in RESULT_FILES}


@pytest.fixture(scope="module")
def cluster():
    """Two nodes of one CPU on this machine."""
    pytest.importorskip("ray", reason="Ray is not installed: pip install -e '.[ray]'")
    from ray.cluster_utils import Cluster

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
        made.other = made.add_node(num_cpus=1)
        yield made
        made.shutdown()


def workers():
    """The processes that run tasks now."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if path.read_text().startswith("ray::_task"):
                found.append(int(path.parent.name))
        except OSError:  # it ended meanwhile
            continue
    return found


def wait_for(happened, process, seconds=180):
    end = time.monotonic() + seconds
    while not happened():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < end
        time.sleep(0.05)


def rows_of_parts(out):
    return sum(len(folder.whole_rows(path)) for path in out.glob(f"parts/*/{folder.RESULTS}"))


@pytest.mark.filterwarnings("ignore")
def test_a_worker_the_driver_and_a_node_die_and_the_table_is_that_of_a_plain_sweep(tmp_path, cluster):
    flags = [*TINY_FLAGS, *GRID, "--rounds=60", f"--compilation_cache={tmp_path / 'cache'}"]
    whole, out = tmp_path / "whole", tmp_path / "out"
    plain = binary("experiments.sweep", *flags, f"--out={whole}")
    assert plain.returncode == 0, plain.stderr
    command = [*flags, f"--out={out}", "--ray", f"--ray_address={cluster.address}"]
    driver = start("experiments.sweep", *command)
    wait_for(lambda: rows_of_parts(out) > 4, driver)
    os.kill(workers()[0], signal.SIGKILL)
    before = rows_of_parts(out)
    wait_for(lambda: rows_of_parts(out) > before + 8 or not (out / "parts").exists(), driver)
    driver.kill()
    driver.communicate()
    driver = start("experiments.sweep", *command)
    wait_for(lambda: "rounds/s" in (driver.stdout.readline() or ""), driver)
    cluster.remove_node(cluster.other, allow_graceful=False)
    stdout, stderr = driver.communicate(timeout=300)
    assert (driver.returncode, stderr) == (0, ""), stdout
    assert contents(out) == contents(whole)
    assert not (out / "parts").exists()


def test_an_error_of_a_task_is_told_as_it_was_raised():
    ray = pytest.importorskip("ray", reason="Ray is not installed: pip install -e '.[ray]'")

    def failing(error):
        def get(reference):
            raise error

        return types.SimpleNamespace(get=get, exceptions=ray.exceptions)

    of_task = ray.exceptions.RayTaskError("task", "a traceback", ValueError("--lr is not valid"))
    with pytest.raises(ValueError, match="--lr is not valid"):
        cluster_module._result(failing(of_task), None)
    with pytest.raises(OSError, match="a task was lost 5 times"):
        cluster_module._result(failing(ray.exceptions.WorkerCrashedError()), None)


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        (["--cpus_per_task=2"], "--cpus_per_task has no effect without --ray; give both"),
        (["--shard=3/2"], "--shard=3/2 is not valid; give I/N with I from 1 to N, and N up to 8 runs"),
        (["--shard=a"], "--shard=a is not valid"),
    ],
)
def test_flags_that_do_not_fit_are_told(tmp_path, flags, told):
    done = binary("experiments.sweep", *TINY_FLAGS, *GRID, *flags, f"--out={tmp_path / 'out'}")
    assert done.returncode == 2
    assert done.stderr.startswith(f"error: {told}")
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("address", ["127.0.0.1:1", "127.0.0.1:99999", "no.such.host.invalid:6379"])
def test_an_address_where_nobody_listens_is_told_at_once(address):
    told = rf"--ray_address={address}: no cluster there \(.+\); start one there, or check the address"
    with pytest.raises(ValueError, match=told):
        cluster_module._check_address(address)


def test_an_address_where_somebody_listens_may_be_tried():
    with socket.create_server(("127.0.0.1", 0)) as listening:
        cluster_module._check_address(f"127.0.0.1:{listening.getsockname()[1]}")
    cluster_module._check_address("auto")


def test_the_tasks_of_a_worker_share_data_and_programs(tmp_path, monkeypatch):
    monkeypatch.setattr(cluster_module, "_set_up", lambda resources: None)
    monkeypatch.setattr(cluster_module, "_kept", lambda kept=Kept(): kept)  # noqa: B008  (one for this test)
    resources = cluster_module.Resources(cpus=1, gpus=0, address="", cache=None)
    options = {"data_dir": None, "checkpoint_every": 1}
    with compilations() as compiled:
        for seed in (0, 1):
            asked = make("fedavg", seeds=(seed,))
            cluster_module._task(asked, str(tmp_path / str(seed)), How(), options, resources)
    assert len(compiled) == 1
    assert len(cluster_module._kept().datasets) == 1


def test_parts_of_an_array_are_all_runs_once_and_share_compilations():
    asked = make(["fedavg", "fedeba"], grid=("lr=0.05,0.1,0.2",), seeds=(0, 1))
    for count in (1, 2, 5, 12):
        parts = [sweep.shard(asked, f"{number}/{count}") for number in range(1, count + 1)]
        assert sorted(run.id for part in parts for run in part) == sorted(run.id for run in asked)
        assert max(map(len, parts)) - min(map(len, parts)) <= 1
    assert [{run.algorithm for run in sweep.shard(asked, f"{number}/2")} for number in (1, 2)] == [
        {"fedavg"}, {"fedeba"}
    ]  # fmt: skip


@pytest.mark.slow
def test_an_array_of_jobs_is_reported_as_one_sweep(tmp_path):
    flags = [*TINY_FLAGS, *GRID, "--rounds=4"]
    assert binary("experiments.sweep", *flags, f"--out={tmp_path / 'whole'}").returncode == 0
    for number in (1, 2):
        done = binary("experiments.sweep", *flags, f"--out={tmp_path / 'array'}", f"--shard={number}/2")
        assert done.returncode == 0, done.stderr
    parts = sorted((tmp_path / "array").iterdir())
    assert [part.name for part in parts] == ["shard_1_of_2", "shard_2_of_2"]

    def figures(folders):
        series = loading.load(folders)
        return sorted((one.algorithm, one.settings["lr"], one.seed, str(one.evals)) for one in series)

    assert figures(parts) == figures([tmp_path / "whole"])
