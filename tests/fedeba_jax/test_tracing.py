"""Functions whose shapes are asked for before they are computed are followed once."""

import jax
import jax.numpy as jnp
import numpy as np

from fedeba_jax.client_map import map_sum, mapped
from fedeba_jax.tracing import traced_once


def test_asking_for_shapes_and_computing_follows_a_function_once():
    calls = []

    def followed(x):
        calls.append(x)
        return 2 * x

    def program(x):
        once = traced_once(followed)
        assert jax.eval_shape(once, x).shape == (3,)
        return once(x) + once(2 * x)

    np.testing.assert_array_equal(jax.jit(program)(np.arange(3.0)), 6 * np.arange(3.0))
    assert len(calls) == 1


def test_the_program_is_that_of_the_function_itself():
    def program(function):
        return jax.make_jaxpr(lambda x: jnp.sum(function(x)))(np.arange(3.0))

    assert str(program(traced_once(jnp.sin))) == str(program(jnp.sin))


def test_a_sum_over_rows_follows_its_function_once():
    calls = []

    def reply(row, shift):
        calls.append(row)
        return row + shift

    rows, weights = np.arange(6.0).reshape(3, 2), np.array([1.0, 2.0, 3.0])
    total = jax.jit(lambda weights, rows, shift: map_sum(mapped, reply, weights, rows, shift))(weights, rows, 1.0)
    np.testing.assert_allclose(total, weights @ (rows + 1))
    assert len(calls) == 1
