"""The benchmark of what a run costs beside its rounds, in its smallest form."""

import json

import pytest
from absl import flags
from absl.testing import flagsaver

from benchmarks import checkpoints
from experiments.execution import session

TINY = {"clients": 10, "cohort_size": 3, "steps": 2, "batch_size": 10, "eval_every": 1}


@pytest.fixture
def main(monkeypatch):
    monkeypatch.setattr(session, "set_up", lambda: None)
    flags.FLAGS(["test"])
    with flagsaver.flagsaver(task="fashion_mnist_mini_mlp", algorithm=["fedavg"], repeats=1, **TINY):
        yield checkpoints.main


def test_the_share_is_told_and_written(main, tmp_path, capsys):
    with flagsaver.flagsaver(rounds=4, checkpoint_every=3, out=str(tmp_path / "out.json")):
        main()
    assert "beside the rounds" in capsys.readouterr().out
    (row,) = json.loads((tmp_path / "out.json").read_text())["rows"]
    assert row["checkpoints"] == 2
    assert 0 < row["share"]["value"] < 1


def test_one_chunk_has_nothing_between(main):
    with flagsaver.flagsaver(rounds=1), pytest.raises(ValueError, match="--rounds=1 is one chunk"):
        main()
