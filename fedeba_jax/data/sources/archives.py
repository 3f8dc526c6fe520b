"""Files of a folder or an archive, read one after another: nothing is unpacked on disk."""

import lzma
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath

from fedeba_jax.data.sources.raw import DataError

_BROKEN = (
    tarfile.TarError,
    zipfile.BadZipFile,
    lzma.LZMAError,
    zlib.error,
    OSError,
    EOFError,
    RuntimeError,  # zipfile's word for an encrypted file
    ValueError,
)


MOST = 2**32
"""Bytes of one file, and of all wanted files together: an archive of a few kB that unpacks to more is a trap."""


def contents(source: Path, wanted: Callable[[str], bool]) -> Iterator[tuple[str, bytes]]:
    """(name, bytes) of the wanted files of a folder, tar or zip; names are relative, with slashes.

    Notes: an archive with a link, with a name that leads out of it, or with more than it can honestly hold (`MOST`), is
    refused: the official ones have none.
    """
    if source.is_dir():
        yield from _folder(source, wanted)
        return
    read = 0
    try:
        for name, content in (_zip if source.suffix == ".zip" else _tar)(source, wanted):
            read += len(content)
            _refuse_bomb(source, name, read)
            yield name, content
    except DataError:
        raise
    except _BROKEN as error:
        reason = str(error).partition("\n")[0]
        raise DataError(f"{source}: truncated or not an archive ({reason})") from None


def _folder(source: Path, wanted: Callable[[str], bool]) -> Iterator[tuple[str, bytes]]:
    for file in sorted(source.rglob("*")):
        name = file.relative_to(source).as_posix()
        if wanted(name) and file.is_file():
            try:
                yield name, file.read_bytes()
            except OSError as error:
                raise DataError(f"{file}: cannot be read ({error.strerror})") from None


def _tar(source: Path, wanted: Callable[[str], bool]) -> Iterator[tuple[str, bytes]]:
    with tarfile.open(source) as tar:
        for member in tar:
            _refuse_escape(source, member.name, member.issym() or member.islnk())
            content = tar.extractfile(member) if member.isreg() and wanted(member.name) else None
            if content is not None:
                _refuse_bomb(source, member.name, member.size)
                yield member.name, content.read()


def _zip(source: Path, wanted: Callable[[str], bool]) -> Iterator[tuple[str, bytes]]:
    with zipfile.ZipFile(source) as archive:
        for member in archive.infolist():
            _refuse_escape(source, member.filename, (member.external_attr >> 28) == 0o12)  # the type bits of a link
            if wanted(member.filename) and not member.is_dir():
                _refuse_bomb(source, member.filename, member.file_size)
                yield member.filename, archive.read(member)


def _refuse_escape(source: Path, name: str, link: bool) -> None:
    path = PurePosixPath(name.replace("\\", "/"))
    if link or path.is_absolute() or ".." in path.parts:
        what = "a link" if link else "a path that leads out of it"
        raise DataError(f"{source}: holds {what}, {name!r}; take the official archive")


def _refuse_bomb(source: Path, name: str, size: int) -> None:
    if size > MOST:
        raise DataError(f"{source}: unpacks to more than {MOST / 2**30:g} GiB at {name!r}; take the official archive")
