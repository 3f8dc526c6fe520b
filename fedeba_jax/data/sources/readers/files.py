"""Which of the files that a data set may consist of are there."""

from collections.abc import Sequence
from pathlib import Path

from fedeba_jax.data.sources.raw import DataError, file_names


def found(choices: Sequence[tuple[Path, ...]]) -> list[Path] | None:
    """The first existing file of each choice; None if there is none at all, an error if only some."""
    files = [next((file for file in choice if file.exists()), None) for choice in choices]
    if not any(files):
        return None
    missing = [choice[0] for choice, file in zip(choices, files, strict=True) if file is None]
    if missing:
        raise DataError(f"{file_names(missing)}: missing beside the other files")
    return [file for file in files if file is not None]
