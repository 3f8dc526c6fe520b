"""Sets that tfds has prepared, or prepares when asked to fetch; a stand-in plays tfds."""

import importlib.util
import sys

import numpy as np
import pytest

from fedeba_jax.data import sources
from fedeba_jax.data.sources import fetching
from fedeba_jax.data.sources.raw import DataError, Unavailable
from tests.support.tiny_set import same, write_idx


@pytest.fixture
def fake_tfds(arrays, monkeypatch):
    """A stand-in for tensorflow_datasets that gives the examples in another order."""

    class Builder:
        def as_data_source(self, split):
            x, y = arrays[f"x_{split}"], arrays[f"y_{split}"]
            return [{"image": x[i], "label": int(y[i])} for i in reversed(range(len(y)))]

    module = type(sys)("tensorflow_datasets")
    module.builder_from_directory = lambda path: Builder()
    monkeypatch.setitem(sys.modules, "tensorflow_datasets", module)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: object())
    return module


def prepare(folder):
    (folder / "3.0.1").mkdir(parents=True)
    (folder / "3.0.1" / "dataset_info.json").write_text("{}")


def test_prepared_tfds_without_tfds_is_passed_over_with_a_reason(data_dir, arrays, monkeypatch):
    (data_dir / "tiny" / "3.0.1").mkdir(parents=True)
    (data_dir / "tiny" / "3.0.1" / "dataset_info.json").write_text("{}")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(DataError, match=r"prepared tfds \(.*fedeba_jax\[tfds\]"):
        sources.load("tiny", data_dir)


def test_a_prepared_tfds_set_is_read_and_comes_before_the_system_folder(data_dir, arrays, fake_tfds):
    write_idx(data_dir.parent / "system", arrays)
    prepare(data_dir / "tiny")
    got = sources.load("tiny", data_dir)
    assert got.source == "prepared tfds"
    assert same(got, sources.load("tiny", data_dir.parent / "other"))


def test_a_broken_tfds_set_is_an_error(data_dir, fake_tfds):
    prepare(data_dir / "tiny")
    fake_tfds.builder_from_directory = lambda path: None
    with pytest.raises(DataError, match=r"3\.0\.1: not a readable array_record.*prepared tfds"):
        sources.load("tiny", data_dir)


@pytest.mark.parametrize(
    ("array", "value", "message"),
    [
        ("x_train", np.full((6, 4, 5, 1), np.nan), r"3\.0\.1: x_train is float64\[6, 4, 5, 1\], expected uint8"),
        ("x_test", np.full((3, 4, 5, 1), np.inf), "x_test is float64"),
    ],
)
def test_pixels_that_are_no_bytes_are_refused(data_dir, arrays, fake_tfds, array, value, message):
    arrays[array] = value
    prepare(data_dir / "tiny")
    with pytest.raises(DataError, match=message):
        sources.load("tiny", data_dir)
    assert not (data_dir / "tiny" / "cache").exists()


def test_labels_that_are_no_integers_are_refused(data_dir, arrays, fake_tfds):
    class Halves:
        def as_data_source(self, split):
            return [{"image": image, "label": 0.5} for image in arrays[f"x_{split}"]]

    fake_tfds.builder_from_directory = lambda path: Halves()
    prepare(data_dir / "tiny")
    with pytest.raises(DataError, match=r"3\.0\.1: labels are float64, not integers"):
        sources.load("tiny", data_dir)


def test_tfds_online_is_the_last_resort(data_dir, fake_tfds, monkeypatch):
    def run(command, folder, timeout=0):
        if command[0] == "apt-get":
            raise Unavailable("apt-get is not installed")
        assert command[0] == sys.executable
        assert command[-3:] == ["tiny", str(data_dir), str(data_dir / "tiny" / "downloads")]
        prepare(data_dir / "tiny")

    monkeypatch.setattr(fetching, "run", run)
    assert sources.load("tiny", data_dir, fetch=True).source == "tfds online"
