"""The networks against their definition, in float64."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from fedeba_jax.models import MODELS, NORMALIZATION, cnn, make_model, mlp


@pytest.fixture(autouse=True)
def _float64():
    with jax.enable_x64(True):
        yield


def close(got, want):
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-10), got, want)


@pytest.mark.parametrize(("factory", "shape", "count"), [(mlp, (28, 28, 1), 199_210), (cnn, (32, 32, 3), 797_962)])
def test_parameter_counts(factory, shape, count):
    params = jax.eval_shape(factory(shape, 10).init, jax.random.key(0))
    assert sum(leaf.size for leaf in jax.tree.leaves(params)) == count


def test_initialisation_is_pytorchs():
    params = cnn((32, 32, 3), 10).init(jax.random.key(0))
    fan_in = {"ConvReluPool_0": 75, "ConvReluPool_1": 1600, "Dense_0": 1600, "Dense_1": 384, "Dense_2": 192}
    assert set(params) == set(fan_in)
    for name, layer in params.items():
        for leaf in layer.values():
            bound = fan_in[name] ** -0.5
            assert 0.7 * bound < jnp.abs(leaf).max() <= bound
            assert jnp.unique(leaf).size == leaf.size
        np.testing.assert_allclose(layer["kernel"].std(), bound / 3**0.5, rtol=0.05)


def test_logits_by_hand():
    model = mlp((1, 2, 1), 1, hidden=(2,), mean=(0.5,), std=(0.25,))
    params = {
        "Dense_0": {"kernel": jnp.array([[1.0, 2.0], [-1.0, 0.0]]), "bias": jnp.array([0.5, 1.0])},
        "Dense_1": {"kernel": jnp.array([[3.0, 5.0]]), "bias": jnp.array([-1.0])},
    }
    # normalised (2, -1); hidden relu(2 - 2 + .5, -2 + 1) = (.5, 0); logit 1.5 - 1
    close(model.apply(params, jnp.array([[[[1.0], [0.25]]]])), jnp.array([[0.5]]))


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
@pytest.mark.parametrize("name", MODELS)
def test_computes_in_the_parameters_dtype(name, dtype):
    model = make_model(name, "cifar10", (32, 32, 3), 10)
    params = jax.tree.map(lambda a: jnp.zeros(a.shape, dtype), jax.eval_shape(model.init, jax.random.key(0)))
    for leaf in jax.tree.leaves(jax.eval_shape(model.apply, params, jnp.ones((2, 32, 32, 3), jnp.float32))):
        assert (leaf.shape, leaf.dtype) == ((2, 10), dtype)
    with jax.enable_x64(False):
        assert jax.eval_shape(model.init, jax.random.key(0))["Dense_0"]["bias"].dtype == jnp.float32


def test_cnn_is_the_textbook_network():
    mean, std = NORMALIZATION["cifar10"]
    model = make_model("cnn", "cifar10", (32, 32, 3), 10)
    params = model.init(jax.random.key(0))
    x = jax.random.uniform(jax.random.key(1), (2, 32, 32, 3))

    def textbook(params, x):
        h = (x - jnp.array(mean)[None, None, None]) / jnp.array(std)[None, None, None]
        for name in ("ConvReluPool_0", "ConvReluPool_1"):
            y = lax.conv_general_dilated(
                h, params[name]["kernel"], (1, 1), "VALID", dimension_numbers=("NHWC", "HWIO", "NHWC")
            )
            y = jnp.maximum(y + params[name]["bias"][None, None, None], 0)
            h = lax.reduce_window(y, -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")
        h = h.reshape(2, -1)
        for name in ("Dense_0", "Dense_1"):
            h = jnp.maximum(h @ params[name]["kernel"].T + params[name]["bias"][None], 0)
        return h @ params["Dense_2"]["kernel"].T + params["Dense_2"]["bias"][None]

    def run(apply):
        return jax.jit(lambda p: (apply(p, x), jax.grad(lambda p: jnp.sum(apply(p, x) ** 2))(p)))(params)

    close(run(model.apply), run(textbook))


def test_unknown_names_say_what_is_known():
    with pytest.raises(ValueError, match="cnn"):
        make_model("resnet", "cifar10", (32, 32, 3), 10)
    with pytest.raises(ValueError, match="NORMALIZATION"):
        make_model("cnn", "imagenet", (32, 32, 3), 10)
