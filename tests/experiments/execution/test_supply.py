"""Examples on the devices or on the host: the same results, to the bit."""

import types

import jax
import numpy as np
import pytest

from experiments.execution import devices, folder
from experiments.execution.batches import How, groups
from experiments.execution.program import Program
from fedeba_jax.data.sources import load
from fedeba_jax.rounds import cohorts
from tests.support.marks import slow_but
from tests.support.runs import Killed, execute, kill_after, make

ON_HOST = {"data_budget": 0.0}
AS_USERS = {"xla_cpu_use_fusion_emitters": True}  # the suite's way to emit code rounds by what is around an operation
CASES = {
    "one model": make("fedeba_plus", "theta=5", rounds=2, eval_every=1),
    "several runs of ragged clients": make(
        "fedavg", grid=("lr=0.05,0.1",), seeds=(0, 1), partition="dirichlet", rounds=2, eval_every=1
    ),
    "noisy labels and validation": make("fedeba", validation=0.2, label_noise=0.3, partition="dirichlet"),
    "several runs at a time, their clients on two devices": make("fedeba", seeds=(0, 1, 2), partition="dirichlet"),
    "personal models": make("ditto", rounds=2, eval_every=1),
    "strata": make("fedavg", clients=10, cohort_size=4, sampling="stratified(2)", rounds=2, eval_every=1),
    "clients that are asked though not sampled": make("focus", rounds=2, eval_every=2),
}


class CompiledAsUsersDo:
    """A jitted function whose programs are those that users run."""

    def __init__(self, jitted):
        self._jitted = jitted

    def lower(self, *arguments):
        lowered = self._jitted.lower(*arguments)
        return types.SimpleNamespace(compile=lambda: lowered.compile(compiler_options=AS_USERS))

    def __call__(self, *arguments):
        return self.lower(*arguments).compile()(*arguments)


@pytest.fixture
def as_users(monkeypatch):
    """Rounds and evaluations are compiled as users compile them."""
    for name in ("chunk", "judge", "judge_personally"):
        made = getattr(Program, name)
        monkeypatch.setattr(Program, name, lambda *arguments, made=made: CompiledAsUsersDo(made(*arguments)))


@pytest.mark.usefixtures("as_users")
# All the ways by which examples reach the devices are in these two.
@pytest.mark.parametrize("case", slow_but(["several runs of ragged clients", "personal models"], CASES))
def test_on_the_host_results_are_those_on_the_devices(case, tmp_path):
    runs = CASES[case]
    maps = {"client_map": "sharded", "run_map": "vmap"} if "two devices" in case else {}
    resident = execute(runs, tmp_path / "resident", log_rounds=True, **maps)
    hosted = execute(runs, tmp_path / "hosted", log_rounds=True, **maps, **ON_HOST)
    assert hosted == resident
    for table in folder.TABLES:
        assert (tmp_path / "hosted" / table).read_bytes() == (tmp_path / "resident" / table).read_bytes()


@pytest.mark.usefixtures("as_users")
def test_on_the_host_a_stopped_run_is_resumed_to_the_same_bytes(tmp_path):
    runs = make("fedavg", rounds=4, eval_every=2)
    whole = execute(runs, tmp_path / "whole", **ON_HOST)
    with pytest.raises(Killed):
        execute(runs, tmp_path / "stopped", kill_after(1), **ON_HOST)
    assert execute(runs, tmp_path / "stopped", **ON_HOST) == whole


def group(runs, budget):
    (made,) = groups(runs, set(), {"fashion_mnist_mini": load("fashion_mnist_mini")}, How(data_budget=budget), {})
    return made


def test_data_larger_than_the_budget_stays_on_the_host():
    runs = make("fedavg")
    assert not group(runs, None).hosted, "half of the memory is more than the embedded images"
    assert not group(runs, 2**30).hosted
    assert group(runs, 2**20).hosted


def test_a_chunk_takes_the_examples_of_its_cohorts_alone():
    runs = make("fedavg", clients=100, cohort_size=2, rounds=3, eval_every=3)
    _, supply = group(runs, 0).placed(runs)
    train = supply.feed(0, 3).own
    assert train.ids.shape == (1, 6), "three rounds of two clients"
    own = train.parts.parts
    assert own.rows.shape[:3] == (1, 2, 3), "one of the two clients for each of two devices"
    images = jax.tree.leaves(own.x)[0]
    assert images.shape[:3] == (1, 2, 3 * 100), "of 100 images each"
    assert images.sharding.shard_shape(images.shape)[:3] == (1, 1, 3 * 100), "each device has its own"
    assert supply.num_bytes(3) < 10**6
    np.testing.assert_array_equal(supply.feed(0, 3).own.ids, train.ids)


def test_a_device_gets_the_clients_that_it_will_be_given():
    runs = make("fedavg", clients=20, cohort_size=5, rounds=2, eval_every=2)
    _, supply = group(runs, 0).placed(runs)
    drawn = np.asarray(cohorts(jax.random.key(0), 0, 2, group(runs, 0).program.sizes))
    own = supply.feed(0, 2).own.parts.parts.ids[0]
    for ids, mine in zip(own, (drawn[:, :3], drawn[:, 3:]), strict=True):
        assert set(np.asarray(ids[ids < 20])) == set(mine.ravel())


def test_one_device_of_runs_that_are_sharded_gets_whole_cohorts():
    runs = make("fedavg", clients=20, cohort_size=5, seeds=(0, 1), rounds=2, eval_every=2)
    made = group(runs, 0)
    assert (made.program.client_map, made.program.run_map) == ("map", "sharded")
    assert made.placed(runs)[1].feed(0, 2).own.rows.shape[:2] == (2, 10)


def test_a_chunk_that_does_not_fit_is_refused_before_anything_runs(monkeypatch):
    runs = make("fedavg")
    made = group(runs, 0)
    monkeypatch.setattr(devices, "free_memory", lambda: 1000)
    with pytest.raises(ValueError, match=r"--eval_every=1: .* 0\.00 GiB are free; give fewer rounds"):
        made.placed(runs)
