"""Rows of stored examples, packed into words or not."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedeba_jax.examples import Packed, pack, take

IMAGES = np.random.default_rng(0).integers(0, 256, (6, 2, 3, 2), dtype=np.uint8)


def test_models_take_bytes_as_floats_in_0_1_and_other_types_as_they_are():
    rows = jnp.array([2, 0])
    np.testing.assert_allclose(take(jnp.array([0, 51, 255], jnp.uint8), rows), [1, 0], rtol=1e-6)
    np.testing.assert_array_equal(take(jnp.array([0.5, 7.0, -1.0]), rows), [-1, 0.5])
    assert take(jnp.array([7, 8, 9], jnp.int32), rows).dtype == jnp.int32  # tokens


@pytest.mark.parametrize("rows", [np.array([5, 0, 0]), np.array([[1, 2], [3, 4]]), np.array(3), np.zeros(0, int)])
def test_packed_rows_are_the_same_to_the_bit(rows):
    packed = pack(IMAGES)
    assert isinstance(packed, Packed)
    assert packed.words.nbytes == IMAGES.nbytes
    for taken in (take, jax.jit(take)):
        np.testing.assert_array_equal(taken(packed, rows), take(jnp.asarray(IMAGES), rows))


def test_packed_rows_under_vmap_and_in_double_precision(x64):
    rows = jnp.array([[0, 1], [4, 4]])
    found = jax.vmap(take, in_axes=(None, 0))(pack(IMAGES), rows)
    assert found.dtype == jnp.float64
    np.testing.assert_allclose(found, IMAGES[rows] / 255, rtol=1e-15)


@pytest.mark.parametrize("x", [IMAGES[..., :1, :1], IMAGES.astype(np.float32), np.arange(8), IMAGES[:, :, :1, 0]])
def test_what_does_not_fill_words_of_bytes_stays_as_it_is(x):
    assert pack(x) is x


def test_a_view_that_is_not_contiguous_can_be_packed():
    x = IMAGES.transpose(0, 2, 1, 3)
    np.testing.assert_array_equal(take(pack(x), jnp.arange(6)), take(jnp.asarray(x), jnp.arange(6)))
