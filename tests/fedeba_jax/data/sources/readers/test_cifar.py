"""CIFAR-10 in both layouts, CIFAR-100 as folder and archive; a broken file is named in the error."""

import hashlib
import io
import json
import pickle
import struct
import tarfile
from functools import partial

import numpy as np
import pytest

from fedeba_jax.data import sources
from fedeba_jax.data.sources.raw import DataError
from fedeba_jax.data.sources.readers import read_cifar10, read_cifar100
from tests.support.tiny_set import break_file, same, spec_of

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


# CIFAR-100: the official folder, or its archive.


def python3_pickle100(x, y):
    rows = x.transpose(0, 3, 1, 2).reshape(len(x), -1)
    return pickle.dumps({b"data": rows, b"fine_labels": y.tolist(), b"coarse_labels": [0] * len(y)}, protocol=2)


@pytest.fixture
def cifar100(cifar, monkeypatch):
    """The two files of CIFAR-100, as bytes; the spec knows their md5."""
    files = {split: python3_pickle100(cifar[f"x_{split}"], cifar[f"y_{split}"]) for split in ("train", "test")}
    md5 = {split: hashlib.md5(data).hexdigest() for split, data in files.items()}
    spec = spec_of(cifar, read=partial(read_cifar100, md5=md5))._replace(md5={})
    monkeypatch.setitem(sources.DATASETS, "cifar100", spec)
    return files


def write_folder(data_dir, files):
    folder = data_dir / "cifar100" / "cifar-100-python"
    folder.mkdir(parents=True)
    for name, data in files.items():
        (folder / name).write_bytes(data)
    return folder


def write_archive(data_dir, files):
    (data_dir / "cifar100").mkdir(parents=True)
    archive = data_dir / "cifar100" / "cifar-100-python.tar.gz"
    with tarfile.open(archive, "w:gz") as tar:
        for name, data in files.items():
            member = tarfile.TarInfo(f"cifar-100-python/{name}")
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    return archive


def test_cifar100_is_the_same_from_the_folder_the_archive_and_the_cache(cifar, cifar100, tmp_path):
    write_folder(tmp_path / "folder", cifar100)
    write_archive(tmp_path / "archive", {**cifar100, "meta": b"label names"})
    folder = sources.load("cifar100", tmp_path / "folder")
    archive = sources.load("cifar100", tmp_path / "archive")
    assert same(folder, archive)
    assert folder.num_classes == 2
    assert np.bincount(folder.y_train).tolist() == [5, 5]
    again = sources.load("cifar100", tmp_path / "archive")
    assert same(again, archive)
    assert again.md5 == archive.md5 == folder.md5
    image = next(i for i in range(10) if np.array_equal(cifar["x_train"][i], folder.x_train[0]))
    assert folder.y_train[0] == cifar["y_train"][image]


def test_the_md5_of_an_official_file_is_checked(cifar, cifar100, tmp_path):
    other = python3_pickle100(cifar["x_test"][::-1], cifar["y_test"])
    write_folder(tmp_path, {**cifar100, "test": other})
    with pytest.raises(DataError, match=r"cifar-100-python/test: has md5 .*, expected .*; take the official"):
        sources.load("cifar100", tmp_path)
    assert not (tmp_path / "cifar100" / "cache").exists()


def test_a_changed_cache_of_a_set_without_known_md5_is_found(cifar100, tmp_path):
    write_folder(tmp_path, cifar100)
    sources.load("cifar100", tmp_path)
    break_file(tmp_path / "cifar100" / "cache" / "x_test.npy", "flip")
    with pytest.raises(DataError, match=r"x_test\.npy: x_test has md5 .*delete .*cache and try again"):
        sources.load("cifar100", tmp_path)


def test_a_truncated_archive_is_named(cifar100, tmp_path):
    archive = write_archive(tmp_path, cifar100)
    archive.write_bytes(archive.read_bytes()[:9000])
    with pytest.raises(DataError, match=r"cifar-100-python\.tar\.gz: truncated or not an archive.*delete the raw"):
        sources.load("cifar100", tmp_path)


def test_a_missing_file_is_named(cifar100, tmp_path):
    write_folder(tmp_path, {"train": cifar100["train"]})
    with pytest.raises(DataError, match="cifar-100-python: has no file 'test'"):
        sources.load("cifar100", tmp_path)


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        (b"fine_labels", [0.5] * 2, "labels are float64, not integers"),
        (b"fine_labels", [0, None], "labels are object, not integers"),
        (b"fine_labels", [0, 7], r"y_test has 7, expected values in \[0, 1\]"),
        (b"fine_labels", [0], "1 labels for 2 images"),
        (b"data", np.full((2, 3072), np.nan), "pixels are float64, not uint8"),
        (b"data", np.zeros((2, 3000), np.uint8), "cannot reshape"),
    ],
)
def test_wrong_values_are_refused(cifar, tmp_path, monkeypatch, key, value, message):
    good = {b"data": np.zeros((2, 3072), np.uint8), b"fine_labels": [0, 1]}
    files = {"train": python3_pickle100(cifar["x_train"], cifar["y_train"]), "test": pickle.dumps({**good, key: value})}
    md5 = {split: hashlib.md5(data).hexdigest() for split, data in files.items()}
    spec = spec_of(cifar, read=partial(read_cifar100, md5=md5))._replace(md5={})
    monkeypatch.setitem(sources.DATASETS, "cifar100", spec)
    write_folder(tmp_path, files)
    with pytest.raises(DataError, match=message) as error:
        sources.load("cifar100", tmp_path)
    assert "cifar-100-python/test" in str(error.value)
    assert "\n" not in str(error.value)


def test_a_cifar100_pickle_with_foreign_objects_is_refused(cifar, tmp_path, monkeypatch):
    """Even where its md5 is the expected one: what is unpickled must not run code."""
    evil = b"cos\nsystem\n(S'touch " + str(tmp_path / "evil").encode() + b"'\ntR."
    md5 = dict.fromkeys(("train", "test"), hashlib.md5(evil).hexdigest())
    monkeypatch.setitem(sources.DATASETS, "cifar100", spec_of(cifar, read=partial(read_cifar100, md5=md5)))
    write_folder(tmp_path, {"train": evil, "test": evil})
    with pytest.raises(DataError, match=r"cifar-100-python/.*: not a CIFAR batch .*os.system is not allowed"):
        sources.load("cifar100", tmp_path)
    assert not (tmp_path / "evil").exists()


def test_a_cifar100_archive_that_leads_out_is_refused(cifar100, tmp_path):
    archive = write_archive(tmp_path, {"../../out": b"x", **cifar100})
    with pytest.raises(DataError, match=r"cifar-100-python\.tar\.gz: holds a path that leads out of it"):
        sources.load("cifar100", tmp_path)
    assert [path.name for path in archive.parent.iterdir()] == [archive.name]
