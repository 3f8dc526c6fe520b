"""Pickles from elsewhere, which must not run code."""

import pickle
from typing import IO, Any

import numpy as np


def load_arrays(stream: IO[bytes]) -> Any:
    """Unpickle numpy arrays and plain containers; anything else is refused before it is called."""
    return _ArrayUnpickler(stream, encoding="bytes").load()


class _ArrayUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        allowed = {"ndarray": np.ndarray, "dtype": np.dtype}
        if module == "numpy" and name in allowed:
            return allowed[name]
        if module in ("numpy.core.multiarray", "numpy._core.multiarray") and name == "_reconstruct":
            return np.ndarray(0).__reduce__()[0]  # numpy's own _reconstruct, wherever this version keeps it
        if module == "_codecs" and name == "encode":
            return lambda text, _="latin1": text.encode("latin1")  # how Python 3 writes bytes in protocol 2
        raise pickle.UnpicklingError(f"{module}.{name} is not allowed")
