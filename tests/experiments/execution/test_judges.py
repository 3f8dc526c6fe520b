"""Who judges a run under attack: honest clients, and those of them whose labels are rare."""

import jax
import numpy as np

from experiments.execution import rows
from experiments.execution.judges import Judges, judges_of, rarest
from fedeba_jax.attacks import fixed
from fedeba_jax.data.dealing import Owned, Pools, Tables
from tests.support.runs import make

LABELS = np.array([0, 0, 0, 1, 1, 2, 0, 0, 1, 2])
HELD = [LABELS[:2], LABELS[2:4], LABELS[4:6], LABELS[6:8], LABELS[8:10]]


def test_the_rarest_labels_are_counted_among_honest_clients():
    """Labels 0, 1 and 2 are held 5, 3 and 2 times by all; without client 3, who attacks, 3, 3 and 2 times."""
    honest = np.array([True, True, True, False, True])
    np.testing.assert_array_equal(rarest(HELD, honest), [False, False, True, False, False])
    many = rarest([np.array([i % 3]) for i in range(40)], np.ones(40, bool))
    assert many.sum() == 4
    assert {i % 3 for i in np.flatnonzero(many)} <= {1, 2}


def tables(runs):
    index = np.tile(np.arange(10).reshape(5, 2), (runs, 1, 1))
    owned = Owned(index, np.full((runs, 5), 2), None, None)
    return Tables(owned, None, owned, None)


def test_a_run_is_judged_by_those_who_do_not_attack_in_it():
    asked = make("fedavg", grid=["attack=none,mimic(0.4),mimic(0.4, drawn=true)"], clients=5, seeds=(3,))
    nobody, static, drawn = judges_of(asked, Pools((None, LABELS), (None, LABELS)), tables(3))
    assert nobody is None
    np.testing.assert_array_equal(static.honest, ~np.asarray(fixed(jax.random.key(3), 0.4, 5)))
    assert static.honest.sum() == 3
    assert drawn.honest.all()


def test_metrics_are_of_honest_clients_with_all_clients_beside_them():
    who = Judges(np.array([True, False, True]), np.array([False, False, True]))
    accuracy = np.array([80.0, 0.0, 60.0])
    counters = rows.no_counts(1, 2, attacked=True)
    info = {name: np.ones((1, 4)) for name in ("bytes_down", "bytes_up", "exchanges", "weight_max")}
    info |= {"finite": np.ones((1, 4), bool), "cohort": np.zeros((1, 4, 2), int)}
    info["attacker_weight"] = np.array([[0.25, 0.5, 0.0, 0.25]])
    counters = rows.add(counters, info, 0, 2)
    told = rows.attacked(who, {"mean": 46.7}, accuracy, counters, 0, 4)
    assert told == {
        "attackers": [1], "minority": [2], "minority_accuracy": 60.0, "attacker_weight": 0.25, "excluded": None,
        "all_clients": {"mean": 46.7},
    }  # fmt: skip
