"""Runs on your own data, from the file to the rows of results."""

import json

import numpy as np
import pytest

from fedeba_jax.data import custom
from fedeba_jax.data.sources.raw import DataError
from tests.support.runs import execute, final_rows, make

OPEN = {"clients": 0, "cohort_size": 0, "partition": "auto", "model": "auto"}


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    """Five clients, "a" to "e", with 20 to 60 examples of three labels."""
    rng = np.random.default_rng(0)
    owner = rng.permutation(np.repeat(np.arange(5), [20, 30, 40, 50, 60]))
    x = rng.normal(size=(200, 4))
    path = tmp_path_factory.mktemp("own") / "mine.npz"
    np.savez(path, x=x, y=x[:, :3].argmax(axis=1), client=np.array([*"abcde"])[owner])
    return path


def test_a_run_says_what_its_data_decided_and_is_found_again(path, tmp_path):
    runs = make("fedavg", dataset=f"custom({path})", validation=0.25, label_noise=0.5, **OPEN)
    rows = execute(runs, tmp_path / "out", only_these=True)
    (row,) = final_rows(rows)
    settings = {name: row["settings"][name] for name in ("clients", "cohort_size", "partition", "test_split", "model")}
    assert settings == {
        "clients": 5, "cohort_size": 5, "partition": "natural", "test_split": "holdout", "model": "logistic",
    }  # fmt: skip
    assert len(row["client_accuracy"]) == 5
    assert final_rows(rows, split="validation")
    assert 70 < row["flipped_labels"] <= 80  # half of the 160 that are not held out
    told = json.loads((tmp_path / "out" / "experiment.json").read_text())["origins"][0]["data"]
    assert told == {"name": "custom", "source": str(path), "md5": custom.load(str(path)).md5}
    assert execute(runs, tmp_path / "out", only_these=True) == rows


def test_data_that_is_wrong_is_told_before_anything_is_made(tmp_path):
    np.savez(tmp_path / "wrong.npz", x=np.zeros((4, 2)))
    with pytest.raises(DataError, match=r"wrong.npz: there is no array 'y'; save x and y"):
        execute(make("fedavg", dataset=f"custom({tmp_path / 'wrong.npz'})", **OPEN), tmp_path / "out")
    assert not (tmp_path / "out").exists()
