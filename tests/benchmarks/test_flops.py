"""Work by count, which no noise blurs: a round's program holds the matrix products that its method needs, no more."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from benchmarks.tools import flops
from benchmarks.tools.parts import PARTS
from benchmarks.tools.work import Work, make_round
from fedeba_jax import ALGORITHMS

AVERAGING = 0.03  # what weights, averaging and solvers may add; the passes are exact


@pytest.mark.parametrize("name", [*ALGORITHMS, *PARTS])
def test_a_round_does_the_passes_that_are_written_down(name):
    work = Work("mlp", name, client_map="map")
    count, unit = flops.of_round(work), flops.of_passes(work, flops.Passes())
    passes = flops.PROGRAM.get(name)
    assert passes, f"add to flops.PROGRAM: {name!r}: Passes(...); its round counts {count / unit:.3f} trainings"
    expected = flops.of_passes(work, passes)
    assert expected * (1 - 1e-6) <= count <= expected + AVERAGING * max(expected, unit), (
        f"{name}: the program holds {count / 1e9:.3f} GFLOP, {passes} are {expected / 1e9:.3f}"
    )


def test_the_paper_rounds():
    """The counts that the README's shares of the limit rest on, in GFLOP."""
    for model, name, expected in [
        ("mlp", "fedavg", 4.396), ("mlp", "fedeba_plus", 12.057), ("cnn", "fedavg", 403.165),
    ]:  # fmt: skip
        assert flops.needed(Work(model, name)) / 1e9 == pytest.approx(expected, abs=1e-3)


@pytest.mark.parametrize("changes", [{"cohort": 3}, {"steps": 4}, {"block": 600}, {"model": "cnn"}])
def test_the_count_follows_the_shapes(changes):
    work = Work(algorithm="fedeba", client_map="map", **changes)
    assert flops.of_round(work) == pytest.approx(flops.of_passes(work, flops.PROGRAM["fedeba"]), rel=0.01)


def test_shards_and_maps_do_the_same_work():
    for client_map in ("vmap", "chunked(5)", "sharded"):
        work = Work(algorithm="fedeba", client_map=client_map)
        assert flops.of_round(work) == pytest.approx(flops.of_passes(work, flops.PROGRAM["fedeba"]), rel=0.01)


@pytest.mark.parametrize("model", ["mlp", "cnn"])
def test_xla_counts_the_same(model):
    """On a training step without loops, where XLA's count is whole; it adds the element-wise operations."""
    work = Work(model, batch=10)  # one group of images: more are a loop in the CNN
    made = make_round(work)

    def loss(params, x, y):
        log_p = jax.nn.log_softmax(made.model.apply(params, x))
        return -jnp.take_along_axis(log_p, y[:, None], 1).mean()

    params = jax.eval_shape(made.model.init, jax.random.key(0))
    x = jax.ShapeDtypeStruct((work.batch, *work.images.shape), jnp.float32)
    arguments = (params, x, jax.ShapeDtypeStruct((work.batch,), jnp.int32))
    ours = flops.of_program(jax.grad(loss), *arguments, platform="cpu")
    xla = jax.jit(jax.grad(loss)).lower(*arguments).compile().cost_analysis()["flops"]
    assert ours <= xla <= 1.1 * ours
    if model == "mlp":
        assert ours == work.batch * flops.per_example(model)[1]


def test_loops_branches_and_dead_code():
    a = jnp.ones((4, 4))
    product = 2 * 4**3

    def count(function, **how):
        return flops.of_program(function, a, **how)

    assert count(lambda x: x @ x) == product
    assert count(lambda x: jax.lax.fori_loop(0, 7, lambda _, y: y @ x, x)) == 7 * product
    assert count(lambda x: jax.lax.while_loop(lambda y: y.sum() < 9, lambda y: y @ x, x), trips=3) == 3 * product
    assert count(lambda x: jax.lax.cond(x.sum() > 0, lambda y: y @ y @ y, lambda y: y @ y, x)) == 2 * product
    assert count(lambda x: (x @ x, x)[1]) == 0
    assert count(lambda x: jax.vmap(jnp.matmul, in_axes=(0, None))(jnp.stack([x] * 5), x)) == 5 * product
    native, cpu = (lambda x: x @ x @ x), (lambda x: x @ x)
    either = lambda x: jax.lax.platform_dependent(x, cpu=cpu, default=native)  # noqa: E731
    assert (count(either, platform="cpu"), count(either)) == (product, 2 * product)


def test_padding_of_a_convolution_does_not_count():
    x, kernel = np.ones((1, 6, 6, 1), np.float32), np.ones((3, 3, 1, 1), np.float32)

    def convolve(padding):
        return lambda x: jax.lax.conv_general_dilated(
            x, kernel, (1, 1), padding, dimension_numbers=("NHWC", "HWIO", "NHWC")
        )

    assert flops.of_program(convolve("VALID"), x) == 2 * 16 * 9
    assert flops.of_program(convolve("SAME"), x) == 2 * (6 * 3 - 2) ** 2
