"""Quadratic clients: closed forms against steps, and a round against the library's own FedEBA."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import fedeba_jax
from experiments.claims.clients import Clients, round_of, variance, weighted_variance
from fedeba_jax.objectives import masked_mean

THREE = Clients(
    jnp.array([1.0, 2.0, 0.5]), jnp.array([[0.0, 1.0], [2.0, 0.0], [-1.0, -1.0]]), jnp.array([0.1, 0.0, 0.7])
)


def test_training_is_gradient_descent():
    models = jnp.tile(jnp.array([[3.0, -2.0]]), (3, 1))
    for _ in range(4):
        models = models - 0.3 * THREE.curvature[:, None] * (models - THREE.centre)
    np.testing.assert_allclose(THREE.trained(jnp.array([3.0, -2.0]), 4, 0.3), models, atol=1e-6)


def test_gradients_are_those_of_the_losses():
    x = jnp.array([3.0, -2.0])
    np.testing.assert_allclose(THREE.gradients(x), jax.jacobian(THREE.losses)(x), atol=1e-6)
    np.testing.assert_allclose(THREE.own_losses(jnp.stack([x, x, x])), THREE.losses(x), rtol=1e-6)


def test_both_variances_by_hand():
    losses, p = jnp.array([1.0, 3.0]), jnp.array([0.25, 0.75])
    assert float(variance(losses)) == pytest.approx(1.0)
    assert float(weighted_variance(losses, p)) == pytest.approx(0.25 * 0.75 * 4)  # p_1 p_2 (A_1 - A_2)^2, as I.2 has it
    np.testing.assert_allclose(weighted_variance(losses, jnp.array([0.5, 0.5])), variance(losses), rtol=1e-6)


@pytest.mark.parametrize(("name", "tau"), [("fedavg", None), ("fedeba", 0.7)])
def test_a_round_is_the_library_s(name, tau):
    """Clients of one example c_i each and F = |x - c_i|^2 / 2."""
    centres = np.asarray(THREE.centre)
    federation = fedeba_jax.federate(centres, np.zeros(3, int), list(np.arange(3)[:, None]))

    def distance(params, batch, key, round_, train):
        return masked_mean(0.5 * ((params[None] - batch.x) ** 2).sum(-1), batch.mask)

    local = fedeba_jax.LocalTraining(objective=distance, learning_rate=0.2, steps=3)
    hparams = {} if tau is None else {"tau": tau}
    algorithm = fedeba_jax.ALGORITHMS[name](local, fedeba_jax.descent(optax.sgd(1.0)), **hparams)
    sizes = fedeba_jax.sizes_of(federation, lambda key: jnp.ones(2), 3)
    state = algorithm.init(jax.random.key(0), lambda key: jnp.ones(2), sizes)
    state, _ = jax.jit(
        lambda state: fedeba_jax.run_round(
            algorithm, federation, state, jax.random.key(0), jnp.asarray(0), sizes=sizes, client_map=jax.vmap
        )
    )(state)
    plain = Clients(jnp.ones(3), THREE.centre, jnp.zeros(3))
    np.testing.assert_allclose(state.server.params, round_of(plain, jnp.ones(2), tau, 3, 0.2), atol=1e-6)
