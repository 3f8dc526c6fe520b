"""Convolutions of all shapes against XLA's own: values and both gradients, over clients, in loops, for accelerators."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import export, lax

from fedeba_jax.models.convolution import images
from fedeba_jax.models.convolution.depthwise import DEPTHWISE
from fedeba_jax.models.convolution.general import convolve, native, way_on_cpu
from fedeba_jax.models.convolution.matrices import COLUMNS, POINTWISE
from fedeba_jax.models.convolution.windows import Window
from fedeba_jax.models.convolution.winograd3 import WINOGRAD3

SHAPES = {  # size, stride, padding, channels, features, groups, way on a CPU
    "stem": (3, 1, 1, 3, 5, 1, COLUMNS),
    "whole": (3, 1, 1, 16, 18, 1, WINOGRAD3),
    "whole, unpadded": (3, 1, 0, 17, 16, 1, WINOGRAD3),
    "stride 2": (3, 2, 1, 16, 4, 1, COLUMNS),
    "stride 3": (2, 3, 1, 2, 3, 1, COLUMNS),
    "point": (1, 1, 0, 6, 4, 1, POINTWISE),
    "point, stride 2": (1, 2, 0, 3, 5, 1, POINTWISE),
    "depthwise": (3, 1, 1, 6, 6, 6, DEPTHWISE),
    "depthwise, stride 2": (3, 2, 1, 5, 5, 5, DEPTHWISE),
}


@pytest.fixture
def few_at_once(monkeypatch):
    """Two images at a time."""
    for module in ("depthwise", "matrices", "winograd3"):
        name = f"fedeba_jax.models.convolution.{module}.group_size"
        monkeypatch.setattr(name, lambda count, image_bytes, cache=0: min(count, 2))


def arrays(shape, dtype, size=(9, 7), batch=3, lead=()):
    k, _, _, c, o, groups, _ = SHAPES[shape]
    rng = np.random.default_rng(0)
    x, kernel = rng.normal(size=(*lead, batch, *size, c)), rng.normal(size=(*lead, k, k, c // groups, o))
    return jnp.asarray(x, dtype), jnp.asarray(kernel, dtype)


def ours(shape):
    _, stride, padding, _, _, groups, _ = SHAPES[shape]
    return functools.partial(convolve, stride=stride, padding=padding, groups=groups)


def reference(shape):
    _, stride, padding, _, _, groups, _ = SHAPES[shape]
    return lambda x, kernel: lax.conv_general_dilated(
        x, kernel, (stride, stride), [(padding, padding)] * 2, dimension_numbers=("NHWC", "HWIO", "NHWC"),
        feature_group_count=groups,
    )  # fmt: skip


def value_and_grads(layer):
    """Outputs, and both gradients of a function that weights every output differently."""

    def run(x, kernel):
        y, pullback = jax.vjp(layer, x, kernel)
        return y, pullback(jnp.cos(y))

    return run


def close(got, want, tolerance=1e-10):
    for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
        np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance * np.abs(b).max())


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.usefixtures("x64", "few_at_once")
def test_values_and_gradients_are_xlas(shape):
    """Odd sizes, and a last group of images that is not full."""
    args = arrays(shape, jnp.float64)
    close(jax.jit(value_and_grads(ours(shape)))(*args), jax.jit(value_and_grads(reference(shape)))(*args))


@pytest.mark.parametrize("size", [(1, 1), (4, 8)])
@pytest.mark.usefixtures("x64")
def test_images_of_all_sizes(size):
    def run(layer_of):
        shapes = [shape for shape in SHAPES if shape != "whole, unpadded"]
        return jax.jit(lambda args: [value_and_grads(layer_of(s))(*a) for s, a in zip(shapes, args, strict=True)])(
            [arrays(shape, jnp.float64, size, batch=2) for shape in shapes]
        )

    close(run(ours), run(reference))


@pytest.mark.parametrize("shape", ["whole", "stride 2", "point", "depthwise"])
def test_float32_is_close(shape):
    args = arrays(shape, jnp.float32)
    close(jax.jit(value_and_grads(ours(shape)))(*args), jax.jit(value_and_grads(reference(shape)))(*args), 1e-4)


def mapped(f):
    return lambda *args: lax.map(lambda a: f(*a), args)


def scanned(f):
    return lambda *args: lax.scan(lambda carry, a: (carry, f(*a)), 0.0, args)[1]


@pytest.mark.parametrize("over_clients", [jax.vmap, mapped, scanned])
@pytest.mark.parametrize("shape", ["whole", "stride 2", "point, stride 2", "depthwise"])
@pytest.mark.usefixtures("x64", "few_at_once")
def test_over_clients(shape, over_clients):
    args = arrays(shape, jnp.float64, lead=(2,))
    want = jax.jit(mapped(value_and_grads(reference(shape))))(*args)
    close(jax.jit(over_clients(value_and_grads(ours(shape))))(*args), want)


@pytest.mark.parametrize("shape", ["whole", "stride 2", "point", "depthwise"])
@pytest.mark.usefixtures("x64")
def test_one_kernel_for_all_clients(shape):
    x, kernel = arrays(shape, jnp.float64, lead=(2,))

    def shared(layer):
        return jax.jit(value_and_grads(lambda x, k: jax.vmap(layer, (0, None))(x, k)))(x, kernel[0])

    close(shared(ours(shape)), shared(reference(shape)))


@pytest.mark.parametrize("shape", SHAPES)
def test_the_way_on_a_cpu(shape):
    size, stride, padding, channels, features, groups, way = SHAPES[shape]
    assert way_on_cpu(Window(size, stride, padding, 9, 7), channels, features, groups) is way


@pytest.mark.usefixtures("x64")
def test_other_groups_are_xlas_own():
    rng = np.random.default_rng(0)
    x, kernel = jnp.asarray(rng.normal(size=(2, 4, 4, 4))), jnp.asarray(rng.normal(size=(3, 3, 2, 6)))
    window = Window(3, 1, 1, 4, 4)
    want = native(2).forward(window, x, kernel)
    close(convolve(x, kernel, padding=1, groups=2), want)
    assert want.shape == (2, 4, 4, 6)


@pytest.mark.usefixtures("x64")
def test_the_native_way_has_xlas_gradients():
    for shape in ("stride 2", "depthwise, stride 2"):
        size, stride, padding, _, _, groups, _ = SHAPES[shape]
        x, kernel = arrays(shape, jnp.float64)
        window, way = Window(size, stride, padding, *x.shape[1:3]), native(groups)
        y, (dx, dk) = jax.jit(value_and_grads(reference(shape)))(x, kernel)
        g = jnp.cos(y)
        close((way.input_grad(window, kernel, g), way.kernel_grad(window, x, g)), (dx, dk))


@pytest.mark.parametrize("shape", ["whole", "point", "depthwise"])
def test_the_images_gradient_is_not_computed(shape):
    x, kernel = arrays(shape, jnp.float32, size=(32, 32))

    def flops(argnums):
        def loss(x, kernel):
            return jnp.sum(ours(shape)(x, kernel) ** 2)

        looped = jax.jit(lambda x, k: lax.map(lambda x: jax.grad(loss, argnums)(x, k), x[None]))
        return looped.lower(x, kernel).compile().cost_analysis()["flops"]

    assert flops(1) < 0.8 * flops((0, 1))


def test_exports_for_many_platforms_use_the_native_convolution():
    args = arrays("whole", jnp.float32)
    exported = export.export(jax.jit(value_and_grads(ours("whole"))), platforms=("cpu", "cuda", "tpu"))(*args)
    assert "convolution" in exported.mlir_module()
    close(exported.call(*args), jax.jit(value_and_grads(reference("whole")))(*args), 1e-4)


def test_what_does_not_fit_is_refused():
    x = jnp.ones((1, 4, 4, 3))
    with pytest.raises(ValueError, match="needs a kernel"):
        convolve(x, jnp.ones((3, 3, 4, 2)))
    with pytest.raises(ValueError, match="smaller than the kernel"):
        convolve(x, jnp.ones((5, 5, 3, 2)))


def test_groups_of_images_fill_the_cache_and_leave_few_places_empty():
    mib = 1 << 20
    assert images.group_size(128, mib, 8 * mib) == 8
    assert images.group_size(50, mib, 8 * mib) == 5  # not 8, which would leave 6 places empty
    assert images.group_size(3, mib, 8 * mib) == 3
    assert images.group_size(3, 9 * mib, 8 * mib) == 1
