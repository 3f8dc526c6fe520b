"""The networks against their definition, in float64."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from fedeba_jax.client_map import by_name
from fedeba_jax.models import MODELS, NORMALIZATION, OF_TOKENS, accelerator_map, cnn, make_model, mlp
from fedeba_jax.models.normalization import Normalization
from tests.support.marks import slow_but

pytestmark = pytest.mark.usefixtures("x64")


def close(got, want):
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-10), got, want)


@pytest.mark.parametrize(
    ("name", "shape", "classes", "count"),
    [
        ("logistic", (28, 28, 1), 10, 7_850),
        ("logistic", (60,), 10, 610),
        ("mlp", (28, 28, 1), 10, 199_210),
        ("cnn", (32, 32, 3), 10, 797_962),
        ("cnn_narrow", (32, 32, 3), 10, 139_498),
        ("cnn_wide", (32, 32, 3), 10, 1_724_490),
        ("cnn_shallow", (32, 32, 3), 10, 105_674),
        ("cnn_deep", (32, 32, 3), 10, 630_218),
        ("resnet18", (32, 32, 3), 10, 11_173_962),
        ("resnet18", (32, 32, 3), 100, 11_220_132),
        ("resnet18", (64, 64, 3), 200, 11_271_432),
        ("mobilenet_v2", (64, 64, 3), 200, 2_480_072),
        ("lstm_words", (10,), 10_000, 5_563_280),
        ("lstm_chars", (80,), 80, 817_872),
    ],
)
def test_parameter_counts(name, shape, classes, count):
    params = jax.eval_shape(make_model(name, "none", shape, classes).init, jax.random.key(0))
    assert sum(leaf.size for leaf in jax.tree.leaves(params)) == count


def test_the_scalable_cnns_have_the_papers_linear_layers():
    inputs = {"cnn": 1600, "cnn_narrow": 800, "cnn_wide": 3200, "cnn_shallow": 64, "cnn_deep": 512}
    for name, number in inputs.items():
        params = jax.eval_shape(make_model(name, "cifar10", (32, 32, 3), 10).init, jax.random.key(0))
        assert params["Dense_0"]["kernel"].shape[1] == number


def test_initialisation_is_pytorchs():
    params = jax.device_get(jax.jit(cnn((32, 32, 3), 10).init)(jax.random.key(0)))
    fan_in = {"ConvReluPool_0": 75, "ConvReluPool_1": 1600, "Dense_0": 1600, "Dense_1": 384, "Dense_2": 192}
    assert set(params) == set(fan_in)
    for name, layer in params.items():
        for leaf in layer.values():
            bound = fan_in[name] ** -0.5
            assert 0.7 * bound < np.abs(leaf).max() <= bound
            assert np.unique(leaf).size == leaf.size
        np.testing.assert_allclose(layer["kernel"].std(), bound / 3**0.5, rtol=0.05)


def test_logits_by_hand():
    model = mlp((1, 2, 1), 1, hidden=(2,), normalization=Normalization((0.5,), (0.25,)))
    params = {
        "Dense_0": {"kernel": jnp.array([[1.0, 2.0], [-1.0, 0.0]]), "bias": jnp.array([0.5, 1.0])},
        "Dense_1": {"kernel": jnp.array([[3.0, 5.0]]), "bias": jnp.array([-1.0])},
    }
    # normalised (2, -1); hidden relu(2 - 2 + .5, -2 + 1) = (.5, 0); logit 1.5 - 1
    close(model.apply(params, jnp.array([[[[1.0], [0.25]]]])), jnp.array([[0.5]]))


@pytest.mark.parametrize("name", MODELS)
def test_computes_in_the_parameters_dtype(name):
    shape, kind, out = ((8,), jnp.int32, (2, 8, 10)) if name in OF_TOKENS else ((32, 32, 3), jnp.float32, (2, 10))
    model = make_model(name, "cifar10", shape, 10)
    drawn = jax.eval_shape(model.init, jax.random.key(0))
    assert {leaf.dtype for leaf in jax.tree.leaves(drawn)} == {jnp.dtype("float64")}
    params = jax.tree.map(lambda a: jax.ShapeDtypeStruct(a.shape, jnp.float32), drawn)
    logits = jax.eval_shape(model.apply, params, jax.ShapeDtypeStruct((2, *shape), kind))
    assert (logits.shape, logits.dtype) == (out, jnp.float32)


@pytest.mark.parametrize(("name", "shape"), [("mlp", (2, 2, 1)), ("lstm_chars", (3,))])
def test_parameters_start_in_the_default_float_type(name, shape):
    with jax.enable_x64(False):
        drawn = jax.eval_shape(make_model(name, "none", shape, 10).init, jax.random.key(0))
    assert {leaf.dtype for leaf in jax.tree.leaves(drawn)} == {jnp.dtype("float32")}


def conv(x, kernel, padding="VALID"):
    return lax.conv_general_dilated(x, kernel, (1, 1), padding, dimension_numbers=("NHWC", "HWIO", "NHWC"))


def textbook(params, h, pools):
    """5x5 convolutions (3x3 ones are padded), ReLU, max-pools of these sizes, hidden layers, logits."""
    for i, size in enumerate(pools):
        layer = params[f"ConvReluPool_{i}"]
        y = conv(h, layer["kernel"], "SAME" if layer["kernel"].shape[0] == 3 else "VALID")
        y = jnp.maximum(y + layer["bias"][None, None, None], 0)
        h = lax.reduce_window(y, -jnp.inf, lax.max, (1, size, size, 1), (1, size, size, 1), "VALID")
    h = h.reshape(h.shape[0], -1)
    for name in ("Dense_0", "Dense_1"):
        h = jnp.maximum(h @ params[name]["kernel"].T + params[name]["bias"][None], 0)
    return h @ params["Dense_2"]["kernel"].T + params["Dense_2"]["bias"][None]


@pytest.mark.parametrize(
    ("name", "size", "pools"),
    slow_but(
        [("cnn_shallow", 14, (10,))], [("cnn", 32, (2, 2)), ("cnn_shallow", 14, (10,)), ("cnn_deep", 20, (2, 2, 2))]
    ),
)
def test_cnns_are_textbook_networks(name, size, pools):
    mean, std = (jnp.array(a)[None, None, None] for a in NORMALIZATION["cifar10"])
    model = make_model(name, "cifar10", (size, size, 3), 10)
    params = model.init(jax.random.key(0))
    x = jax.random.uniform(jax.random.key(1), (2, size, size, 3))

    def run(apply):
        return jax.jit(lambda p: (apply(p, x), jax.grad(lambda p: jnp.sum(apply(p, x) ** 2))(p)))(params)

    close(run(model.apply), run(lambda p, x: textbook(p, (x - mean) / std, pools)))


def test_a_data_set_without_constants_is_taken_as_it_is():
    model = make_model("logistic", "features", (3,), 2)
    params = {"Dense_0": {"kernel": jnp.array([[1.0, 2.0, 3.0], [0.0, 0.0, 1.0]]), "bias": jnp.zeros(2)}}
    close(model.apply(params, jnp.array([[5.0, 0.0, -1.0]])), jnp.array([[2.0, -1.0]]))


def test_unknown_names_say_what_is_known():
    with pytest.raises(ValueError, match="cnn"):
        make_model("resnet", "cifar10", (32, 32, 3), 10)


@pytest.mark.parametrize(
    ("name", "shape", "message"),
    [
        ("cnn", (15, 32, 3), r"model=cnn takes images \[H, W, C\] of at least 16x16, .* \(15, 32, 3\)"),
        ("cnn_shallow", (5, 5, 3), "at least 6x6"),
        ("cnn_deep", (19, 19, 3), "model=cnn_deep .* at least 20x20"),
        ("cnn", (10,), "takes images"),
        ("resnet18", (10,), "takes images"),
        ("mobilenet_v2", (10,), "takes images"),
        ("lstm_words", (28, 28, 1), r"takes sequences of tokens \[L\], .* \(28, 28, 1\)"),
        ("lstm_chars", (28, 28, 1), "model=lstm_chars"),
    ],
)
def test_a_model_that_does_not_fit_the_examples_is_an_error(name, shape, message):
    with pytest.raises(ValueError, match=message):
        make_model(name, "none", shape, 10)


def test_tokens_are_not_taken_for_numbers_nor_numbers_for_tokens():
    def apply(name, dtype):
        model = make_model(name, "none", (4,), 10)
        return jax.eval_shape(model.apply, model.init(jax.random.key(0)), jax.ShapeDtypeStruct((2, 4), dtype))

    with pytest.raises(ValueError, match=r"int32.*takes floats"):
        apply("logistic", jnp.int32)
    with pytest.raises(ValueError, match=r"float32.*takes tokens"):
        apply("lstm_chars", jnp.float32)


@pytest.mark.parametrize("name", MODELS)
def test_clients_with_convolutions_are_not_all_at_once_on_an_accelerator(name):
    model = make_model(name, "none", (8,) if name in OF_TOKENS else (32, 32, 3), 10)
    params = jax.eval_shape(model.init, jax.random.key(0))
    convolutions = sum(leaf.ndim == 4 for leaf in jax.tree.leaves(params))
    assert accelerator_map(name) == ("vmap" if convolutions == 0 else "chunked(5)" if convolutions < 5 else "map")
    by_name(accelerator_map(name))
