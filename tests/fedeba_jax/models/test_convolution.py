"""Every form of the pooled convolution against XLA's own, in float64."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import export, lax
from jax.sharding import AxisType, PartitionSpec

from fedeba_jax.models.convolution.pooled import NATIVE, TILE_GEMM, conv_pool
from fedeba_jax.models.convolution.winograd import WINOGRAD

FORMS = {"tile_gemm": TILE_GEMM, "winograd": WINOGRAD, "native": NATIVE}


@pytest.fixture(autouse=True)
def _float64():
    with jax.enable_x64(True):
        yield


def reference(x, kernel):
    y = lax.conv_general_dilated(x, kernel, (1, 1), "VALID", dimension_numbers=("NHWC", "HWIO", "NHWC"))
    return lax.reduce_window(y, -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")


def arrays(c, lead=(), size=(10, 12), o=5, batch=3):
    rng = np.random.default_rng(0)
    return jnp.asarray(rng.normal(size=(*lead, batch, *size, c))), jnp.asarray(rng.normal(size=(*lead, 5, 5, c, o)))


def value_and_grads(layer):
    """Outputs, and both gradients of a function that weights every output differently."""

    def run(x, kernel):
        y, pullback = jax.vjp(layer, x, kernel)
        return y, pullback(jnp.cos(y))

    return run


def close(got, want):
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-10), got, want)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("c", [3, 16])
def test_every_form_is_the_pooled_convolution(form, c):
    forward, kernel_grad, input_grad = FORMS[form]

    def run(x, kernel):
        y, winner = forward(x, kernel)
        g = jnp.cos(y)
        return y, (input_grad(x, kernel, winner, g), kernel_grad(x, kernel, winner, g))

    close(jax.jit(run)(*arrays(c)), jax.jit(value_and_grads(reference))(*arrays(c)))


@pytest.mark.parametrize("batch", [1, 20, 23])
@pytest.mark.parametrize("c", [3, 16])
def test_groups_of_images_are_the_whole_batch(batch, c):
    """On a CPU: one group, two full ones, and three with a place left over."""
    x, kernel = arrays(c, batch=batch)
    close(jax.jit(value_and_grads(conv_pool))(x, kernel), jax.jit(value_and_grads(reference))(x, kernel))


def test_an_odd_last_row_and_column_are_not_pooled():
    x, kernel = arrays(2, size=(9, 11))
    close(jax.jit(value_and_grads(conv_pool))(x, kernel), jax.jit(value_and_grads(reference))(x, kernel))


def mapped(f):
    return lambda *args: lax.map(lambda a: f(*a), args)


def scanned(f):
    return lambda *args: lax.scan(lambda carry, a: (carry, f(*a)), 0.0, args)[1]


def sharded(f):
    mesh = jax.make_mesh((1,), ("clients",), axis_types=(AxisType.Auto,))
    spec = PartitionSpec("clients")
    return jax.shard_map(jax.vmap(f), mesh=mesh, in_specs=spec, out_specs=spec)


@pytest.mark.parametrize("over_clients", [jax.vmap, mapped, scanned, sharded])
@pytest.mark.parametrize("c", [2, 16])
def test_conv_pool_over_clients(over_clients, c):
    x, kernel = arrays(c, lead=(2,))
    want = jax.jit(mapped(value_and_grads(reference)))(x, kernel)
    close(jax.jit(over_clients(value_and_grads(conv_pool)))(x, kernel), want)


@pytest.mark.parametrize("c", [2, 16])
def test_conv_pool_with_one_kernel_for_all_clients(c):
    x, kernel = arrays(c, lead=(2,))

    def shared(layer):
        return jax.jit(value_and_grads(lambda x, k: jax.vmap(layer, (0, None))(x, k)))

    close(shared(conv_pool)(x, kernel[0]), shared(reference)(x, kernel[0]))


@pytest.mark.parametrize("form", FORMS)
def test_a_tie_has_one_winner_the_first(form):
    x, kernel = jnp.ones((1, 6, 6, 16)), jnp.ones((5, 5, 16, 1))
    pooled, winner = jax.jit(FORMS[form].forward)(x, kernel)
    assert winner.item() == 0
    dx = jax.jit(FORMS[form].input_grad)(x, kernel, winner, jnp.ones_like(pooled))
    close(dx[0, :, :, 0], jnp.zeros((6, 6)).at[:5, :5].set(1.0))


def test_small_images_are_refused():
    with pytest.raises(ValueError, match="6x6"):
        conv_pool(jnp.ones((1, 5, 8, 3)), jnp.ones((5, 5, 3, 4)))


def test_the_images_gradient_is_not_computed():
    x, kernel = jnp.ones((8, 32, 32, 3), jnp.float32), jnp.ones((5, 5, 3, 64), jnp.float32)

    def flops(f):
        return jax.jit(f).lower(x, kernel).compile().cost_analysis()["flops"]

    def loss(x, kernel):
        return jnp.sum(conv_pool(x, kernel) ** 2)

    def looped(argnums):
        return lambda x, k: lax.map(lambda x: jax.grad(loss, argnums)(x, k), x[None])

    product = 2 * 8 * 14 * 14 * 108 * 256
    assert flops(looped(1)) < 2.5 * product < 3 * product < flops(looped((0, 1)))


def test_conv_pool_exports_for_many_platforms():
    x, kernel = arrays(16)
    exported = export.export(jax.jit(value_and_grads(conv_pool)), platforms=("cpu", "cuda", "tpu"))(x, kernel)
    assert "convolution" in exported.mlir_module()
    got, want = exported.call(x, kernel), jax.jit(value_and_grads(reference))(x, kernel)
    close(jax.tree.leaves(got), jax.tree.leaves(want))
