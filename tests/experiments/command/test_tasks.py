"""Tasks by name, and their fields from values and texts."""

import pytest

from experiments.command import values
from experiments.command.tasks import CHOICES, FIELDS, HELP, OPTIONS, PRESETS, RATES, TASKS, checked, resolve
from experiments.command.values import Call, Traced
from tests.support.runs import MINI


@pytest.mark.parametrize(
    ("changes", "names"),
    [
        ({"server": "sgd"}, "--server=sgd lacks learning_rate; give sgd(learning_rate (> 0))"),
        ({"server": "sgd(0)"}, "--server=sgd(0): learning_rate=0 is not valid for sgd"),
        ({"server": "sdg(1.0)"}, "--server=sdg(1.0) is not known; give one of sgd(learning_rate)"),
        ({"objective": "hinge"}, "--objective=hinge is not known"),
        ({"sampling": "stratified(0)"}, "--sampling=stratified(0): strata=0 is not valid for stratified"),
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


@pytest.mark.parametrize(
    ("partition", "split"),
    [("shards", "sharded_official"), ("iid", "sharded_official"), ("dirichlet", "holdout"), ("quantity", "holdout")],
)
def test_the_test_split_of_images_follows_the_partition(partition, split):
    assert resolve(MINI, {"partition": partition}).test_split == split
    assert resolve(MINI, {"partition": partition, "test_split": "holdout"}).test_split == "holdout"


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("reddit_lstm", {}),
        ("reddit_lstm", {"partition": "iid", "clients": 30}),
        ("custom", {"dataset": "custom(my.npz)", "clients": 20, "partition": "shards"}),
        ("synthetic_logistic", {"partition": "dirichlet", "clients": 30}),
    ],
)
def test_what_only_the_data_knows_stays_open(name, changes):
    assert resolve(name, changes).test_split == "auto"


def test_the_number_of_clients_may_be_left_to_data_that_has_some():
    assert resolve("reddit_lstm", {}).clients == 0
    assert resolve(MINI, {"partition": "natural", "clients": 0, "cohort_size": 0}).cohort_size == 0
    with pytest.raises(ValueError, match=r"--clients=0 is not valid; partition shards needs at least 1"):
        resolve(MINI, {"clients": 0})
    with pytest.raises(ValueError, match=r"--clients=-1 is not valid; give 0 or more"):
        resolve("reddit_lstm", {"clients": -1})
    assert resolve(MINI, {"cohort_size": 0}).cohort_size == 50


def test_a_task_of_own_data_needs_it():
    with pytest.raises(ValueError, match=r"--dataset=custom names no file; give --data=FILE.npz"):
        resolve("custom", {})


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
    for name, (task, ran) in PRESETS.items():
        assert ran
        changes = {"dataset": "custom(my.npz)"} if name == "custom" else {}
        assert checked(resolve(name, changes)) == resolve(name, changes)
        for rate in RATES:
            assert isinstance(getattr(task, rate), Traced), "a rate is traced, or each of its values would compile"


def test_the_settings_of_the_paper():
    """Rates and batch sizes by data set, and 10 of 100 clients."""
    for name, lr, batch_size in [
        ("mnist_mlp", 0.1, 50), ("fashion_mnist_mlp", 0.1, 50), ("cifar10_cnn", 0.1, 50),
        ("cifar100_resnet18", 0.01, 128), ("tiny_imagenet_mobilenet_v2", 0.05, 128),
        ("tiny_imagenet_resnet18", 0.05, 128),
    ]:  # fmt: skip
        task = TASKS[name]
        assert (task.lr, task.batch_size, task.clients, task.cohort_size) == (lr, batch_size, 100, 10)
        assert (task.lr_decay, task.steps, task.rounds) == (0.999, 10, 2000)
    assert (TASKS["reddit_lstm"].cohort_size, TASKS["reddit_lstm"].batch_size) == (20, 20)
    assert resolve("cifar100_resnet18", {}).test_split == "holdout"
