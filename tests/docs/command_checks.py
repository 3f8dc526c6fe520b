"""Parses commands of binaries as the binaries would, without running them; started by `test_commands` as a process.

Standard input is JSON, {binary: [arguments, ...]}. Standard output is what is wrong, {binary: [[arguments, why], ...]}.
Each binary gets a process of its own, forked from this one: their flags would clash.
"""

import json
import os
import runpy
import sys
import traceback

from absl import flags

import fedeba_jax  # noqa: F401  (what is imported before the fork is imported once)
from experiments.command import cli
from fedeba_jax.data.sources import DATASETS


def wrong(binary, commands):
    """The commands that the binary would refuse, each with the reason."""
    found = []

    def parse(main, *, positional=False):
        defaults = {name: flags.FLAGS[name].default for name in flags.FLAGS}
        for arguments in commands:
            for name, default in defaults.items():
                flags.FLAGS[name].unparse()
                flags.FLAGS.set_default(name, default)
            try:
                cli.check_flagfiles(arguments)
                rest = flags.FLAGS([binary, *arguments])[1:]
                if rest and not positional:
                    raise ValueError(f"unexpected argument {rest[0]!r}")
                if "runs" in main.__globals__:  # the settings are valid, too
                    main.__globals__["runs"]()
                if binary == "experiments.fetch" and flags.FLAGS.dataset not in DATASETS:
                    raise ValueError(f"--dataset={flags.FLAGS.dataset} is not known")
            except (flags.Error, ValueError) as error:
                found.append((arguments, str(error)))

    cli.run = parse
    sys.argv = [binary]
    runpy.run_module(binary, run_name="__main__")
    return found


def in_a_fork(function, *args):
    """function(*args), as a child process computes it."""
    reading, writing = os.pipe()
    if child := os.fork():
        os.close(writing)
        with os.fdopen(reading) as stream:
            text = stream.read()
        os.waitpid(child, 0)
        return json.loads(text)
    try:
        content = function(*args)
    except BaseException:  # whatever it was, the parent reports it
        content = [([], traceback.format_exc())]
    with os.fdopen(writing, "w") as stream:
        stream.write(json.dumps(content))
    os._exit(0)


if __name__ == "__main__":
    asked = json.load(sys.stdin)
    json.dump({binary: in_a_fork(wrong, binary, commands) for binary, commands in asked.items()}, sys.stdout)
