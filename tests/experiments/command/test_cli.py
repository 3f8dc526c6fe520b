"""Flag files, errors in one line, exit codes."""

import signal

import pytest

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
