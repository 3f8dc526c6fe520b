"""Fetching a data set: what is there is checked and told, what is not is an error."""

import numpy as np
import pytest
from absl.testing import flagsaver

from experiments import fetch
from fedeba_jax.data import sources
from fedeba_jax.data.sources.raw import ARRAYS, CLIENTS, Raw, Spec
from tests.support.runs import binary
from tests.support.tiny_set import break_file, write_idx

pytestmark = pytest.mark.usefixtures("parsed_flags")


def test_what_was_found_is_told(data_dir, arrays, capsys):
    write_idx(data_dir / "tiny", arrays)
    with flagsaver.flagsaver(dataset="tiny", data_dir=str(data_dir)):
        fetch.main()
    lines = capsys.readouterr().out.splitlines()
    assert any(line.startswith("tiny: train: 6 images [4, 5, 1], md5 ") for line in lines)
    assert any(line.startswith("tiny: test: 3 images [4, 5, 1], md5 ") for line in lines)
    assert lines[-1] == "tiny: ok, 3 classes, source: raw files"
    with flagsaver.flagsaver(dataset="tiny", data_dir=str(data_dir)):
        fetch.main()
    assert "tiny: ok, 3 classes" in capsys.readouterr().out


def test_a_set_of_texts_tells_its_clients_and_what_its_files_hold(data_dir, tmp_path, monkeypatch, capsys):
    def read(folder, log):
        tokens, clients = np.zeros((3, 10), np.int32), np.array([0, 1, 1], np.int32)
        arrays = {array: tokens for array in ARRAYS} | {array: clients for array in CLIENTS}
        return Raw(arrays, {array: [folder] for array in arrays}, num_classes=7, client_names=("Ann", "Bob"))

    spec = Spec((10,), (), (), {}, read, tfds=False, describe=lambda folder: [f"what {folder.name} holds"])
    monkeypatch.setitem(sources.DATASETS, "texts", spec)
    with flagsaver.flagsaver(dataset="texts", data_dir=str(tmp_path)):
        fetch.main()
    lines = capsys.readouterr().out.splitlines()
    assert "texts: what texts holds" in lines
    assert any(line.startswith("texts: train: 3 sequences [10], md5 ") for line in lines)
    assert lines[-1] == "texts: ok, 7 tokens, 2 clients, source: raw files"


def test_a_broken_file_is_an_error(data_dir, arrays):
    write_idx(data_dir / "tiny", arrays)
    break_file(data_dir / "tiny" / "train-images-idx3-ubyte", "truncate")
    with flagsaver.flagsaver(dataset="tiny", data_dir=str(data_dir)), pytest.raises(ValueError) as error:
        fetch.main()
    assert "train-images-idx3-ubyte" in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(("dataset", "message"), [(None, "--dataset is not set; choose one of"), ("none", "none")])
def test_a_data_set_must_be_named(dataset, message):
    with flagsaver.flagsaver(dataset=dataset), pytest.raises(ValueError, match=message):
        fetch.main()


def test_the_embedded_set_needs_no_fetching(capsys):
    with flagsaver.flagsaver(dataset="fashion_mnist_mini"):
        fetch.main()
    assert "fashion_mnist_mini: train: 10000 images [28, 28, 1]" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "code", "out", "err"),
    [
        (["--dataset=fashion_mnist_mini"], 0, "ok, 10 classes, source: embedded", ""),
        (["--dataset=imagenet"], 2, "", "error: unknown dataset 'imagenet'"),
        ([], 2, "", "error: --dataset is not set"),
    ],
)
def test_the_fetch_binary(arguments, code, out, err):
    done = binary("experiments.fetch", *arguments)
    assert done.returncode == code, done.stderr
    assert out in done.stdout
    assert err in done.stderr
    assert len(done.stderr.splitlines()) == (code != 0)
