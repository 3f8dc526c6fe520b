"""MimeLite: a vector by hand, and where it meets other methods."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fedeba_jax
from fedeba_jax import tree
from fedeba_jax.data.federation import federate
from fedeba_jax.local import LocalTraining
from fedeba_jax.server import sgd
from tests.support.problems import tiny


def close(a, b, tolerance):
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, atol=tolerance, rtol=0), a, b)


def trained(name, rounds=5, problem=None, **hparams):
    """The state after some rounds of the tiny problem."""
    problem, key = problem or tiny(), jax.random.key(3)
    algorithm = problem.algorithm(name, **hparams)

    return jax.jit(lambda state: problem.train(algorithm, key, state=state, rounds=rounds)[0])(
        problem.start(algorithm, key)
    )


def mime_round(beta, m, x=1.0, steps=3):
    """One round on F = (z - 3)^2 / 2 with a single client: the next x and m."""
    federation = federate(np.zeros((2, 1), np.uint8), np.zeros(2, np.int32), [np.arange(2)])
    local = LocalTraining(lambda z, *_: 0.5 * (z - 3) ** 2, 0.1, steps=steps, batch_size=1)
    algorithm = fedeba_jax.ALGORITHMS["mime_lite"](local, sgd(1.0), beta=beta)
    sizes = fedeba_jax.sizes_of(federation, lambda key: jnp.asarray(x), 1)
    state = algorithm.init(jax.random.key(0), lambda key: jnp.asarray(x), sizes)
    state = state._replace(server=state.server._replace(memory=jnp.asarray(m)))
    state, _ = jax.jit(
        lambda state: fedeba_jax.run_round(
            algorithm, federation, state, jax.random.key(0), jnp.asarray(0), sizes=sizes, client_map=jax.vmap
        )
    )(state)
    return state.server.params, state.server.memory


def test_mime_lite_vector():
    x, m = mime_round(0.9, 0.2)
    assert x == pytest.approx(1.0059402, abs=1e-6)
    assert m == pytest.approx(-0.02, abs=1e-7)


def test_mime_lite_without_gradients_coasts():
    """beta = 1: K steps of -eta_L m, and m stays."""
    x, m = mime_round(1.0, 0.2, steps=4)
    assert (float(x), float(m)) == pytest.approx((1 - 4 * 0.1 * 0.2, 0.2))


def test_mime_lite_without_momentum_is_fedavg(x64):
    mime, plain = trained("mime_lite", beta=0.0), trained("fedavg")
    close(mime.server.params, plain.server.params, 1e-12)


def test_mime_lite_s_momentum_is_the_mean_of_full_gradients(x64):
    """With one full-batch step of rate eta, Delta = -eta m_next: what is sent twice is the same there."""
    problem = tiny(cohort_size=6, steps=1, batch_size=12)
    state = trained("mime_lite", rounds=1, problem=problem, beta=0.5)
    start = problem.model.init(jax.random.key(3))
    close(state.server.memory, tree.scale(-1 / 0.3, tree.subtract(state.server.params, start)), 1e-10)
