"""Data sets by name: every source gives the same checked arrays, in one order of trying."""

import hashlib

import numpy as np
import pytest

from fedeba_jax.data import sources
from fedeba_jax.data.sources.embedded import make
from fedeba_jax.data.sources.raw import ARRAYS, DataError
from tests.support.tiny_set import IDX, break_file, same, write_idx

# The embedded set is real.


def test_the_embedded_images_are_what_they_should_be():
    mini = sources.load("fashion_mnist_mini")
    assert mini.x_train.shape == (10000, 28, 28, 1)
    assert mini.x_test.shape == (2000, 28, 28, 1)
    assert mini.x_train.dtype == mini.x_test.dtype == np.uint8
    assert mini.y_train.dtype == mini.y_test.dtype == np.int32
    assert np.bincount(mini.y_train).tolist() == [1000] * 10
    assert np.bincount(mini.y_test).tolist() == [200] * 10
    assert mini.source == "embedded"
    assert mini.num_classes == 10
    assert mini.md5 == sources.DATASETS["fashion_mnist_mini"].md5
    assert hashlib.md5(mini.x_train.tobytes()).hexdigest() == "dbe6430265706a5f7131d13265307ca5"
    assert len({image.tobytes() for image in mini.x_train} & {image.tobytes() for image in mini.x_test}) == 0
    trousers, bags = mini.x_train[mini.y_train == 1], mini.x_train[mini.y_train == 8]
    assert trousers[:, :, :5].mean() < 10 < bags[:, :, :5].mean()  # labels fit images: trousers are narrow


def test_the_mini_set_takes_the_first_of_each_class(arrays):
    dataset = sources.Dataset("x", **arrays, num_classes=3, source="", md5={})
    mini = make.make_mini(dataset, train_per_class=1, test_per_class=1)
    assert mini["y_train"].tolist() == [0, 1, 2]
    assert np.array_equal(mini["x_train"], arrays["x_train"][[1, 2, 0]])
    assert np.array_equal(mini["x_test"], arrays["x_test"][[1, 0, 2]])
    assert make.pack(mini) == make.pack(make.make_mini(dataset, 1, 1))


# Order of sources.


def test_every_source_gives_the_same_arrays(data_dir, arrays, monkeypatch):
    write_idx(data_dir / "tiny", arrays, compress=True)
    raw = sources.load("tiny", data_dir)
    shuffled = {**arrays}
    shuffled["x_train"], shuffled["y_train"] = arrays["x_train"][::-1], arrays["y_train"][::-1]
    write_idx(data_dir.parent / "system", shuffled)
    system = sources.load("tiny", data_dir.parent / "other")
    assert raw.source == "raw files"
    assert system.source == f"system folder {data_dir.parent / 'system'}"
    assert same(raw, system)
    assert raw.md5 == system.md5
    assert sorted(raw.y_train.tolist()) == [0, 0, 1, 1, 2, 2]
    for image, label in zip(arrays["x_train"], arrays["y_train"], strict=True):  # pairs stay together
        at = [np.array_equal(image, other) for other in raw.x_train].index(True)
        assert raw.y_train[at] == label


def test_raw_files_come_before_the_system_folder_and_tries_are_logged(data_dir, arrays):
    write_idx(data_dir.parent / "system", arrays)
    lines = []
    sources.load("tiny", data_dir, log=lines.append)
    assert lines == [
        "tiny: cache: none",
        "tiny: raw files: none",
        "tiny: prepared tfds: none",
        f"tiny: read from system folder {data_dir.parent / 'system'}",
    ]
    write_idx(data_dir.parent / "both" / "tiny", arrays)
    assert sources.load("tiny", data_dir.parent / "both").source == "raw files"


def test_the_data_dir_comes_from_the_environment(data_dir, arrays, monkeypatch):
    write_idx(data_dir / "tiny", arrays)
    monkeypatch.setenv("FEDEBA_DATA", str(data_dir))
    assert sources.load("tiny").source == "raw files"


def test_a_broken_source_does_not_fall_back(data_dir, arrays):
    write_idx(data_dir.parent / "system", arrays)
    write_idx(data_dir / "tiny", arrays)
    break_file(data_dir / "tiny" / IDX[0], "flip")
    with pytest.raises(DataError, match="md5"):
        sources.load("tiny", data_dir)


# Missing data.


def test_missing_data_says_what_to_run(data_dir, monkeypatch):
    monkeypatch.setenv("FEDEBA_DATA", str(data_dir))
    with pytest.raises(DataError, match="run `make data DATASET=tiny`") as error:
        sources.load("tiny")
    assert "\n" not in str(error.value)
    with pytest.raises(DataError, match=r"--dataset=tiny --data_dir=.*other"):
        sources.load("tiny", data_dir / "other")
    assert not data_dir.exists()  # asking leaves nothing behind


def test_unknown_names_list_the_known():
    with pytest.raises(DataError, match=r"unknown dataset 'imagenet'.*cifar10, .*fashion_mnist"):
        sources.load("imagenet")


# The registry.


@pytest.mark.parametrize("name", ["fashion_mnist", "mnist", "cifar10", "fashion_mnist_mini"])
def test_the_registry_is_whole(name):
    spec = sources.DATASETS[name]
    assert len(spec.train_counts) == len(spec.test_counts) == 10
    assert set(spec.md5) == set(ARRAYS)
    assert all(len(md5) == 32 for md5 in spec.md5.values())
    assert (sum(spec.train_counts), sum(spec.test_counts)) == {
        "fashion_mnist": (60000, 10000),
        "mnist": (60000, 10000),
        "cifar10": (50000, 10000),
        "fashion_mnist_mini": (10000, 2000),
    }[name]


def test_cifar100_has_known_counts_and_files():
    spec = sources.DATASETS["cifar100"]
    assert (len(spec.train_counts), sum(spec.train_counts), sum(spec.test_counts)) == (100, 50000, 10000)
    assert spec.md5 == {}  # of the files instead: see the reader


def test_tiny_imagenet_has_known_counts():
    spec = sources.DATASETS["tiny_imagenet"]
    assert (len(spec.train_counts), sum(spec.train_counts), sum(spec.test_counts)) == (200, 100_000, 10_000)
