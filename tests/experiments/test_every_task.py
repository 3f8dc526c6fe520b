"""Every task runs two rounds and an evaluation, with its own network, on tiny data of its shape."""

import functools

import numpy as np
import pytest

from experiments.command import datasets
from experiments.command.tasks import TASKS
from fedeba_jax.data.sources import DATASETS, Dataset
from fedeba_jax.data.synthetic import SYNTHETIC
from fedeba_jax.models import OF_VALUES, mobile, residual
from tests.support.runs import execute, make

CLIENTS = 3
SMALL = {"synthetic_text": "synthetic_text(clients=3, vocabulary=50)", "synthetic_uniform": "synthetic_uniform(3)"}


def images(name, spec):
    """Forty training images and twenty test images, of ten of the labels."""
    rng = np.random.default_rng(0)
    classes = len(spec.train_counts) or 200
    sizes = {"train": 40, "test": 20}
    x = {f"x_{split}": rng.integers(0, 256, (size, *spec.shape), np.uint8) for split, size in sizes.items()}
    y = {f"y_{split}": (np.arange(size) % 10).astype(np.int32) for split, size in sizes.items()}
    return Dataset(name, **x, **y, num_classes=classes, source="made", md5={})


def sequences(name, spec):
    """Four sequences of each client for training, two for the test; every tenth target does not count."""
    rng = np.random.default_rng(0)
    arrays = {}
    for split, each in (("train", 4), ("test", 2)):
        shape = (CLIENTS * each, *spec.shape)
        arrays[f"x_{split}"] = rng.integers(0, 80, shape).astype(np.int32)
        arrays[f"y_{split}"] = np.where(rng.random(shape) < 0.1, -1, rng.integers(0, 80, shape)).astype(np.int32)
        arrays[f"client_{split}"] = np.repeat(np.arange(CLIENTS, dtype=np.int32), each)
    return Dataset(name, **arrays, num_classes=84, source="made", md5={}, client_names=("a", "b", "c"))


def own(path):
    """A file of own data."""
    rng = np.random.default_rng(0)
    np.savez(path, x=rng.normal(size=(30, 4)).astype(np.float32), y=np.arange(30) % 3, client=np.arange(30) % CLIENTS)
    return datasets.own(str(path))


@pytest.fixture
def tiny(monkeypatch):
    """Data sets of the registry are tiny."""
    load = datasets.load

    def tiny_load(text, data_dir):
        if text not in DATASETS:
            return load(text, data_dir)
        spec = DATASETS[text]
        return sequences(text, spec) if spec.tokens else images(text, spec)

    monkeypatch.setattr(datasets, "load", tiny_load)


@pytest.fixture
def shallow(monkeypatch):
    """The deep networks have one block of each kind; compiling all of them takes half a minute."""
    monkeypatch.setattr(residual, "BLOCKS", 1)
    few = [blocks._replace(number=1) for blocks in mobile.PAPER]
    monkeypatch.setitem(OF_VALUES, "mobilenet_v2", functools.partial(mobile.mobilenet_v2, blocks=few))


@pytest.mark.parametrize("name", TASKS)
def test_a_task_runs(name, tmp_path, tiny, shallow):
    check_runs(name, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name, task in TASKS.items() if task.model in ("resnet18", "mobilenet_v2")])
def test_a_task_runs_with_its_whole_network(name, tmp_path, tiny):
    check_runs(name, tmp_path)


def check_runs(name, tmp_path):
    task = TASKS[name]
    changes = {"cohort_size": 2, "steps": 1, "batch_size": 2, "rounds": 2, "eval_every": 2}
    changes["clients"] = CLIENTS if task.clients else 0
    if task.dataset in SYNTHETIC:
        changes["dataset"] = SMALL.get(task.dataset, f"{task.dataset}(clients=3)")
    if name == "custom":
        changes["dataset"] = own(tmp_path / "own.npz")
    (run,) = make("fedavg", task_name=name, **changes)
    (row,) = execute([run], tmp_path / "run", client_map="map")  # a smaller program than over two devices
    assert row["round"] == 2
    assert row["status"] == "ok"
    assert 0 <= row["mean"] <= 100
    assert row["loss"] > 0
