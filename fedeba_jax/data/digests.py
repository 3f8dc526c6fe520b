"""Checksums of arrays: two results whose data has the same md5 were trained on the same data."""

import hashlib
from collections.abc import Mapping

import numpy as np


def md5_of(arrays: Mapping[str, np.ndarray | None]) -> dict[str, str]:
    """The md5 of each array's bytes, by name; what is None or empty has none."""
    return {
        name: hashlib.md5(np.ascontiguousarray(array), usedforsecurity=False).hexdigest()  # type: ignore[arg-type]
        for name, array in arrays.items()
        if array is not None and array.size
    }
