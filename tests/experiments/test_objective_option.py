"""--objective=lsr(...): its numbers and words on the command line, and a run that trains with it."""

import pytest

from experiments.command.tasks import resolve
from experiments.command.values import Traced, join, split
from tests.support.runs import MINI, execute, final_rows, make


def test_on_the_command_line_its_numbers_are_traced_and_its_words_are_not():
    objective = resolve(MINI, {"objective": "lsr( gamma = 0.1, mode=reference )"}).objective
    assert str(objective) == "lsr(gamma=0.1, mode=reference)"
    numbers = {name: value for name, value in objective.arguments.items() if isinstance(value, Traced)}
    assert set(numbers) == {"gamma", "sharpening", "distillation", "warmup"}
    assert numbers["gamma"] == 0.1
    assert {name: value for name, value in objective.arguments.items() if name not in numbers} == {
        "entropy": None, "mode": "reference", "views": "auto", "per_batch": False
    }  # fmt: skip
    taken, static = split(objective)
    assert sorted(taken) == sorted(numbers.values())
    assert join(taken, static) == objective
    same = resolve(MINI, {"objective": "lsr(gamma=2, mode=reference, warmup=0)"}).objective
    assert split(same)[1] == static
    assert str(resolve(MINI, {"objective": "lsr(gamma=0.4)"}).objective) == "lsr"


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("lsr(gamma=-1)", "gamma=-1 is not valid for lsr; give gamma=0.4 (>= 0)"),
        ("lsr(warmup=2)", "warmup=2 is not valid for lsr; give warmup=0.2 (in [0, 1])"),
        ("lsr(mode=code)", "give mode=paper (paper | reference)"),
        ("lsr(rounds=5)", "lsr takes no 'rounds=5' there"),
    ],
)
def test_a_wrong_objective_is_one_clear_line(text, names):
    with pytest.raises(ValueError) as error:
        resolve(MINI, {"objective": text})
    assert names in str(error.value)
    assert "\n" not in str(error.value)


def test_a_run_on_noisy_labels_trains_with_it(tmp_path):
    (row,) = final_rows(execute(make("fedeba", objective="lsr", label_noise=0.5), tmp_path / "run"))
    assert row["status"] == "ok"
    assert 0 < row["mean"] < 100
