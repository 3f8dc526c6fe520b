"""Values that are given to make reach programs as they are."""

import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


@pytest.mark.skipif(not shutil.which("make"), reason="make is not installed")
@pytest.mark.parametrize("name", ["mnist", "a b", "it's; touch x $(id) `id` $HOME", '"quoted" \\ $$'])
def test_the_name_of_a_data_set_is_one_argument(name):
    shown = subprocess.run(
        ["make", "-n", "data", f"DATASET={name}"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    command = next(line for line in shown.stdout.splitlines() if "experiments.fetch" in line)
    assert shlex.split(command)[-1] == f"--dataset={name}"
