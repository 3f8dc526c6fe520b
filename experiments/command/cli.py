"""What every binary does around its main function: flags, errors in one line, exit codes.

Exit codes: 0 done, 1 the run failed (diverged, disk full), 2 wrong usage or data, 130 interrupted (Ctrl-C), 143
terminated (SIGTERM).
"""

import difflib
import errno
import functools
import os
import re
import signal
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NoReturn

from absl import app, flags, logging

from experiments.command.values import shown

flags.DEFINE_bool("debug", False, "Show tracebacks of errors.")
SHARED = "experiments.command.flags"  # the module whose flags not every binary takes


INTERRUPTED, TERMINATED = 130, 143


class Terminated(KeyboardInterrupt):
    """The process was told to end (SIGTERM)."""


class RunError(Exception):
    """A run that went wrong through no fault of its command: one line, exit code 1."""


def run(main: Callable[..., int | None], *, positional: bool = False) -> None:
    """Parse the flags, call `main`, and turn what it raises into a line and an exit code.

    With `positional`, main takes the list of arguments that are not flags; otherwise there may be none.
    """
    parse = functools.partial(_parse, module=main.__module__)
    try:
        app.run(lambda argv: _guarded(main, argv[1:], positional), flags_parser=parse)
    except SystemExit as end:
        if end.code in (INTERRUPTED, TERMINATED):
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(end.code)  # at once: Python would wait for the rounds that XLA is still running
        raise


def _parse(argv: Sequence[str], module: str) -> list[str]:
    try:
        check_flagfiles(argv)
        rest = flags.FLAGS(list(argv))
        check_effect(module)
        return rest
    except (flags.Error, ValueError) as error:
        _fail(with_place(str(error), argv), 2)
    except RecursionError:  # of absl, which looks for a flag of a similar name
        _fail("an argument has a name of a thousand letters; flags are written --name=value", 2)


def check_flagfiles(argv: Sequence[str]) -> None:
    """Errors in flag files with file and line, which absl does not tell."""
    for place, line in _lines(argv):
        if problem := _wrong(line):
            raise ValueError(f"{place}: {problem}")


def check_effect(module: str) -> None:
    """An error for a shared flag that is given, but that the binary of this module did not declare as its own."""
    own = {flag.name for flag in flags.FLAGS.get_key_flags_for_module(module)}
    binary = Path(sys.argv[0]).stem if module == "__main__" else module.rpartition(".")[2]
    for flag in flags.FLAGS.flags_by_module_dict().get(SHARED, ()):
        if flag.present and flag.name not in own:
            others = " or ".join(name for name in ("train", "sweep") if name != binary)
            raise ValueError(f"--{flag.name} has no effect in {binary}; leave it out, or use {others}")


def with_place(message: str, argv: Sequence[str]) -> str:
    """A message about a flag, led by the line of the flag file that gave it, if one did."""
    found = re.search(r"--(\w+)", message)
    flag = found[1] if found else "flagfile"
    for place, line in _lines(argv) if flag != "flagfile" else ():
        name, _, value = line.removeprefix("--").partition("=")
        axis = value.partition("=")[0] if name in ("grid", "point") else ""  # what they give values to
        if (name in (flag, f"no{flag}") and axis in message) or axis == flag:
            return f"{place}: {message}"
    return message


def _lines(argv: Sequence[str]) -> Iterator[tuple[str, str]]:
    """The lines of all flag files among the arguments, --flagfile=FILE or --flagfile FILE, each with its place."""
    for argument, following in zip(argv, [*argv[1:], ""], strict=False):
        name, equals, path = argument.partition("=")
        if name not in ("--flagfile", "-flagfile"):
            continue
        path = path if equals else following
        try:
            lines = Path(path).expanduser().read_text().splitlines()
        except (OSError, ValueError, RuntimeError) as error:
            why = error.strerror if isinstance(error, OSError) else "it is not text"
            raise ValueError(f"--flagfile={shown(path)} cannot be read ({why}); check its name") from None
        yield from ((f"{path}:{number}", line.strip()) for number, line in enumerate(lines, 1))


def _wrong(line: str) -> str | None:
    """What is wrong with a line of a flag file."""
    if not line or line.startswith(("#", "//")) or line.lstrip("-").startswith("flagfile="):
        return None
    name, equals, value = line.lstrip("-").partition("=")
    known = name in flags.FLAGS or name.removeprefix("no") in flags.FLAGS
    if not line.startswith("--") or not known:
        close = difflib.get_close_matches(name, list(flags.FLAGS), 1)
        return f"{shown(line)!r} is not a flag; write --NAME=VALUE" + (f" (--{close[0]}?)" if close else "")
    if equals and name in flags.FLAGS:
        try:
            flags.FLAGS[name].parser.parse(value)
        except (ValueError, TypeError) as error:
            return f"--{name}={shown(value)} is not valid; {error}"
    return None


def _guarded(main: Callable[..., int | None], arguments: Sequence[str], positional: bool) -> int:
    logging.set_verbosity(logging.WARNING)  # JAX tells every accelerator it did not find
    warnings.formatwarning = lambda message, *_: f"warning: {' '.join(str(message).split())}\n"
    signal.signal(signal.SIGTERM, _terminate)
    try:
        if arguments and not positional:
            raise ValueError(f"unexpected argument {arguments[0]!r}; flags are written --name=value")
        return (main(list(arguments)) if positional else main()) or 0
    except (ValueError, RunError, OSError, MemoryError) as error:
        if flags.FLAGS.debug:
            raise
        _fail(*_told(error))
    except KeyboardInterrupt as stop:
        told = f": {stop}" if str(stop) else ""
        terminated = isinstance(stop, Terminated)
        _fail(f"{'terminated' if terminated else 'interrupted'}{told}", TERMINATED if terminated else INTERRUPTED)


def _told(error: Exception) -> tuple[str, int]:
    """An error as a line and an exit code."""
    if isinstance(error, ValueError):
        return with_place(str(error), sys.argv), 2
    if isinstance(error, MemoryError):
        return "the memory is full; give fewer clients, smaller batches or fewer runs at once", 1
    if not isinstance(error, OSError) or error.errno is None:
        return str(error), 1
    what = f"{error.filename}: " if error.filename else ""
    if error.errno in FULL:
        return f"{what}the disk is full; make room, and the same command resumes", 1
    return f"{what}{os.strerror(error.errno).lower()}; give another path, or mend this one", 2


FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def _terminate(*_: object) -> None:
    raise Terminated


def _fail(message: str, code: int) -> NoReturn:
    print(f"error: {' '.join(message.split())}", file=sys.stderr)
    sys.exit(code)
