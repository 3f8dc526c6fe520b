"""The algebra of trees by hand."""

import jax
import jax.numpy as jnp
import numpy as np

from fedeba_jax import tree


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
