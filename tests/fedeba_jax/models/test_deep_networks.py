"""ResNet-18 and MobileNetV2 against the same networks written with XLA's convolution and plain sums, in float64."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from fedeba_jax.models import mobilenet_v2, resnet18
from fedeba_jax.models.layers import GroupNorm
from fedeba_jax.models.mobile import Blocks

BLOCKS = (Blocks(1, 4, 1, 1), Blocks(2, 8, 2, 2), Blocks(3, 8, 1, 1))


@pytest.fixture(autouse=True)
def _float64():
    with jax.enable_x64(True):
        yield


def close(got, want):
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-8, atol=1e-8), got, want)


def conv(x, layer, stride=1):
    kernel = layer["kernel"]
    pad = kernel.shape[0] // 2
    return lax.conv_general_dilated(
        x, kernel, (stride, stride), [(pad, pad)] * 2, dimension_numbers=("NHWC", "HWIO", "NHWC"),
        feature_group_count=x.shape[-1] // kernel.shape[2],
    )  # fmt: skip


def norm(x, layer, groups):
    parts = []
    for part in jnp.split(x, groups, -1):
        mean = part.mean((1, 2, 3), keepdims=True)
        parts.append((part - mean) / jnp.sqrt(part.var((1, 2, 3), keepdims=True) + 1e-5))
    return jnp.concatenate(parts, -1) * layer["scale"][None, None, None] + layer["bias"][None, None, None]


def dense(x, layer):
    return x @ layer["kernel"].T + layer["bias"][None]


def textbook_resnet(params, x, groups):
    def unit(x, block, i, stride=1):
        return norm(conv(x, block[f"Conv_{i}"], stride), block[f"GroupNorm_{i}"], groups)

    x = jnp.maximum(unit(x, params, 0), 0)
    for number, stride in enumerate([1, 1, 2, 1, 2, 1, 2, 1]):
        block = params[f"BasicBlock_{number}"]
        y = unit(jnp.maximum(unit(x, block, 0, stride), 0), block, 1)
        assert ("shortcut" in block) == (stride == 2)
        if stride == 2:
            x = norm(conv(x, block["shortcut"], 2), block["shortcut_norm"], groups)
        x = jnp.maximum(x + y, 0)
    return dense(x.mean((1, 2)), params["Dense_0"])


def textbook_mobilenet(params, x, groups):
    def unit(x, layer, stride=1, linear=False):
        y = norm(conv(x, layer["Conv_0"], stride), layer["GroupNorm_0"], groups)
        return y if linear else jnp.clip(y, 0, 6)

    x = unit(x, params["ConvNorm_0"])
    strides = [b.stride if i == 0 else 1 for b in BLOCKS for i in range(b.number)]
    for number, stride in enumerate(strides):
        block = params[f"Bottleneck_{number}"]
        layers = [block[name] for name in sorted(block)]
        y = x if len(layers) == 2 else unit(x, layers[0])
        y = unit(unit(y, layers[-2], stride), layers[-1], linear=True)
        x = x + y if x.shape == y.shape else y
    return dense(unit(x, params["ConvNorm_1"]).mean((1, 2)), params["Dense_0"])


SMALL_MOBILE = functools.partial(mobilenet_v2, blocks=BLOCKS, stem=4, head=8, groups=2)
NETWORKS = {
    "resnet": (functools.partial(resnet18, width=2), functools.partial(textbook_resnet, groups=2)),
    "mobilenet": (SMALL_MOBILE, functools.partial(textbook_mobilenet, groups=2)),
}


@pytest.mark.parametrize("name", NETWORKS)
def test_values_and_gradients_are_the_textbooks(name):
    factory, textbook = NETWORKS[name]
    model = factory((9, 8, 3), 5)
    params = model.init(jax.random.key(0))
    x = jax.random.normal(jax.random.key(1), (3, 9, 8, 3))

    def run(apply):
        return jax.jit(lambda p: (apply(p, x), jax.grad(lambda p: jnp.sum(jnp.cos(apply(p, x))))(p)))(params)

    close(run(model.apply), run(textbook))


def test_the_mobile_stem_may_have_a_stride():
    shapes = [
        jax.eval_shape(
            lambda p, x, m=m: m.apply(p, x), jax.eval_shape(m.init, jax.random.key(0)), jnp.zeros((2, 8, 8, 3))
        )
        for m in (SMALL_MOBILE((8, 8, 3), 5, stem_stride=stride) for stride in (1, 2))
    ]
    assert [s.shape for s in shapes] == [(2, 5), (2, 5)]


def test_convolutions_start_as_pytorchs():
    params = resnet18((8, 8, 3), 10, width=8).init(jax.random.key(0))
    for layer, fan_in in [(params["Conv_0"], 27), (params["BasicBlock_2"]["shortcut"], 8)]:
        assert 0.9 * fan_in**-0.5 < jnp.abs(layer["kernel"]).max() <= fan_in**-0.5
    depthwise = SMALL_MOBILE((8, 8, 3), 5).init(jax.random.key(0))["Bottleneck_1"]["ConvNorm_1"]
    assert 0.9 / 3 < jnp.abs(depthwise["Conv_0"]["kernel"]).max() <= 1 / 3
    np.testing.assert_array_equal(depthwise["GroupNorm_0"]["scale"], 1)
    np.testing.assert_array_equal(depthwise["GroupNorm_0"]["bias"], 0)


def test_group_norm_by_hand():
    x = jnp.array([1.0, 3.0, 10.0, 30.0]).reshape(1, 1, 2, 2)  # channels (1, 10), (3, 30)
    layer = {"scale": jnp.array([2.0, 1.0]), "bias": jnp.array([0.0, 5.0])}
    got = GroupNorm(2).apply({"params": layer}, x.reshape(1, 2, 2, 1).transpose(0, 3, 2, 1))
    np.testing.assert_allclose(got, [[[[-2.0, 4.0], [2.0, 6.0]]]], rtol=1e-5)


@pytest.mark.parametrize(("factory", "arguments"), [(resnet18, {"groups": 3}), (mobilenet_v2, {"groups": 7})])
def test_groups_must_divide_the_widths(factory, arguments):
    with pytest.raises(ValueError, match="does not divide"):
        factory((32, 32, 3), 10, **arguments)
