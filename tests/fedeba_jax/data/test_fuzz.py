"""Files of data with anything wrong in them are read, or refused in one line. The draws are fixed."""

import json
import pickle
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import strategies as st

from fedeba_jax.data import custom
from fedeba_jax.data.sources import readers
from tests.support.fuzzing import changed, changes, fuzz, refused
from tests.support.tiny_set import write_idx

FEW, MANY = 40, 1000  # examples of each property
RNG = np.random.default_rng(0)
IMAGES = {
    "x_train": RNG.integers(0, 256, (6, 4, 5, 1), np.uint8), "y_train": np.array([2, 0, 1, 1, 0, 2], np.uint8),
    "x_test": RNG.integers(0, 256, (3, 4, 5, 1), np.uint8), "y_test": np.array([1, 0, 2], np.uint8),
}  # fmt: skip


def write_npz(folder):
    client = np.array(["ann", "bob"] * 3)
    np.savez(folder / "own.npz", x=RNG.normal(size=(6, 4)), y=np.array([0, 1, 2, 0, 1, 2]), client=client)


def write_pickles(folder):
    (folder / "cifar-10-batches-py").mkdir()
    for name in (*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"):
        batch = {b"data": RNG.integers(0, 256, (1, 3072), np.uint8), b"labels": [3]}
        (folder / "cifar-10-batches-py" / name).write_bytes(pickle.dumps(batch, protocol=2))


def write_comments(folder):
    sequence = ["<BOS>", "a", "b", "<EOS>", *["<PAD>"] * 6]
    user = {"x": [[sequence]], "y": [{"target_tokens": [sequence]}]}
    for split in ("train", "test"):
        content = {"users": ["u", "v"], "num_samples": [1, 1], "user_data": {"u": user, "v": user}}
        (folder / f"{split}_data.json").write_text(json.dumps(content))


FORMATS = {
    "npz": (write_npz, lambda folder: custom.load(str(folder / "own.npz"))),
    "folder of npz": (write_npz, lambda folder: custom.load(str(folder))),
    "idx": (lambda folder: write_idx(folder, IMAGES), readers.read_idx),
    "idx.gz": (lambda folder: write_idx(folder, IMAGES, compress=True), readers.read_idx),
    "pickles": (write_pickles, readers.read_cifar10),
    "json": (write_comments, readers.read_reddit),
}


def a_damaged_file(name, number, at):
    write, read = FORMATS[name]
    with tempfile.TemporaryDirectory() as folder:
        write(Path(folder))
        files = sorted(file for file in Path(folder).rglob("*") if file.is_file())
        file = files[number % len(files)]
        file.write_bytes(changed(file.read_bytes(), at))
        refused(read, Path(folder))


def some_arrays(arrays):
    dataset = refused(custom.from_arrays, arrays.pop("x", None), arrays.pop("y", None), **arrays)
    if dataset is not None:
        assert len(dataset.x_train) == len(dataset.y_train) > 0
        assert dataset.y_train.max() < dataset.num_classes
        assert np.isfinite(dataset.x_train).all()


@st.composite
def array(draw):
    """Any kind, mostly of a shape and of values that might do."""
    shape = draw(st.one_of(st.sampled_from(((6, 4), (6,), (6, 2, 2, 1), (6, 3, 3))), st.lists(st.integers(0, 3))))
    kind = draw(st.sampled_from(("i4", "i8", "u1", "u8", "f4", "f8", "f2", "?", "U3", "S2", "c8", "M8[s]", "O", "V2")))
    values = np.resize(draw(st.lists(st.integers(0, 3), min_size=1, max_size=6)), shape).astype(kind)
    if values.size and draw(st.booleans()):
        odd = {"f": (np.nan, -np.inf), "i": (-1, 2**31 - 1), "u": (200,)}.get(values.dtype.kind)
        values.flat[-1] = draw(st.sampled_from(odd)) if odd else values.flat[-1]
    return values


PROPERTIES = {
    a_damaged_file: st.tuples(st.sampled_from(list(FORMATS)), st.integers(0, 3), changes),
    some_arrays: st.tuples(st.dictionaries(st.sampled_from(custom.KEYS), array(), min_size=1)),
}


@pytest.mark.parametrize("check", PROPERTIES, ids=lambda check: check.__name__)
def test_data_is_read_or_refused_in_one_line(check):
    fuzz(check, PROPERTIES[check], FEW)


@pytest.mark.slow
@pytest.mark.parametrize("check", PROPERTIES, ids=lambda check: check.__name__)
def test_much_more_data_is_read_or_refused_in_one_line(check):
    fuzz(check, PROPERTIES[check], MANY)
