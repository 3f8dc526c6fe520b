"""Data sets that tensorflow-datasets has prepared."""

import importlib.util
from pathlib import Path

import numpy as np

from fedeba_jax.data.sources.raw import ARRAYS, DataError, Raw, Unavailable


def read_tfds(folder: Path) -> Raw | None:
    """A prepared tfds data set, `folder/VERSION/`: read where it lies, never built or downloaded here."""
    prepared = sorted(folder.glob("[0-9]*/dataset_info.json"))
    if not prepared:
        return None
    version = prepared[-1].parent
    if importlib.util.find_spec("tensorflow_datasets") is None:
        raise Unavailable(f"{version} needs tensorflow-datasets: pip install 'fedeba_jax[tfds]'")
    import tensorflow_datasets as tfds

    arrays: dict[str, np.ndarray] = {}
    try:
        builder = tfds.builder_from_directory(version)
        for split in ("train", "test"):
            examples = list(builder.as_data_source(split=split))
            arrays[f"x_{split}"] = np.stack([example["image"] for example in examples])
            arrays[f"y_{split}"] = np.array([example["label"] for example in examples])
    except Exception as error:  # tfds raises many kinds
        reason = " ".join(f"{type(error).__name__}: {error}".split())[:200]
        raise DataError(f"{version}: not a readable array_record data set ({reason})") from None
    return Raw(arrays, {array: [version] for array in ARRAYS})
