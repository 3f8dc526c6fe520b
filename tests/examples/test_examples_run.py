"""The scripts of examples/ run as they are printed, and say what they promise."""

import os
import pathlib
import re
import subprocess
import sys

import jax
import pytest

from tests.support.marks import slow_but

ROOT = pathlib.Path(__file__).parent.parent.parent
SAYS = {  # what each prints, line after line
    "own_algorithm": [r"fedavg +accuracy \d", r"rank_weights +accuracy \d"],
    "own_data": [
        r"patients of each hospital: \[41, 54, ",
        *(rf"round {done}: mean accuracy \d" for done in (50, 100)),
    ],
    "own_model_and_data": [rf"round {done}: mean accuracy \d" for done in (50, 100, 150, 200)],
    "quickstart": [r"fedavg \{'mean': \d", r"fedeba_plus \{'mean': \d"],
    "sweep_from_python": [
        *(rf"tau +{tau}: mean accuracy \d" for tau in ("0.3", "1.0", "10.0")),
        r"6 runs, traced 1 time$",
    ],
}
FILES = sorted((ROOT / "examples").glob("*.py"))


def run(path):
    """The lines that a script prints; compiled programs are kept with those of the suite."""
    settings = {
        "JAX_COMPILATION_CACHE_DIR": jax.config.jax_compilation_cache_dir,
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0.3",
        "PYTHONPATH": str(ROOT),
    }
    done = subprocess.run(
        [sys.executable, path], cwd=ROOT, env={**os.environ, **settings}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


LONG = ("own_algorithm", "sweep_from_python")  # ten seconds and more


@pytest.mark.parametrize(
    "path", slow_but([file for file in FILES if file.stem not in LONG], FILES), ids=lambda path: path.stem
)
def test_an_example_runs_as_printed(path):
    lines, expected = run(path), SAYS[path.stem]
    assert len(lines) == len(expected), lines
    for line, pattern in zip(lines, expected, strict=True):
        assert re.match(pattern, line), line


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_an_example_says_how_to_run_it(path):
    docstring = path.read_text().split('"""')[1]
    assert f"Run: .venv/bin/python examples/{path.name}" in docstring
