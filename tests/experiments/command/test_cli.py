"""Flag files, errors in one line, exit codes."""

import errno
import importlib
import signal

import pytest
from absl.testing import flagsaver

from experiments.command import cli
from experiments.command.flags import FLAGS
from tests.support.runs import MINI

pytestmark = pytest.mark.usefixtures("parsed_flags")
BAD_LINES = [
    ("--aplha=1", "'--aplha=1' is not a flag; write --NAME=VALUE"),
    ("rounds=3", "'rounds=3' is not a flag; write --NAME=VALUE (--rounds?)"),
    ("--rounds=many", "--rounds=many is not valid"),
]


@pytest.mark.parametrize(("line", "message"), BAD_LINES)
def test_errors_in_flag_files_name_the_place(tmp_path, line, message):
    preset = tmp_path / "bad.flags"
    preset.write_text(f"# a comment\n\n--task={MINI}\n{line}\n")
    with pytest.raises(ValueError) as error:
        cli.check_flagfiles(["train", f"--flagfile={preset}"])
    assert str(error.value).startswith(f"{preset}:4: {message}")
    with pytest.raises(ValueError, match="cannot be read"):
        cli.check_flagfiles([f"--flagfile={tmp_path}/none.flags"])


def test_a_flag_file_may_be_named_in_two_words(tmp_path):
    preset = tmp_path / "bad.flags"
    preset.write_text("--aplha=1\n")
    with pytest.raises(ValueError, match=r"bad.flags:1: '--aplha=1' is not a flag"):
        cli.check_flagfiles(["train", "--flagfile", str(preset)])
    assert cli.with_place("--aplha: no", ["--flagfile", str(preset)]) == f"{preset}:1: --aplha: no"
    preset.write_bytes(b"\xff\xfe")
    with pytest.raises(ValueError, match=r"bad.flags cannot be read \(it is not text\); check its name"):
        cli.check_flagfiles([f"--flagfile={preset}"])
    with pytest.raises(ValueError, match="cannot be read"):
        cli.check_flagfiles(["--flagfile"])


@pytest.mark.parametrize(
    ("binary", "argument", "message"),
    [
        ("demo", "--lr=3", "--lr has no effect in demo; leave it out, or use train or sweep"),
        *(
            ("demo", f"--{name}", f"--{name.partition('=')[0]} has no effect in demo")
            for name in ("task=mnist_mlp", "clients=3", "server=adam(1)", "validation=0.1", "data_seed=1", "metric=cv")
        ),
        ("compare", "--validation=0.1", "--validation has no effect in compare; leave it out, or use train or sweep"),
        ("compare", "--init_seed=1", "--init_seed has no effect in compare"),
        ("train", "--metric=variance", "--metric has no effect in train; leave it out, or use sweep"),
        ("train", "--select_on=test", "--select_on has no effect in train"),
        ("sweep", "--noplot", "--plot has no effect in sweep; leave it out, or use train"),
        ("describe", "--algorithm=fedavg", "--algorithm has no effect in describe"),
        ("fetch", "--rounds=3", "--rounds has no effect in fetch"),
    ],
)
def test_a_flag_without_effect_is_an_error(tmp_path, binary, argument, message):
    importlib.import_module(f"experiments.{binary}")
    preset = tmp_path / "some.flags"
    preset.write_text(argument)
    for given in (argument, f"--flagfile={preset}"):
        with flagsaver.flagsaver():
            FLAGS([binary, given])
            with pytest.raises(ValueError) as error:
                cli.check_effect(f"experiments.{binary}")
        assert str(error.value).startswith(message)
    assert cli.with_place(str(error.value), [f"--flagfile={preset}"]).startswith(f"{preset}:1: ")


@pytest.mark.parametrize(
    ("binary", "arguments"),
    [
        ("demo", ["--seeds=0", "--rounds=3", "--host_devices=1", "--overwrite"]),
        ("compare", ["--lr=0.1", "--data=x.npz", "--run_map=vmap", "--compilation_cache="]),
        ("train", ["--noplot", "--lr=0.1", "--validation=0.1", "--state_dtype=bfloat16", "--max_runs=3"]),
        ("sweep", ["--metric=cv", "--select_on=test", "--batch_runs=2"]),
        ("describe", ["--partition=iid", "--data_seed=3", "--noplot"]),
        ("fetch", ["--dataset=mnist", "--data_dir=x"]),
    ],
)
def test_a_binary_takes_its_own_flags(binary, arguments):
    importlib.import_module(f"experiments.{binary}")
    with flagsaver.flagsaver():
        FLAGS([binary, *arguments])
        cli.check_effect(f"experiments.{binary}")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("--grid=prior=anneal(1, 0.1)", "--grid: prior=anneal(1, 0.1) is not valid for fedeba_plus"),
        ("--point=server=adamw", "--server=adamw is not known"),
        ("--lr=-3", "--lr=-3.0 is not valid"),
    ],
)
def test_errors_found_later_name_the_line_as_well(tmp_path, line, message):
    preset = tmp_path / "bad.flags"
    preset.write_text(f"--grid=alpha=0.1\n{line}\n--rounds=3\n")
    assert cli.with_place(message, [f"--flagfile={preset}"]) == f"{preset}:2: {message}"
    assert cli.with_place("--seeds: no", [f"--flagfile={preset}"]) == "--seeds: no"
    assert cli.with_place(message, ["sweep", line]) == message


@pytest.fixture
def handlers():
    """The binaries' handler of SIGTERM, taken off again."""
    before = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, before)


@pytest.mark.usefixtures("handlers")
@pytest.mark.parametrize(
    ("error", "code", "line"),
    [
        (ValueError("--x=1 is wrong"), 2, "error: --x=1 is wrong"),
        (cli.RunError("diverged"), 1, "error: diverged"),
        (OSError("disk full"), 1, "error: disk full"),
        (
            OSError(errno.ENOSPC, "No space", "runs/a"),
            1,
            "error: runs/a: the disk is full; make room, and the same command resumes",
        ),
        (
            OSError(errno.EROFS, "Read-only", "runs/a"),
            2,
            "error: runs/a: read-only file system; give another path, or mend this one",
        ),
        (
            FileExistsError(errno.EEXIST, "File exists", "a"),
            2,
            "error: a: file exists; give another path, or mend this one",
        ),
        (MemoryError(), 1, "error: the memory is full; give fewer clients, smaller batches or fewer runs at once"),
        (ValueError("two\nlines"), 2, "error: two lines"),
        (KeyboardInterrupt(), 130, "error: interrupted"),
        (KeyboardInterrupt("the same command resumes it"), 130, "error: interrupted: the same command resumes it"),
        (cli.Terminated("the same command resumes it"), 143, "error: terminated: the same command resumes it"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_is_raised_is_a_line_and_an_exit_code(capsys, error, code, line):
    def main():
        raise error

    with pytest.raises(SystemExit) as stop:
        cli._guarded(main, [], positional=False)
    assert stop.value.code == code
    assert capsys.readouterr().err == line + "\n"


@pytest.mark.usefixtures("handlers")
def test_sigterm_ends_as_an_interrupt_does(capsys):
    with pytest.raises(SystemExit) as stop:
        cli._guarded(lambda: signal.raise_signal(signal.SIGTERM), [], positional=False)
    assert stop.value.code == 143
    assert capsys.readouterr().err == "error: terminated\n"


@pytest.mark.usefixtures("handlers")
def test_arguments_that_are_no_flags(capsys):
    assert cli._guarded(lambda names: len(names), ["a", "b"], positional=True) == 2
    assert cli._guarded(lambda: None, [], positional=False) == 0
    with pytest.raises(SystemExit) as stop:
        cli._guarded(lambda: None, ["rounds=3"], positional=False)
    assert stop.value.code == 2
    assert "unexpected argument 'rounds=3'; flags are written --name=value" in capsys.readouterr().err


def test_debug_is_off_unless_asked_for():
    assert not FLAGS.debug
