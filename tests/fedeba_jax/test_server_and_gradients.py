"""One step of the server and one transformed local gradient, by hand; the algebra below both."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from fedeba_jax import tree
from fedeba_jax.gradients import blend, proximal
from fedeba_jax.server import descent
from fedeba_jax.types import Sizes
from fedeba_jax.weights import by_examples, uniform

X = {"w": jnp.array([1.0, 2.0])}
DELTAS = {"w": jnp.array([[-0.1, 0.2], [0.3, 0.0], [-0.2, -0.4]])}
SIZES = Sizes(3, 3, 1, 2)


def states(optimizer, *deltas):
    server = descent(optimizer)
    state = server.init(X, SIZES)
    for delta in deltas:
        state = server.descend(state, {"w": jnp.asarray(delta)})
        yield state


@pytest.mark.parametrize(
    ("weights", "expected"),
    [(uniform(3), (1.0, 1.93333333)), (by_examples(jnp.array([10, 30, 60])), (0.96, 1.78))],
    ids=["uniform", "examples"],
)
def test_a_rate_of_one_adds_the_weighted_updates(weights, expected):
    (state,) = states(optax.sgd(1.0), tree.weighted_sum(DELTAS, weights)["w"])
    np.testing.assert_allclose(state.params["w"], expected, rtol=1e-6)


def test_the_server_rate_scales_the_step():
    (state,) = states(optax.sgd(0.5), [1.0, -2.0])
    np.testing.assert_allclose(state.params["w"], [1.5, 1.0])


def test_server_momentum_by_hand():
    """v = 0.5 v + delta: 1, then 1.5; x = 1 + 1 + 1.5."""
    _, state = states(optax.sgd(1.0, momentum=0.5), [1.0, 0.0], [1.0, 0.0])
    np.testing.assert_allclose(state.params["w"], [3.5, 2.0])


def test_an_update_of_zero_is_a_fixed_point():
    (state,) = states(optax.sgd(1.0), [0.0, 0.0])
    np.testing.assert_array_equal(state.params["w"], X["w"])


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


def test_tree_algebra_by_hand():
    a, b = {"u": jnp.array([1.0, 2.0]), "v": (jnp.array(3.0),)}, {"u": jnp.array([3.0, 6.0]), "v": (jnp.array(-1.0),)}
    expected = {
        "add": ([4, 8], 2), "subtract": ([-2, -4], 4), "scale": ([2, 4], 6), "mix": ([1.5, 3], 2), "zeros": ([0, 0], 0)
    }  # fmt: skip
    found = {
        "add": tree.add(a, b), "subtract": tree.subtract(a, b), "scale": tree.scale(2, a), "mix": tree.mix(0.25, a, b),
        "zeros": tree.zeros_like(a),
    }  # fmt: skip
    for name, (u, v) in expected.items():
        np.testing.assert_allclose(found[name]["u"], u, err_msg=name)
        np.testing.assert_allclose(found[name]["v"][0], v, err_msg=name)
    assert (tree.size(a), tree.num_bytes(a), tree.num_bytes(jnp.zeros(3, jnp.bfloat16))) == (3, 12, 6)


def test_inner_products_run_over_all_leaves(x64):
    rng = np.random.default_rng(0)
    one, other = ({"u": rng.normal(size=(n, 2, 3)), "v": (rng.normal(size=n),)} for n in (4, 5))
    flat, others = (np.concatenate([t["u"].reshape(len(t["u"]), -1), t["v"][0][:, None]], axis=1) for t in (one, other))
    np.testing.assert_allclose(tree.gram(one), flat @ flat.T, atol=1e-14)
    np.testing.assert_allclose(tree.gram(one, other), flat @ others.T, atol=1e-14)
    np.testing.assert_allclose(tree.squared_norms(one), np.sum(flat**2, axis=1), atol=1e-14)
    first, last = tree.rows(one, 0), tree.rows(other, 4)
    np.testing.assert_allclose(tree.products(one, last), flat @ others[4], atol=1e-14)
    np.testing.assert_allclose(tree.dot(first, last), flat[0] @ others[4], atol=1e-14)


def test_rows_are_taken_and_set():
    stacked = {"u": jnp.arange(8).reshape(4, 2)}
    index = jnp.array([3, 0])
    np.testing.assert_array_equal(tree.rows(stacked, index)["u"], [[6, 7], [0, 1]])
    moved = tree.set_rows(stacked, index, {"u": jnp.array([[-1, -2], [-3, -4]])})
    np.testing.assert_array_equal(moved["u"], [[-3, -4], [2, 3], [4, 5], [-1, -2]])


def test_the_algebra_keeps_the_precision_of_the_leaves():
    leaf = jnp.ones((2, 3), jnp.bfloat16)
    weight = jnp.asarray(0.5, jnp.float32)
    results = [tree.scale(weight, leaf), tree.mix(weight, leaf, leaf), tree.weighted_sum(leaf, jnp.array([0.5, 0.5]))]
    assert {result.dtype for result in jax.tree.leaves(results)} == {jnp.dtype(jnp.bfloat16)}
