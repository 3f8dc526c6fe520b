"""Grids, random points and lists as runs."""

import numpy as np
import pytest

from experiments.command import grids
from experiments.command.runs import grouped, varying
from tests.support.runs import MINI, TINY, make


def test_runs_of_a_method_of_all_clients_have_full_cohorts():
    runs = make("afl", grid=("participation=block,all", "cohort_size=2,3"))
    found = [(run.hparams["participation"], run.task.cohort_size) for run in runs]
    assert found == [("block", 2), ("block", 3), ("all", 10)]


@pytest.mark.parametrize(
    ("algorithm", "text", "cohort_size"),
    [("afl", "participation=all", 10), ("aaggff", "variant=S", 10), ("afl", "", 3), ("fedavg", "", 3)],
)
def test_a_method_of_all_clients_gets_them(algorithm, text, cohort_size):
    (run,) = make(algorithm, text)
    assert run.task.cohort_size == cohort_size


def test_strata_need_only_divide_the_cohorts_that_are_drawn():
    """Not that of the task, where a grid or a method gives another."""
    (of_grid,) = make("fedavg", grid=("cohort_size=4",), sampling="stratified(2)")
    (of_all,) = make("afl", "participation=all", sampling="stratified(5)")
    assert (of_grid.task.cohort_size, of_all.task.cohort_size) == (4, 10)
    told = r"--sampling=stratified\(2\) does not divide --clients=10 and --cohort_size=3; change one of the three"
    with pytest.raises(ValueError, match=told):
        make("fedavg", sampling="stratified(2)")


def test_a_name_counts_for_the_algorithms_that_take_it():
    runs = make(("fedavg", "fedprox"), grid=("mu=0,1",))
    assert [run.algorithm for run in runs] == ["fedavg", "fedprox", "fedprox"]
    assert varying(runs) == ["mu"]
    assert runs[1].label(["mu"]) == "fedprox mu=0"


def test_random_points_are_reproducible_and_in_range():
    axes = [grids.parse_axis(text) for text in ("tau=0.01..10:log", "alpha=0..1", "theta=0,15")]
    drawn = grids.sampled(axes, 50, seed=3)
    assert drawn == grids.sampled(axes, 50, seed=3)
    assert drawn != grids.sampled(axes, 50, seed=4)
    tau = np.array([float(p["tau"]) for p in drawn])
    assert tau.min() >= 0.01
    assert tau.max() <= 10
    assert np.mean(tau < 0.32) > 0.25  # log-uniform: half below the geometric mean; uniform would give 3 %
    assert {p["theta"] for p in drawn} == {"0", "15"}


def test_a_path_with_dots_is_no_range():
    axis = grids.parse_axis("dataset=custom(../a.npz),custom(../b.npz)")
    assert [point["dataset"] for point in grids.grid([axis])] == ["custom(../a.npz)", "custom(../b.npz)"]
    assert grids.sampled([axis], 1, seed=0)[0]["dataset"] in axis[1]


def test_points_and_runs_are_counted_before_they_are_made():
    """None of these would fit into the memory."""
    axes = [(f"x{i}", [str(value) for value in range(1000)]) for i in range(9)]
    with pytest.raises(ValueError, match=f"--grid makes {10**27} runs, more than --max_runs=10000"):
        grids.grid(axes)
    with pytest.raises(ValueError, match=r"--random=1000000000 makes 1000000000 runs"):
        grids.sampled(axes, 10**9, seed=0)
    with pytest.raises(ValueError, match=r"1 algorithms x 1 points x 2000000000 seeds makes 2000000000 runs"):
        grids.make(["fedavg"], [{}], task_name=MINI, changes={}, seeds=range(2 * 10**9))


@pytest.mark.parametrize("algorithms", [[], ["fedavg", "fedavg"]])
def test_algorithms_are_named_once(algorithms):
    with pytest.raises(ValueError, match=r"^--algorithm=.* must name different algorithms; give each once$"):
        make(algorithms)
    with pytest.raises(ValueError, match="--algorithm= is not known"):
        make(["fedavg", "", "ditto"])


def test_lists_keep_calls_whole():
    assert grids.listed(["tau=anneal(1, 0.1), alpha=0", "tau=1"]) == [
        {"tau": "anneal(1, 0.1)", "alpha": "0"}, {"tau": "1"}
    ]  # fmt: skip


def test_seeds_are_innermost_and_equal_runs_are_one():
    runs = make(grid=("tau=1,1.0,2",), seeds=(0, 1))
    assert [(run.hparams["tau"], run.seed) for run in runs] == [(1, 0), (1, 1), (2, 0), (2, 1)]


def test_a_grid_may_have_fields_of_the_task():
    runs = make("fedavg", grid=("dataset=fashion_mnist_mini,mnist", "server=sgd(1.0),adam(0.1)"))
    assert [(run.task.dataset, str(run.task.server)) for run in runs] == [
        (dataset, server) for dataset in ("fashion_mnist_mini", "mnist") for server in ("sgd(1.0)", "adam(0.1)")
    ]
    assert varying(runs) == ["dataset", "server"]
    assert len(grouped(runs)) == 4  # no program is shared by two data sets


def test_what_flags_change_holds_for_every_run():
    runs = grids.make(
        ["fedavg"], [{"lr": "0.1"}, {"lr": "0.2"}], task_name=MINI, changes=TINY | {"server": "adam(0.1)"}, seeds=(0,),
        validation=0.1, state_dtype="bfloat16",
    )  # fmt: skip
    assert [run.task.lr for run in runs] == [0.1, 0.2]
    assert {(str(run.task.server), run.validation, run.state_dtype) for run in runs} == {("adam(0.1)", 0.1, "bfloat16")}
