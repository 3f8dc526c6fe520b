"""Fetching a data set: what is there is checked and told, what is not is an error."""

import pytest
from absl.testing import flagsaver

from experiments import fetch
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
