"""Readers: idx files, CIFAR-10 in both layouts, the embedded set; a broken file is named in the error."""

import json
import lzma
import pickle
import struct

import numpy as np
import pytest

from fedeba_jax.data import sources
from fedeba_jax.data.sources import embedded
from fedeba_jax.data.sources.raw import DataError
from fedeba_jax.data.sources.readers import read_cifar10
from tests.support.tiny_set import IDX, break_file, same, spec_of, write_idx


def test_a_broken_embedded_file_is_an_error(monkeypatch):
    monkeypatch.setattr(embedded, "read", lambda: lzma.decompress(b"not xz"))
    with pytest.raises(DataError, match=r"npz\.xz: broken.*source: embedded.*reinstall"):
        sources.load("fashion_mnist_mini")


# idx files.


@pytest.mark.parametrize("compress", [False, True])
@pytest.mark.parametrize("how", ["truncate", "magic", "empty"])
@pytest.mark.parametrize("name", IDX)
def test_a_broken_file_is_named(data_dir, arrays, name, how, compress):
    write_idx(data_dir / "tiny", arrays, compress)
    break_file(data_dir / "tiny" / (name + ".gz" * compress), how)
    with pytest.raises(DataError, match=rf"{name}.*source: raw files\); delete the raw files") as error:
        sources.load("tiny", data_dir)
    assert "\n" not in str(error.value)


def test_an_incomplete_set_names_what_is_missing(data_dir, arrays):
    write_idx(data_dir / "tiny", arrays)
    (data_dir / "tiny" / IDX[3]).unlink()
    with pytest.raises(DataError, match=f"{IDX[3]}: missing"):
        sources.load("tiny", data_dir)


@pytest.mark.parametrize("shape", [(0, 4, 5), (-6, -4, 5)])
def test_an_absurd_header_is_refused(data_dir, arrays, shape):
    write_idx(data_dir / "tiny", arrays)
    payload = bytes(abs(shape[0] * shape[1] * shape[2]))
    (data_dir / "tiny" / IDX[0]).write_bytes(bytes([0, 0, 8, 3]) + struct.pack(">3i", *shape) + payload)
    with pytest.raises(DataError, match=IDX[0]):
        sources.load("tiny", data_dir)


# CIFAR-10 in both layouts.


@pytest.fixture
def cifar(monkeypatch):
    """Ten train images (two a file) and two test images."""
    rng = np.random.default_rng(1)
    arrays = {
        "x_train": rng.integers(0, 256, (10, 32, 32, 3), np.uint8),
        "y_train": np.arange(10) % 2,
        "x_test": rng.integers(0, 256, (2, 32, 32, 3), np.uint8),
        "y_test": np.arange(2),
    }
    monkeypatch.setitem(sources.DATASETS, "cifar10", spec_of(arrays, read=read_cifar10))
    return arrays


def write_sheets(folder, arrays):
    from PIL import Image

    folder.mkdir(parents=True)
    for i in range(5):
        sheet = arrays["x_train"][2 * i : 2 * i + 2].reshape(2, 1024, 3)
        Image.fromarray(sheet).save(folder / f"data_batch_{i + 1}.png")
    Image.fromarray(arrays["x_test"].reshape(2, 1024, 3)).save(folder / "test_batch.png")
    (folder / "train_lables.json").write_text(json.dumps(arrays["y_train"].tolist()))
    (folder / "test_lables.json").write_text(json.dumps(arrays["y_test"].tolist()))


def python2_pickle(x, y):
    """A batch as Python 2 wrote the official ones: protocol 2, byte strings, `numpy.core`."""

    def text(value):
        return b"T" + struct.pack("<i", len(value)) + value

    def number(value):
        return b"J" + struct.pack("<i", value)

    rows = x.transpose(0, 3, 1, 2).reshape(len(x), -1)
    array = (
        b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\n"
        + number(0)
        + b"\x85"
        + text(b"b")
        + b"\x87R("
        + number(1)
        + number(rows.shape[0])
        + number(rows.shape[1])
        + b"\x86"
        + b"cnumpy\ndtype\n"
        + text(b"u1")
        + number(0)
        + number(1)
        + b"\x87R("
        + number(3)
        + text(b"|")
        + b"NNN"
        + number(-1)
        + number(-1)
        + number(0)
        + b"tb"
        + b"\x89"
        + text(rows.tobytes())
        + b"tb"
    )
    labels = b"](" + b"".join(map(number, y.tolist())) + b"e"
    return b"\x80\x02}(" + text(b"data") + array + text(b"labels") + labels + b"u."


def python3_pickle(x, y):
    rows = x.transpose(0, 3, 1, 2).reshape(len(x), -1)
    return pickle.dumps({b"data": rows, b"labels": y.tolist()}, protocol=2)


def write_pickles(folder, arrays, dump):
    folder = folder / "cifar-10-batches-py"
    folder.mkdir(parents=True)
    for i in range(5):
        part = slice(2 * i, 2 * i + 2)
        (folder / f"data_batch_{i + 1}").write_bytes(dump(arrays["x_train"][part], arrays["y_train"][part]))
    (folder / "test_batch").write_bytes(dump(arrays["x_test"], arrays["y_test"]))


def test_cifar_is_the_same_from_sheets_and_from_pickles(cifar, tmp_path):
    write_sheets(tmp_path / "sheets" / "cifar10", cifar)
    write_pickles(tmp_path / "py2" / "cifar10", cifar, python2_pickle)
    write_pickles(tmp_path / "py3" / "cifar10", cifar, python3_pickle)
    sheets = sources.load("cifar10", tmp_path / "sheets")
    assert sheets.x_train.shape == (10, 32, 32, 3)
    assert same(sheets, sources.load("cifar10", tmp_path / "py2"))
    assert same(sheets, sources.load("cifar10", tmp_path / "py3"))


@pytest.mark.parametrize("how", ["truncate", "magic", "flip", "empty"])
@pytest.mark.parametrize("name", ["data_batch_3", "test_batch"])
def test_a_broken_cifar_batch_is_named(cifar, tmp_path, name, how):
    write_pickles(tmp_path / "cifar10", cifar, python2_pickle)
    break_file(tmp_path / "cifar10" / "cifar-10-batches-py" / name, how)
    with pytest.raises(DataError, match=name):
        sources.load("cifar10", tmp_path)


@pytest.mark.parametrize("name", ["data_batch_3.png", "test_batch.png", "train_lables.json"])
@pytest.mark.parametrize("how", ["magic", "empty"])
def test_a_broken_sheet_is_named(cifar, tmp_path, name, how):
    write_sheets(tmp_path / "cifar10", cifar)
    break_file(tmp_path / "cifar10" / name, how)
    with pytest.raises(DataError, match=name):
        sources.load("cifar10", tmp_path)


def test_a_truncated_sheet_is_named(cifar, tmp_path):
    write_sheets(tmp_path / "cifar10", cifar)
    sheet = tmp_path / "cifar10" / "data_batch_2.png"
    sheet.write_bytes(sheet.read_bytes()[:3000])
    with pytest.raises(DataError, match=r"data_batch_2\.png"):
        sources.load("cifar10", tmp_path)


def test_a_pickle_cannot_run_code(cifar, tmp_path):
    write_pickles(tmp_path / "cifar10", cifar, python2_pickle)
    evil = b"cos\nsystem\n(S'touch " + str(tmp_path / "evil").encode() + b"'\ntR."
    (tmp_path / "cifar10" / "cifar-10-batches-py" / "data_batch_1").write_bytes(evil)
    with pytest.raises(DataError, match=r"data_batch_1: .*os.system is not allowed"):
        sources.load("cifar10", tmp_path)
    assert not (tmp_path / "evil").exists()
