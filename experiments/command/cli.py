"""What every binary does around its main function: flags, errors in one line, exit codes.

Exit codes: 0 done, 1 the run failed (diverged, disk full), 2 wrong usage or data, 130 interrupted (Ctrl-C), 143
terminated (SIGTERM).
"""

import difflib
import re
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NoReturn

from absl import app, flags, logging

flags.DEFINE_bool("debug", False, "Show tracebacks of errors.")


class Terminated(KeyboardInterrupt):
    """The process was told to end (SIGTERM)."""


class RunError(Exception):
    """A run that went wrong through no fault of its command: one line, exit code 1."""


def run(main: Callable[..., int | None], *, positional: bool = False) -> None:
    """Parse the flags, call `main`, and turn what it raises into a line and an exit code.

    With `positional`, main takes the list of arguments that are not flags; otherwise there may be none.
    """
    app.run(lambda argv: _guarded(main, argv[1:], positional), flags_parser=_parse)


def _parse(argv: Sequence[str]) -> list[str]:
    try:
        check_flagfiles(argv)
        return flags.FLAGS(list(argv))
    except (flags.Error, ValueError) as error:
        _fail(str(error).replace("\n", " "), 2)


def check_flagfiles(argv: Sequence[str]) -> None:
    """Errors in flag files with file and line, which absl does not tell."""
    for place, line in _lines(argv):
        if problem := _wrong(line):
            raise ValueError(f"{place}: {problem}")


def with_place(message: str, argv: Sequence[str]) -> str:
    """A message about a flag, led by the line of the flag file that gave it, if one did."""
    found = re.search(r"--(\w+)", message)
    for place, line in _lines(argv) if found else ():
        name, _, value = line.removeprefix("--").partition("=")
        axis = value.partition("=")[0]  # of --grid and --point: what they give values to
        if found and ((name == found[1] and axis in message) or (name in ("grid", "point") and axis == found[1])):
            return f"{place}: {message}"
    return message


def _lines(argv: Sequence[str]) -> Iterator[tuple[str, str]]:
    """The lines of all flag files among the arguments, each with its place."""
    for argument in argv:
        name, _, path = argument.partition("=")
        if name.lstrip("-") != "flagfile":
            continue
        try:
            lines = Path(path).read_text().splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise ValueError(f"--flagfile={path} cannot be read ({type(error).__name__}); check its name") from None
        yield from ((f"{path}:{number}", line.strip()) for number, line in enumerate(lines, 1))


def _wrong(line: str) -> str | None:
    """What is wrong with a line of a flag file."""
    if not line or line.startswith(("#", "//")) or line.lstrip("-").startswith("flagfile="):
        return None
    name, equals, value = line.lstrip("-").partition("=")
    known = name in flags.FLAGS or name.removeprefix("no") in flags.FLAGS
    if not line.startswith("--") or not known:
        close = difflib.get_close_matches(name, list(flags.FLAGS), 1)
        return f"{line!r} is not a flag; write --NAME=VALUE" + (f" (--{close[0]}?)" if close else "")
    if equals and name in flags.FLAGS:
        try:
            flags.FLAGS[name].parser.parse(value)
        except (ValueError, TypeError) as error:
            return f"--{name}={value} is not valid; {error}"
    return None


def _guarded(main: Callable[..., int | None], arguments: Sequence[str], positional: bool) -> int:
    logging.set_verbosity(logging.WARNING)  # JAX tells every accelerator it did not find
    signal.signal(signal.SIGTERM, _terminate)
    try:
        if arguments and not positional:
            raise ValueError(f"unexpected argument {arguments[0]!r}; flags are written --name=value")
        return (main(list(arguments)) if positional else main()) or 0
    except (ValueError, RunError, OSError) as error:
        if flags.FLAGS.debug:
            raise
        usage = isinstance(error, ValueError)
        _fail(with_place(str(error), sys.argv) if usage else str(error), 2 if usage else 1)
    except KeyboardInterrupt as stop:
        told = f": {stop}" if str(stop) else ""
        _fail(*((f"terminated{told}", 143) if isinstance(stop, Terminated) else (f"interrupted{told}", 130)))


def _terminate(*_: object) -> None:
    raise Terminated


def _fail(message: str, code: int) -> NoReturn:
    print(f"error: {message}", file=sys.stderr)
    sys.exit(code)
