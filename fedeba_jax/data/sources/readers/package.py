"""The images that come with the package."""

import lzma
import zipfile
from pathlib import Path

from fedeba_jax.data.sources import embedded
from fedeba_jax.data.sources.raw import DataError, Log, Raw, from_each, quiet


def read_embedded(folder: Path, log: Log = quiet) -> Raw:
    """The images in the package itself; the folder plays no part."""
    file = Path("embedded") / embedded.FILE
    try:
        return Raw(embedded.read(), from_each([file] * 4))
    except (OSError, EOFError, ValueError, lzma.LZMAError, zipfile.BadZipFile) as error:
        raise DataError(f"{file}: broken ({error})") from None
