"""The cache of decoded arrays: `DATA_DIR/NAME/cache`, read as memory maps."""

import json
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import IO, Any

import numpy as np

from fedeba_jax.data.sources.raw import ARRAYS, DataError, Raw, from_each


def read_cache(folder: Path) -> Raw | None:
    """The decoded arrays as memory maps, or None; `source.json`, written last, marks a whole cache."""
    cache = folder / "cache"
    if not (cache / "source.json").exists():
        return None
    file = cache / "source.json"
    arrays = {}
    try:
        source = str(json.loads(file.read_text())["source"])
        for array in ARRAYS:
            file = cache / f"{array}.npy"
            arrays[array] = np.load(file, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, EOFError, LookupError, TypeError) as error:
        raise DataError(f"{file}: broken ({error})") from None
    return Raw(arrays, from_each([cache / f"{array}.npy" for array in ARRAYS]), source)


def write_cache(folder: Path, arrays: dict[str, np.ndarray], source: str, log: Callable[[str], None]) -> None:
    """Keep the decoded arrays for the next load; a folder that cannot be written is only logged."""
    cache = folder / "cache"
    try:
        cache.mkdir(parents=True, exist_ok=True)
        for array, value in arrays.items():
            _write_atomically(cache / f"{array}.npy", partial(np.save, arr=value))
        record = json.dumps({"source": source}).encode()
        _write_atomically(cache / "source.json", lambda file: file.write(record))
    except OSError as error:
        log(f"not cached: {error}")


def _write_atomically(path: Path, write: Callable[[IO[bytes]], Any]) -> None:
    """Write beside the path, then rename: a reader sees the old file or the whole new one."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with open(temporary, "wb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
