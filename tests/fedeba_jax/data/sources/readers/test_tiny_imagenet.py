"""Tiny-ImageNet in its official layout, with few images: labels, greyscale, and every way to be broken."""

import io
import zipfile

import numpy as np
import pytest
from PIL import Image

from fedeba_jax.data import sources
from fedeba_jax.data.sources.raw import DataError
from fedeba_jax.data.sources.readers import jpegs
from tests.support.tiny_set import same

NAME = "tiny_imagenet_sample"
WNIDS = ("n2", "n1", "n3")  # not in alphabetical order: wnids.txt decides


def jpeg(level, mode="RGB", size=(64, 64)):
    stream = io.BytesIO()
    Image.new(mode, size, level if mode == "L" else (level, 0, 255 - level)).save(stream, "JPEG", quality=95)
    return stream.getvalue()


@pytest.fixture(scope="module")
def layout():
    """Two training images of each class (one of them greyscale) and one validation image, as files by name."""
    files = {
        f"train/{wnid}/images/{wnid}_{i}.JPEG": jpeg(40 * label + 10 * i, "L" if (label, i) == (0, 0) else "RGB")
        for label, wnid in enumerate(WNIDS)
        for i in range(2)
    }
    files |= {f"val/images/val_{i}.JPEG": jpeg(200 + 10 * i) for i in range(3)}
    annotations = "".join(f"val_{i}.JPEG\t{wnid}\t0\t0\t9\t9\n" for i, wnid in enumerate(("n3", "n2", "n1")))
    lists = {"wnids.txt": "\n".join(WNIDS), "words.txt": "n1\tcat", "val/val_annotations.txt": annotations}
    files |= {name: text.encode() for name, text in lists.items()}
    return {**files, "test/images/test_0.JPEG": b"has no label and is not read"}


def write_folder(data_dir, files, name=NAME):
    for path, data in files.items():
        file = data_dir / name / "tiny-imagenet-200" / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data)


def write_zip(data_dir, files):
    (data_dir / NAME).mkdir(parents=True)
    with zipfile.ZipFile(data_dir / NAME / "tiny-imagenet-200.zip", "w") as archive:
        for path, data in files.items():
            archive.writestr(f"tiny-imagenet-200/{path}", data)


def test_folder_zip_and_cache_give_the_same(layout, tmp_path):
    write_folder(tmp_path / "folder", layout)
    write_zip(tmp_path / "zip", layout)
    lines = []
    folder = sources.load(NAME, tmp_path / "folder", log=lines.append)
    assert f"{NAME}: decoded 6 of 6 images" in lines
    assert same(folder, sources.load(NAME, tmp_path / "zip"))
    again = sources.load(NAME, tmp_path / "folder")
    assert same(folder, again)
    assert isinstance(again.x_train, np.memmap)
    assert folder.num_classes == 3
    assert folder.x_train.shape == (6, 64, 64, 3)
    assert folder.x_train.dtype == np.uint8


def test_labels_are_those_of_the_list_and_grey_becomes_rgb(layout, tmp_path):
    write_folder(tmp_path, layout)
    got = sources.load(NAME, tmp_path)
    red = {int(image[32, 32, 0]): int(label) for image, label in zip(got.x_test, got.y_test, strict=True)}
    assert [red[level] for level in sorted(red)] == [2, 0, 1]  # val_0 is n3, val_1 is n2, val_2 is n1
    assert np.bincount(got.y_train).tolist() == [2, 2, 2]
    grey = [image for image in got.x_train if np.ptp(image.astype(int), axis=-1).max() == 0]
    assert len(grey) == 1
    assert got.y_train[[np.array_equal(image, grey[0]) for image in got.x_train]].tolist() == [0]


def test_pieces_come_back_in_order(layout, tmp_path, monkeypatch):
    write_folder(tmp_path / "one", layout)
    write_folder(tmp_path / "pieces", layout)
    whole = sources.load(NAME, tmp_path / "one")
    monkeypatch.setattr(jpegs, "_PIECE", 4)
    lines = []
    assert same(whole, sources.load(NAME, tmp_path / "pieces", log=lines.append))
    decoded = [line.removeprefix(f"{NAME}: decoded ") for line in lines if "decoded" in line]
    assert decoded == ["4 of 6 images", "6 of 6 images", "3 of 3 images"]


def test_a_sample_is_not_taken_for_the_whole(layout, tmp_path):
    write_folder(tmp_path, layout, "tiny_imagenet")
    with pytest.raises(DataError, match=r"x_train is uint8\[6, 64, 64, 3\], expected uint8\[100000, 64, 64, 3\]"):
        sources.load("tiny_imagenet", tmp_path)
    assert not (tmp_path / "tiny_imagenet" / "cache").exists()


IMAGE = "train/n1/images/n1_1.JPEG"


@pytest.mark.parametrize(
    ("path", "data", "message"),
    [
        (IMAGE, b"", rf"{IMAGE}: not a readable JPEG"),
        (IMAGE, jpeg(9)[:-200], rf"{IMAGE}: not a readable JPEG"),
        (IMAGE, b"GIF89a", rf"{IMAGE}: not a readable JPEG"),
        (IMAGE, jpeg(9, size=(32, 64)), rf"{IMAGE}: not a readable JPEG \(is 32 x 64 pixels, expected 64 x 64"),
        ("val/val_annotations.txt", b"val_0.JPEG\tn3\n", r"val_1\.JPEG: is not in val/val_annotations\.txt"),
        ("val/val_annotations.txt", b"val_0.JPEG n3\n", r"val_annotations\.txt: a line is 'val_0\.JPEG n3', not"),
        ("wnids.txt", b"n1\nn2\n", r"n3_0\.JPEG: its class 'n3' is not in wnids\.txt"),
    ],
)
def test_a_broken_file_is_named(layout, tmp_path, path, data, message):
    write_folder(tmp_path, {**layout, path: data})
    with pytest.raises(DataError, match=message) as error:
        sources.load(NAME, tmp_path)
    assert "and put a folder tiny-imagenet-200 with some of the official images in" in str(error.value)
    assert "\n" not in str(error.value)
    assert not (tmp_path / NAME / "cache").exists()


@pytest.mark.parametrize(
    ("part", "message"), [("wnids.txt", "has no file 'wnids.txt'"), ("val/images", "has no images in val/")]
)
def test_a_missing_part_is_named(layout, tmp_path, part, message):
    write_folder(tmp_path, {path: data for path, data in layout.items() if not path.startswith(part)})
    with pytest.raises(DataError, match=rf"tiny-imagenet-200: {message}"):
        sources.load(NAME, tmp_path)


def test_a_truncated_zip_is_named(layout, tmp_path):
    write_zip(tmp_path, layout)
    path = tmp_path / NAME / "tiny-imagenet-200.zip"
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(DataError, match=r"tiny-imagenet-200\.zip: truncated or not an archive"):
        sources.load(NAME, tmp_path)


def test_nothing_can_fetch_it_so_the_remedy_names_the_files(tmp_path):
    for fetch in (False, True):
        with pytest.raises(DataError, match=r"put the official folder tiny-imagenet-200, or its \.zip, in .*imagenet"):
            sources.load("tiny_imagenet", tmp_path, fetch=fetch)
