"""Files that are replaced whole or not at all."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import IO


@contextlib.contextmanager
def naming(path: Path) -> Iterator[None]:
    """Errors of writing that say which file: those of a full disk do not."""
    try:
        yield
    except OSError as error:
        error.filename = error.filename or str(path)
        raise


@contextlib.contextmanager
def replacing(path: Path, temporary: Path | None = None, keep: Path | None = None) -> Iterator[IO[bytes]]:
    """A file to write, which takes the place of `path` once it is whole and on the disk.

    Until then a reader sees the old file. A process that is killed leaves the temporary one behind, which nobody reads.

    Args:
      path: the file that is replaced, or made.
      temporary: where it is written, in the same folder; default `path` with ".tmp" behind it.
      keep: where the file that is replaced goes, in the same folder; None: it is gone.
    """
    temporary = temporary or path.with_name(f"{path.name}.tmp")
    try:
        with naming(path), open(temporary, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        if keep and path.exists():
            os.replace(path, keep)
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)  # or the new name may be lost with the power
    finally:
        os.close(folder)
