"""Data that stays on the host: a part of a federation gives the same rounds as the whole."""

import jax
import numpy as np
import pytest

from fedeba_jax.client_map import mapped
from fedeba_jax.data.hosting import Stored, most_examples, part
from fedeba_jax.examples import take
from fedeba_jax.rounds import cohorts, run_rounds, start
from tests.support.marks import slow_but
from tests.support.problems import tiny

TINY = tiny(cohort_size=2)
WHOLE = Stored(*(np.asarray(array) for array in TINY.federation[:4]))
KEY = jax.random.key(3)


def part_of(ids, clients):
    return part(WHOLE, np.asarray(ids), clients, most_examples(WHOLE.num_examples, clients))


def test_a_part_holds_the_examples_of_its_clients():
    made = part_of([4, 1, 1], 3)
    for id_ in (1, 4):
        place, count = made.place(id_), WHOLE.num_examples[id_]
        assert made.num_examples[place] == count
        for flat in ("x", "y"):
            own = take(getattr(made, flat), made.rows[place][:count])
            np.testing.assert_array_equal(own, take(getattr(WHOLE, flat), WHOLE.rows[id_][:count]))


def test_parts_have_one_shape():
    shapes = [jax.tree.map(np.shape, part_of(ids, 3)) for ids in ([0], [1, 2, 5], [4, 0])]
    assert shapes[0] == shapes[1] == shapes[2]


def test_the_most_examples_are_those_of_the_largest_clients():
    assert most_examples(np.array([7, 3, 12, 5]), 2) == 19
    assert most_examples(np.array([7, 3]), 5) == 10


@pytest.mark.parametrize("name", slow_but(["ditto"], ["fedavg", "fedeba_plus", "ditto"]))
def test_rounds_of_a_part_are_those_of_the_whole_bit_for_bit(name):
    algorithm = TINY.algorithm(name)
    state = start(algorithm, TINY.model.init, KEY, sizes=TINY.sizes)

    @jax.jit
    def run(federation, state, first):
        return run_rounds(algorithm, federation, state, KEY, first, rounds=2, sizes=TINY.sizes, client_map=mapped)

    for first in (0, 2):
        ids = np.asarray(cohorts(KEY, first, 2, TINY.sizes))
        expected, info = run(TINY.federation, state, first)
        found, info_of_part = run(part_of(ids, 4), state, first)
        np.testing.assert_array_equal(info["cohort"], ids)
        jax.tree.map(np.testing.assert_array_equal, (found, info_of_part), (expected, info))
        state = expected
