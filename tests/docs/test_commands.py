"""Every command that README and docs print would be accepted: binaries, flags and values, and targets of make."""

import json
import re
import shlex
import subprocess
import sys

from tests.support.pages import OURS, PAGES, ROOT, blocks

MAKE = re.compile(r"\bmake ([a-z][a-z-]*)")
TARGETS = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))


def lines(page):
    """The command lines of a page: of its bash blocks, and of commands within text."""
    text = page.read_text()
    for block in blocks(text, "bash"):
        yield from block.replace("\\\n", " ").splitlines()
    yield from re.findall(r"`((?:\.venv/bin/)?python -m (?:experiments|benchmarks)\.[^`]*)`", text)


def commands(page):
    """(binary, arguments) of a page's commands of ours."""
    for line in lines(page):
        words = shlex.split(line, comments=True)
        if "-m" in words and re.match(r"(experiments|benchmarks)\.", words[words.index("-m") + 1]):
            assert words[0] == ".venv/bin/python", f"{page.name}: only the environment's Python works: {line}"
            at = words.index("-m") + 1
            yield words[at], words[at + 1 :]


def test_binaries_take_the_commands():
    asked = {}
    for page in OURS:
        for binary, arguments in commands(page):
            asked.setdefault(binary, []).append(arguments)
    assert {"experiments.train", "experiments.sweep", "experiments.report"} <= asked.keys()
    done = subprocess.run(
        [sys.executable, "-m", "tests.docs.command_checks"],
        cwd=ROOT, input=json.dumps(asked), capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert not any(json.loads(done.stdout).values()), done.stdout


def test_a_wrong_command_is_noticed():
    asked = {
        "experiments.train": [
            ["--no_such_flag=1"], ["--hparams=tau=-1"], ["--algorithm=fedfoo"], ["--task=fashion_mnist_mlp"], ["extra"],
        ],
        "experiments.report": [["runs/a", "--metric=beauty"], ["runs/a", "runs/b", "--noselect"]],
    }  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-m", "tests.docs.command_checks"],
        cwd=ROOT, input=json.dumps(asked), capture_output=True, text=True, check=True,
    )  # fmt: skip
    refused = json.loads(done.stdout)
    assert [arguments for arguments, _ in refused["experiments.train"]] == [
        ["--no_such_flag=1"], ["--hparams=tau=-1"], ["--algorithm=fedfoo"], ["extra"],
    ]  # fmt: skip
    assert [arguments for arguments, _ in refused["experiments.report"]] == [["runs/a", "--metric=beauty"]]


def test_make_knows_the_targets():
    for page in OURS:
        text = page.read_text()
        printed = [line for block in blocks(text, "bash") for line in block.splitlines()]
        named = [target for code in [*printed, *re.findall(r"`(make [^`]*)`", text)] for target in MAKE.findall(code)]
        assert set(named) <= TARGETS, f"{page.name}: {set(named) - TARGETS}"


def test_pytest_commands_name_files():
    for page in OURS:
        for line in lines(page):
            if "-m pytest" in line:
                paths = [word for word in shlex.split(line) if word.startswith("tests/")]
                assert paths, f"{page.name}: {line}"
                assert all((ROOT / path).exists() for path in paths), f"{page.name}: {line}"


def test_flagfiles_exist():
    """In blocks of every language, and within text."""
    named = [(page.name, path) for page in PAGES for path in re.findall(r"--flagfile=([\w./-]+)", page.read_text())]
    assert len(named) > 3
    assert [(page, path) for page, path in named if not (ROOT / path).is_file()] == []
