"""Recorded runs that are run again: equal, within the spread of seeds, or not."""

import pytest

from experiments.execution import again
from tests.support.folders import Run, origin, write_folder
from tests.support.runs import make


def rows(*means, seed=0):
    return [
        {"run": "a", "seed": seed, "round": t, "split": "test", "model": "global", "mean": mean, "variance": 2 * mean,
         "algorithm": "fedavg", "hparams": {}, "settings": {}, "origin": 0}
        for t, mean in enumerate(means, 1)
    ]  # fmt: skip


def test_equal_rows_pass_whatever_their_origin():
    now = [row | {"origin": 3} for row in rows(70.0, 80.0)]
    found = again.compare(rows(70.0, 80.0), now, [rows(70.0, 80.0)])
    assert (found.rows, found.different, found.passes) == (2, 0, True)


@pytest.mark.parametrize(("moved", "passes"), [(1.4, True), (1.6, False)])
def test_other_rounding_passes_within_three_standard_deviations_over_seeds(moved, passes):
    """Two seeds that end with 80 and 81 have a std of 0.5: the end of the run may move by 1.5."""
    every = [rows(70.0, 80.0), rows(71.0, 81.0, seed=1)]
    found = again.compare(every[0], rows(70.0, 80.0 + moved), every)
    assert found.different == 1
    assert found.last["mean"][2] == pytest.approx(0.5)
    assert found.passes is passes


def test_a_row_that_is_missing_now_is_a_difference():
    found = again.compare(rows(70.0, 80.0), rows(70.0), [rows(70.0, 80.0)])
    assert found.different == 1
    assert not found.passes


def test_companions_are_other_seeds_of_the_setting():
    recorded = {"a": rows(1.0), "b": [row | {"algorithm": "qffl"} for row in rows(1.0)], "c": rows(1.0, seed=1)}
    assert again.companions(recorded, "c") == ["c", "a"]
    assert again.companions(recorded, "b") == ["b"]


@pytest.mark.parametrize(
    ("algorithm", "text", "fields"),
    [
        ("fedeba_plus", "tau=anneal(1, 0.01),fair_scale=none", {"server": "momentum(0.9)", "label_noise": 0.5}),
        ("afl", "average_iterate=true", {"validation": 0.1, "sample_seed": 7}),
        ("fedavg", "weighting=uniform", {"privacy": "client(2.0)", "dirichlet": 0.3, "partition": "dirichlet"}),
    ],
)
def test_a_record_makes_the_run_that_wrote_it(algorithm, text, fields):
    (run,) = make(algorithm, text, seeds=(3,), **fields)
    assert again.as_run(run.record, run.task_name).id == run.id


def test_a_recorded_run_tells_the_machine_that_made_it(tmp_path):
    old = origin() | {"packages": {"jax": "0.10.2"}}
    new = old | {"machine": {"cpu": "AMD EPYC", "cores": 2}}
    runs = [Run("fedavg", {"test": [(50, 1)]}, seed=seed, origins=(seed,)) for seed in (0, 1)]
    path = write_folder(tmp_path / "f", runs, origins=[old, new])
    told = [again.made_on(path, rows) for rows in again.recorded(path).values()]
    assert told == ["1 x cpu:0, jax 0.10.2", "1 x cpu:0, AMD EPYC, 2 cores, jax 0.10.2"]
