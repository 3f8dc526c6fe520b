"""One run: its name, its numbers, and whom it shares a compilation with."""

import dataclasses
import json

import pytest

from experiments.command import hparams
from experiments.command.runs import LATER, Seeds, grouped, varying
from experiments.command.tasks import Task
from tests.support.runs import make


def test_runs_group_by_what_is_static():
    axes = ("tau=0.1,1", "alpha=0,0.5", "theta=0,15", "lr=0.1,0.2", "fair_scale=0.1,1")
    traced = make(grid=axes, seeds=(0, 1))
    assert len(traced) == 2 * 2 * 2 * 2 * 2 * 2
    assert len(grouped(traced)) == 1
    assert len(grouped(make(grid=("tau=0.1,1", "steps=2,3", "prior=none,examples")))) == 4
    assert len(grouped(make(grid=("fair_scale=none,1",)))) == 2  # none is not a number
    assert len(grouped(make(("fedavg", "fedprox", "fedeba"), grid=("mu=0,1", "tau=1,2")))) == 3


def test_runs_that_differ_in_numbers_of_a_schedule_share_a_compilation():
    texts = ["anneal(0.5, 0.01)", "anneal(1, 0.1)", "anneal(1, 0.1, shape=convex)", "0.5", "0.1"]
    runs = make("fedeba", grid=(f"tau={','.join(texts)}",), validation=0.1)
    assert [len(group) for group in grouped(runs)] == [2, 1, 2]
    assert len({run.id for run in runs}) == 5


def test_runs_with_other_numbers_of_an_option_share_a_compilation():
    runs = make("fedeba", grid=("privacy=client(0),client(2),client(10, clip=0.5)",))
    assert len(grouped(runs)) == 1
    assert len(grouped(make("fedeba", grid=("server=sgd(1.0),sgd(0.5),adam(0.1)",)))) == 2


@pytest.mark.parametrize("changes", [{"validation": 0.1}, {"state_dtype": "bfloat16"}])
def test_what_changes_the_program_is_a_group_of_its_own(changes):
    (run,) = make("fedavg")
    other = dataclasses.replace(run, **changes)
    assert run.id != other.id
    assert len(grouped([run, other])) == 2


def test_runs_of_other_lengths_have_one_program_and_groups_of_their_own():
    """Unless the objective depends on the length, or a run is shorter than a chunk."""
    runs = make("fedavg", grid=("rounds=4,8",), eval_every=2)
    assert runs[0].parts == runs[1].parts
    assert len(grouped(runs)) == 2
    for others in (make("fedavg", grid=("rounds=4,8",), eval_every=2, objective="lsr"),
                   make("fedavg", grid=("rounds=1,8",), eval_every=2)):  # fmt: skip
        assert others[0].parts[1] != others[1].parts[1]


ID = "b0ddd51f97d9"  # of the run below; if it changes, folders of earlier versions cannot be resumed


def test_the_id_is_stable():
    """Of what is written, not of this process: folders are resumed by later ones."""
    (run,) = make(text="tau=0.5", seeds=(3,), model="mlp")
    (again,) = make(text="tau=0.50", seeds=(3,), model="mlp")
    assert run.id == again.id == ID
    assert set(run.id) <= set("0123456789abcdef")


def test_what_came_later_changes_no_name_of_a_run_that_does_without():
    defaults = {field.name: str(field.default) for field in dataclasses.fields(Task) if field.name in LATER}
    of_methods = {name: h.default for name, h in hparams.known("fedeba_plus").items() if name in LATER}
    assert defaults | of_methods == LATER
    (run,), (other,) = make(text="tau=0.5"), make(text="tau=0.5,weigh_by=before")
    assert run.record["hparams"]["weigh_by"] == "after"
    assert run.id != other.id


def test_the_id_differs_where_anything_differs():
    (run,) = make(text="tau=0.5")
    others = [
        *make("fedeba", "tau=0.5"),
        *make(text="tau=0.6"),
        *make(text="tau=anneal(0.5, 0.0)"),
        *make(text="tau=0.5", seeds=(1,)),
        *make(text="tau=0.5", task_name="mnist_mlp", dataset="fashion_mnist_mini"),
        *(
            dataclasses.replace(run, **{name: 5})
            for name in ("data_seed", "init_seed", "sample_seed", "validation", "state_dtype")
        ),
    ]
    fields = {
        "dataset": "mnist", "model": "cnn", "clients": 20, "cohort_size": 4, "steps": 3, "local_epochs": 1,
        "batch_size": 5, "lr": 0.2, "lr_decay": 0.9, "server": "sgd(0.5)", "objective": "lsr(gamma=0.2)",
        "privacy": "paper(2)", "partition": "dirichlet", "shards_per_client": 3, "dirichlet": 0.2,
        "test_split": "holdout", "label_noise": 0.1, "loss_eval": "last_batch", "rounds": 3, "eval_every": 2,
        "attack": "sign_flipping(0.2)", "aggregator": "median", "sampling": "stratified(1)",
    }  # fmt: skip
    assert set(fields) == {field.name for field in dataclasses.fields(run.task)}
    for name, value in fields.items():
        others += make(text="tau=0.5", **{name: value})
    ids = [run.id, *(other.id for other in others)]
    assert len(set(ids)) == len(ids)


def test_settings_hold_the_task_and_all_else_that_is_no_hyper_parameter():
    (run,) = make("fedavg", data_seed=7)
    assert {field.name for field in dataclasses.fields(run.task)} < set(run.settings)
    beside = {"data_seed": 7, "init_seed": None, "sample_seed": None, "validation": 0.0, "state_dtype": "float32"}
    assert beside.items() <= run.settings.items()
    assert json.loads(json.dumps(run.record)) == run.record
    assert set(run.record) == {"algorithm", "hparams", "settings", "seed"}


def test_seeds_follow_the_seed_unless_given():
    (run,) = make(seeds=(3,), init_seed=5)
    assert run.seeds == Seeds(data=3, init=5, sample=3)


def test_labels_name_what_varies():
    runs = make(("fedeba", "fedavg"), grid=("tau=0.1,1", "lr=0.1,0.25"))
    assert varying(runs) == ["lr", "tau"]
    assert [run.label(["tau", "lr"]) for run in runs[::2]] == [
        "fedeba tau=0.1 lr=0.1",
        "fedeba tau=1 lr=0.1",
        "fedavg lr=0.1",
    ]
