"""`describe` as a user meets it."""

import numpy as np
import pytest
from absl import flags
from absl.testing import flagsaver

from experiments import describe

pytestmark = pytest.mark.usefixtures("parsed_flags")


def call(*arguments):
    with flagsaver.flagsaver():
        flags.FLAGS(["describe", *arguments])
        describe.main()


def test_a_task_with_its_flags(tmp_path, capsys):
    dealt = ["--task=fashion_mnist_mini_mlp", "--clients=20", "--partition=dirichlet", "--validation=0.1"]
    call(*dealt, "--label_noise=0.2", f"--out={tmp_path / 'new' / 'folder'}")
    shown = capsys.readouterr().out
    assert "fashion_mnist_mini: 20 clients by dirichlet, tested by holdout, data seed 0" in shown
    assert "examples, validation" in shown
    assert "distance from i.i.d.: 0." in shown
    assert (tmp_path / "new" / "folder" / "holdings.png").exists()
    call(*dealt, "--noplot", "--data_seed=3", f"--out={tmp_path / 'none'}")
    assert "data seed 3" in capsys.readouterr().out
    assert not (tmp_path / "none").exists()


def test_own_data_and_its_names(tmp_path, capsys):
    y = np.repeat([0, 1], 20)
    np.savez(tmp_path / "my.npz", x=np.zeros((40, 3)), y=y, client=np.array(["ann", "bob"])[y])
    call("--task=custom", f"--data={tmp_path / 'my.npz'}", "--noplot")
    shown = capsys.readouterr().out
    assert "my.npz): 2 clients by natural, tested by holdout" in shown
    assert "farthest: client ann, 0.500" in shown


def test_a_synthetic_set_of_many_clients(capsys):
    call("--task=synthetic_uniform_logistic", "--dataset=synthetic_uniform(clients=5000)", "--noplot")
    shown = capsys.readouterr().out
    assert "synthetic_uniform(clients=5000): 5000 clients by natural, tested by natural" in shown
    assert "  30     5,000 ####" in shown


def test_what_is_wrong_is_told():
    with pytest.raises(ValueError, match="--seeds=0,1 names 2 seeds; describe takes one"):
        call("--task=fashion_mnist_mini_mlp", "--seeds=0,1")
    with pytest.raises(ValueError, match=r"--dataset=custom names no file; give --data=FILE.npz"):
        call("--task=custom")
