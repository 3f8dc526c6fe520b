"""Tiny-ImageNet: the official folder `tiny-imagenet-200`, or its .zip."""

from pathlib import Path, PurePosixPath

import numpy as np

from fedeba_jax.data.sources.archives import contents
from fedeba_jax.data.sources.raw import DataError, Log, Raw, from_each, quiet
from fedeba_jax.data.sources.readers.jpegs import decode

NAME, SIZE = "tiny-imagenet-200", (64, 64)
_CLASSES, _ANNOTATIONS = "wnids.txt", "val/val_annotations.txt"


def read_tiny_imagenet(folder: Path, log: Log = quiet) -> Raw | None:
    """Training images, and the validation images as test images; classes in the order of wnids.txt.

    Notes: the official test images have no labels and are not read. A sample of the set has the same layout, with
    any number of images of a class.
    """
    source = next((path for path in (folder / NAME, folder / f"{NAME}.zip") if path.exists()), None)
    if source is None:
        return None
    root = "" if source.is_dir() else f"{NAME}/"
    found = {name.removeprefix(root): data for name, data in contents(source, lambda name: _wanted(name, root))}
    classes = {name: label for label, name in enumerate(_lines(source, found, _CLASSES))}
    annotated = dict(_annotation(source, line) for line in _lines(source, found, _ANNOTATIONS))
    arrays = {}
    for split, part in (("train", "train"), ("test", "val")):
        names = sorted(name for name in found if name.startswith(f"{part}/") and name.endswith(".JPEG"))
        if not names:
            raise DataError(f"{source}: has no images in {part}/")
        arrays[f"y_{split}"] = np.array([_label(source, name, classes, annotated) for name in names], np.int32)
        arrays[f"x_{split}"] = decode([(source / name, found[name]) for name in names], SIZE, log)
    files = from_each([source / name for name in ("train", _CLASSES, "val", _ANNOTATIONS)])
    return Raw(arrays, files, num_classes=len(classes))


def _wanted(name: str, root: str) -> bool:
    """Lists, and images that have labels."""
    path = PurePosixPath(name.removeprefix(root))
    image = path.suffix == ".JPEG" and path.parent.name == "images" and path.parts[0] in ("train", "val")
    return name.startswith(root) and (image or str(path) in (_CLASSES, _ANNOTATIONS))


def _lines(source: Path, found: dict[str, bytes], name: str) -> list[str]:
    if name not in found:
        raise DataError(f"{source}: has no file {name!r}")
    lines = found[name].decode("ascii", errors="replace").splitlines()
    return [line for line in lines if line.strip()]


def _annotation(source: Path, line: str) -> tuple[str, str]:
    """File name and class of a validation image; a box follows."""
    fields = line.split("\t")
    if len(fields) < 2:
        raise DataError(f"{source / _ANNOTATIONS}: a line is {line[:60]!r}, not a file, its class and a box")
    return fields[0], fields[1]


def _label(source: Path, name: str, classes: dict[str, int], annotated: dict[str, str]) -> int:
    """The class of an image: of a training image its folder, of a validation image its annotation."""
    path = PurePosixPath(name)
    if path.parts[0] == "val" and path.name not in annotated:
        raise DataError(f"{source / name}: is not in {_ANNOTATIONS}")
    wnid = annotated[path.name] if path.parts[0] == "val" else path.parts[1]
    if wnid not in classes:
        raise DataError(f"{source / name}: its class {wnid!r} is not in {_CLASSES}")
    return classes[wnid]
