"""Flags that binaries share."""

import pytest
from absl.testing import flagsaver

from experiments.command import flags as common_flags
from experiments.command.flags import FLAGS
from experiments.command.tasks import FIELDS

pytestmark = pytest.mark.usefixtures("parsed_flags")


@pytest.mark.parametrize(
    ("text", "seeds"), [("0", (0,)), ("0,1,2", (0, 1, 2)), ("0:3", (0, 1, 2)), ("7,0:2", (7, 0, 1))]
)
def test_seeds(text, seeds):
    with flagsaver.flagsaver(seeds=text.split(",")):
        assert common_flags.seeds() == seeds


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("0,0", "must name different seeds"),
        ("3:3", "must name different seeds"),
        ("a", "--seeds: 'a' is not a seed"),
        ("-1", "'-1' is not a seed"),
        ("0:x", "'x' is not a seed"),
        ("2147483648", "give whole numbers from 0 to 2147483647, as 0,1,2 or 0:3"),
        ("0:2000000000", "--seeds=0:2000000000 makes 2000000000 runs, more than --max_runs=10000"),
    ],
)
def test_wrong_seeds_are_told(text, message):
    with flagsaver.flagsaver(seeds=text.split(",")), pytest.raises(ValueError) as error:
        common_flags.seeds()
    assert message in str(error.value)


def test_every_field_of_a_task_is_a_flag_and_counts_if_it_is_given():
    assert set(FIELDS) <= set(FLAGS)
    assert common_flags.changes() == {}
    with flagsaver.flagsaver():
        FLAGS(["test", "--rounds=3", "--server=adam(0.1)", "--label_noise=0"])
        assert common_flags.changes() == {"rounds": 3, "server": "adam(0.1)", "label_noise": 0.0}


def test_other_fields_of_a_run():
    expected = {"data_seed": None, "init_seed": None, "sample_seed": None, "state_dtype": "float32"}
    assert common_flags.others(0.1) == {**expected, "validation": 0.1}
    with flagsaver.flagsaver(validation=0.0, init_seed=5, state_dtype="bfloat16"):
        assert common_flags.others(0.1) == {
            **expected, "validation": 0.0, "init_seed": 5, "state_dtype": "bfloat16"
        }  # fmt: skip
    with flagsaver.flagsaver(validation=1.0), pytest.raises(ValueError, match=r"--validation=1\.0 is not a fraction"):
        common_flags.others(0.0)
    with flagsaver.flagsaver(init_seed=-1), pytest.raises(ValueError, match="--init_seed: -1 is not a seed"):
        common_flags.others(0.0)


def test_a_binary_has_defaults_of_its_own():
    with flagsaver.flagsaver():
        common_flags.set_defaults({"seeds": "0,1", "rounds": 200})
        assert common_flags.seeds() == (0, 1)
        assert common_flags.changes() == {"rounds": 200}
    assert common_flags.changes() == {}


def test_own_data_stands_for_the_data_set_of_the_task():
    with flagsaver.flagsaver(data="mine.npz"):
        assert common_flags.changes() == {"dataset": "custom(mine.npz)"}
    with (
        flagsaver.flagsaver(data="mine.npz", dataset="mnist"),
        pytest.raises(ValueError, match=r"--data=mine.npz and --dataset=mnist are both given; give one of them"),
    ):
        common_flags.changes()
