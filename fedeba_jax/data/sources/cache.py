"""The cache of decoded arrays: `DATA_DIR/NAME/cache`, read as memory maps."""

import json
import os
from contextlib import AbstractContextManager
from pathlib import Path
from typing import IO

import numpy as np

from fedeba_jax.data.sources.raw import ARRAYS, CLIENTS, DataError, Log, Raw
from fedeba_jax.files import replacing


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
            with _replacing(cache / f"{array}.npy") as file:
                np.save(file, value)
        record = {"source": source, "md5": md5, "num_classes": raw.num_classes, "client_names": raw.client_names}
        with _replacing(cache / "source.json") as file:
            file.write(json.dumps(record).encode())
    except OSError as error:
        log(f"not cached: {error}")


def _replacing(path: Path) -> AbstractContextManager[IO[bytes]]:
    """Two processes may fill one cache at the same time: each writes beside the other."""
    return replacing(path, path.with_name(f".{path.name}.{os.getpid()}.tmp"))
