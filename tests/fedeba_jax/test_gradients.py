"""Transformed local gradients by hand."""

import jax.numpy as jnp
import numpy as np
import pytest

from fedeba_jax.gradients import blend, proximal

X = {"w": jnp.array([1.0, 2.0])}


def transformed(transform, gradient, params=None, **context):
    return transform.update(gradient, transform.init(X), params, anchor=X, num_steps=jnp.asarray(4), **context)[0]["w"]


@pytest.mark.parametrize(
    ("fair_scale", "weight", "expected"),
    [
        (None, 0.5, (0.5 * 8 + 0.5 / 4 * 16, 0.0)),  # c = 1/K
        (1.0, 0.5, (0.5 * 8 + 0.5 * 16, 0.0)),  # the literal reading
        (0.0, 0.5, (4.0, 0.0)),
        (1.0, 0.0, (8.0, 0.0)),  # a closed gate
        (1.0, 1.0, (16.0, 0.0)),
    ],
)
def test_blend_by_hand(fair_scale, weight, expected):
    gradient, target = {"w": jnp.array([8.0, 0.0])}, {"w": jnp.array([16.0, 0.0])}
    np.testing.assert_allclose(transformed(blend(fair_scale), gradient, target=target, weight=weight), expected)


def test_proximal_pulls_back_to_the_model_of_the_round():
    params = {"w": jnp.array([3.0, 2.0])}
    np.testing.assert_allclose(transformed(proximal(0.1), {"w": jnp.array([1.0, 1.0])}, params), [1.2, 1.0], rtol=1e-6)
    np.testing.assert_array_equal(transformed(proximal(0.0), {"w": jnp.array([1.0, 1.0])}, params), [1, 1])
