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


def contents(source: Path, wanted: Callable[[str], bool]) -> Iterator[tuple[str, bytes]]:
    """(name, bytes) of the wanted files of a folder, tar or zip; names are relative, with slashes.

    Notes: an archive with a link, or with a name that leads out of it, is refused as a whole: the official
    ones have none.
    """
    if source.is_dir():
        yield from _folder(source, wanted)
        return
    try:
        yield from (_zip if source.suffix == ".zip" else _tar)(source, wanted)
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
                yield member.name, content.read()


def _zip(source: Path, wanted: Callable[[str], bool]) -> Iterator[tuple[str, bytes]]:
    with zipfile.ZipFile(source) as archive:
        for member in archive.infolist():
            _refuse_escape(source, member.filename, (member.external_attr >> 28) == 0o12)  # the type bits of a link
            if wanted(member.filename) and not member.is_dir():
                yield member.filename, archive.read(member)


def _refuse_escape(source: Path, name: str, link: bool) -> None:
    path = PurePosixPath(name.replace("\\", "/"))
    if link or path.is_absolute() or ".." in path.parts:
        what = "a link" if link else "a path that leads out of it"
        raise DataError(f"{source}: holds {what}, {name!r}; take the official archive")
