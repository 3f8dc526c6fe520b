"""Tasks by name, and their fields from values and texts."""

import pytest

from experiments.command import values
from experiments.command.tasks import CHOICES, FIELDS, HELP, OPTIONS, TASKS, resolve
from experiments.command.values import Call, Traced
from tests.support.runs import MINI


@pytest.mark.parametrize(
    ("changes", "names"),
    [
        ({"server": "sgd"}, "--server=sgd lacks learning_rate; give sgd(learning_rate (> 0))"),
        ({"server": "sgd(0)"}, "--server=sgd(0): learning_rate=0 is not valid for sgd"),
        ({"server": "sdg(1.0)"}, "--server=sdg(1.0) is not known; give one of sgd(learning_rate)"),
        ({"objective": "hinge"}, "--objective=hinge is not known"),
    ],
)
def test_a_wrong_option_of_a_task_is_one_clear_line(changes, names):
    with pytest.raises(ValueError, match="--") as error:
        resolve("mnist_mlp", changes)
    assert names in str(error.value)


def test_numbers_of_an_option_are_traced():
    task = resolve("mnist_mlp", {"server": "sgd( learning_rate = 0.5 )"})
    assert task.server.arguments == {"learning_rate": 0.5}
    assert isinstance(task.server.arguments["learning_rate"], Traced)
    assert values.split(task)[1] == values.split(resolve("mnist_mlp", {}))[1]
    assert resolve("mnist_mlp", {"objective": "cross_entropy()"}) == resolve("mnist_mlp", {})


@pytest.mark.parametrize("value", [-0.1, 1.5, float("nan")])
def test_a_rate_that_is_no_share_is_told(value):
    with pytest.raises(ValueError, match=r"--label_noise=.* is not valid; give a share in \[0, 1\]"):
        resolve(MINI, {"label_noise": value})


@pytest.mark.parametrize(("partition", "split"), [("shards", "sharded_official"), ("dirichlet", "holdout")])
def test_the_test_split_follows_the_partition(partition, split):
    assert resolve(MINI, {"partition": partition}).test_split == split
    assert resolve(MINI, {"partition": partition, "test_split": "holdout"}).test_split == "holdout"


def test_a_change_is_a_value_or_its_text():
    texts = {"rounds": "7", "lr": "0.5", "server": "adam(0.1)", "partition": "dirichlet"}
    task = resolve(MINI, texts)
    assert (task.rounds, task.lr, task.partition) == (7, 0.5, "dirichlet")
    assert isinstance(task.lr, Traced)
    assert isinstance(task.server, Call)
    assert resolve(MINI, {"rounds": 7, "lr": 0.5, "server": task.server, "partition": "dirichlet"}) == task


def test_every_field_has_a_description_and_every_task_is_sound():
    assert set(HELP) == set(FIELDS)
    assert {*CHOICES, *OPTIONS} <= set(FIELDS)
    for name in TASKS:
        assert resolve(name, {}).test_split == "sharded_official"
