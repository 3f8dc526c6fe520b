"""The cache of decoded arrays: `DATA_DIR/NAME/cache`, read as memory maps."""

import json
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import IO, Any

import numpy as np

from fedeba_jax.data.sources.raw import ARRAYS, CLIENTS, DataError, Log, Raw


def read_cache(folder: Path) -> Raw | None:
    """The decoded arrays as memory maps, or None; `source.json`, written last, marks a whole cache."""
    cache = folder / "cache"
    file = cache / "source.json"
    if not file.exists():
        return None
    try:
        record = json.loads(file.read_text())
        source, md5 = str(record["source"]), dict(record.get("md5", {}))
        num_classes, names = int(record.get("num_classes", 0)), tuple(record.get("client_names", ()))
        arrays = {}
        for array in (*ARRAYS, *CLIENTS) if names else ARRAYS:
            file = cache / f"{array}.npy"
            arrays[array] = np.load(file, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, EOFError, LookupError, TypeError, AttributeError) as error:
        raise DataError(f"{file}: broken ({error})") from None
    files = {array: [cache / f"{array}.npy"] for array in arrays}
    return Raw(arrays, files, source, num_classes, names, md5)


def write_cache(folder: Path, raw: Raw, source: str, md5: dict[str, str], log: Log) -> None:
    """Keep the decoded arrays for the next load; a folder that cannot be written is only logged."""
    cache = folder / "cache"
    try:
        cache.mkdir(parents=True, exist_ok=True)
        for array, value in raw.arrays.items():
            _write_atomically(cache / f"{array}.npy", partial(np.save, arr=value))
        record = {"source": source, "md5": md5, "num_classes": raw.num_classes, "client_names": raw.client_names}
        text = json.dumps(record).encode()
        _write_atomically(cache / "source.json", lambda file: file.write(text))
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
