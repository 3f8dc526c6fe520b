"""Which examples a client visits in which step, and blocks of its data."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedeba_jax import batching
from tests.support.clients import COUNTS, LOCAL, client, drawn, examples


def joined(batches):
    return [position for batch in batches for position in batch]


@functools.cache
def drawn_by_all(**changes):
    return [drawn(dataclasses.replace(LOCAL, **changes), client(i)) for i in range(len(COUNTS))]


def test_an_epoch_visits_every_example_once_and_the_next_is_a_new_permutation():
    batches = drawn_by_all()[2]  # 12 examples, batches of 4: 2 epochs and 1 step
    first, second = joined(batches[:3]), joined(batches[3:6])
    assert sorted(first) == sorted(second) == list(range(12))
    assert first != second
    assert len(set(batches[6])) == 4


def test_the_last_batch_of_an_epoch_is_kept_though_smaller():
    batches = drawn_by_all()[0]  # 7 examples
    assert [len(batch) for batch in batches] == [4, 3] * 3 + [4]
    for epoch in range(3):
        assert sorted(batches[2 * epoch] + batches[2 * epoch + 1]) == list(range(7))


@pytest.mark.parametrize("i", [1, 5])
def test_a_client_smaller_than_the_batch_uses_all_it_has_in_each_step(i):
    assert drawn_by_all()[i] == [list(range(COUNTS[i]))] * 7


@pytest.mark.parametrize("i", [0, 1, 3])
def test_batches_do_not_depend_on_the_capacity(i):
    assert drawn(LOCAL, client(i, capacity=int(COUNTS[i]))) == drawn_by_all()[i]


def test_batches_depend_on_the_key():
    other = client(2)._replace(key=jax.random.key(6))
    assert drawn(LOCAL, other) != drawn_by_all()[2]


def test_epochs_take_as_many_steps_as_a_client_s_data_need():
    batches = drawn_by_all(epochs=2)
    assert [len(steps) for steps in batches] == [4, 2, 6, 4, 6, 2]
    for steps, count in zip(batches, COUNTS, strict=True):
        half = len(steps) // 2
        assert sorted(joined(steps[:half])) == sorted(joined(steps[half:])) == list(range(count))


# Blocks.


@pytest.mark.parametrize(("most", "number", "size"), [(1, 12, 1), (5, 3, 4), (12, 1, 12), (200, 1, 12)])
def test_blocks_are_equal_and_hold_every_example_once(most, number, size):
    for i, count in enumerate(COUNTS):
        blocks = batching.blocks_of(client(i), most)
        assert (blocks.number, blocks.size) == (number, size)
        batches = [blocks.batch(b) for b in range(number)]
        assert all(batch.x.shape == (size, 2) for batch in batches)
        found = np.concatenate([batch.x[batch.mask > 0] for batch in batches])
        np.testing.assert_allclose(found, examples(i), rtol=1e-6)
        assert len(found) == count


@pytest.mark.parametrize("block", [1, 5, 12, 200])
@pytest.mark.parametrize("i", [0, 2, 5])
def test_a_mean_over_the_data_does_not_depend_on_the_blocks(x64, i, block):
    def mean(batch):
        return {"x": (batch.x * batch.mask[:, None]).sum(0) / batch.mask.sum(), "one": jnp.ones(())}

    found = jax.jit(lambda: batching.mean_over_data(client(i), mean, block))()
    np.testing.assert_allclose(found["x"], examples(i).mean(0), rtol=1e-12)
    np.testing.assert_allclose(found["one"], 1, rtol=1e-12)


def test_examples_are_gathered_by_their_place_at_the_client():
    batch = batching.gather(client(2).data, jnp.array([11, 0, 3]), jnp.array([True, True, False]))
    np.testing.assert_allclose(batch.x, examples(2)[[11, 0, 3]], rtol=1e-6)
    np.testing.assert_array_equal(batch.mask, [1.0, 1.0, 0.0])
    assert batch.mask.dtype == jnp.result_type(float)


def test_steps_that_choose_otherwise_have_batches_without_examples():
    batches = batching.empty(3, jnp.asarray(2))
    assert batches.position.shape == batches.mask.shape == (3, 0)
    assert int(batches.num_steps) == 2
