"""What the makers of synthetic data share."""

from typing import Any

import numpy as np

from fedeba_jax.data.digests import md5_of
from fedeba_jax.data.sources.registry import Dataset


def made(
    name: str,
    arguments: dict[str, Any],
    num_classes: int,
    arrays: dict[str, np.ndarray],
    md5: dict[str, str] | None = None,
) -> Dataset:
    """The data set of generated arrays, which come with clients; its source says how to make it again.

    Test arrays may be missing: some of each client's examples are held out then.
    """
    told = ", ".join(f"{key}={value}" for key, value in arguments.items())
    fields: dict[str, Any] = {f"{kind}_test": arrays[f"{kind}_train"][:0] for kind in "xy"} | arrays
    source = f"generated: {name}({told})"
    return Dataset(name, **fields, num_classes=num_classes, source=source, md5=md5 or md5_of(arrays))


def owners(counts: np.ndarray) -> np.ndarray:
    """The client of each example, where those of a client follow each other."""
    return np.repeat(np.arange(len(counts), dtype=np.int32), counts)


def at_least(least: float, **given: float) -> None:
    """An error if an argument is smaller."""
    for name, value in given.items():
        if not value >= least:
            raise ValueError(f"{name}={value} is less than {least}; raise {name}")
