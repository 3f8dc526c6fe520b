"""Faults of the machine while runs are going on: one clear line, and the same command resumes."""

import contextlib
import errno
import resource

import jax
import pytest

from experiments.command import cli
from experiments.execution import folder
from experiments.execution.batches import Group
from tests.support.runs import execute, make

pytestmark = [pytest.mark.xdist_group("runner"), pytest.mark.usefixtures("shared_programs")]


@contextlib.contextmanager
def no_file_beyond(size):
    """The system writes so many bytes of a file and no more: a short write, then an error, as on a full disk."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


@pytest.fixture(scope="module")
def whole(tmp_path_factory, shared_programs):
    out = tmp_path_factory.mktemp("whole") / "out"
    execute(make("fedavg", rounds=3), out, log_rounds=True)
    return out


def tables(out):
    return {name: (out / name).read_bytes() for name in folder.TABLES}


@pytest.mark.parametrize("file", [folder.MARK, folder.RESULTS, folder.CHECKPOINT])
def test_a_full_disk_costs_what_was_not_written(whole, tmp_path, file):
    """The limit lets smaller files through; in the table it cuts a row in two."""
    size, runs, out = (whole / file).stat().st_size, make("fedavg", rounds=3), tmp_path / "out"
    largest = {folder.CHECKPOINT: 25_000}.get(file, size - 10)  # states are larger than all else
    with no_file_beyond(largest), pytest.raises(OSError) as error:
        execute(runs, out, log_rounds=True)
    assert error.value.errno == errno.EFBIG
    message, code = cli._told(error.value)
    assert message.endswith(": the disk is full; make room, and the same command resumes")
    assert message.startswith(str(out))
    assert code == 1
    execute(runs, out, log_rounds=True)
    assert tables(out) == tables(whole)


@pytest.mark.parametrize("number", [errno.EACCES, errno.EROFS, errno.EIO])
def test_a_folder_that_cannot_be_written_to_is_told_in_words(tmp_path, monkeypatch, number):
    def refuse(*_, **__):
        raise OSError(number, "raw", str(tmp_path / "out"))

    monkeypatch.setattr("experiments.execution.folder.Lock.__enter__", refuse)
    with pytest.raises(OSError) as error:
        execute(make("fedavg"), tmp_path / "out")
    message, _ = cli._told(error.value)
    assert message.startswith(str(tmp_path / "out"))
    assert "Errno" not in message


def test_a_full_memory_inside_xla_is_told_in_one_line(whole, tmp_path, monkeypatch):
    def exhaust(*_, **__):
        raise jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory allocating 1000000000 bytes.\nMore lines")

    out = tmp_path / "out"
    with monkeypatch.context() as patch:
        patch.setattr(Group, "chunk", exhaust)
        with pytest.raises(MemoryError) as error:
            execute(make("fedavg", rounds=3), out, log_rounds=True)
    message, code = cli._told(error.value)
    assert message.startswith("the memory is full; give fewer clients, smaller batches")
    assert (message.count("\n"), code) == (0, 1)
    execute(make("fedavg", rounds=3), out, log_rounds=True)
    assert tables(out) == tables(whole)


def test_other_errors_of_xla_stay_what_they_are(tmp_path, monkeypatch):
    def fail(*_, **__):
        raise jax.errors.JaxRuntimeError("INTERNAL: a bug")

    monkeypatch.setattr(Group, "chunk", fail)
    with pytest.raises(jax.errors.JaxRuntimeError, match="a bug"):
        execute(make("fedavg", rounds=3), tmp_path / "out")
