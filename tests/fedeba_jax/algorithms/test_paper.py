"""The paper's toy case, with its arithmetic corrected, through the engine itself.

F_1 = 2 (x - 2)^2, F_2 = (x + 4)^2 / 2, x_0 = 0, one step of 1/4: x_1 = 2, x_2 = -1, so the losses
after training are 0 and 4.5. The paper prints x = -0.1 for the entropy-based weights; that is
tau = 5.311, not tau = 1, where the weights are less fair than FedAvg's.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import fedeba_jax
from fedeba_jax.data.federation import federate
from fedeba_jax.objectives import masked_mean

CLIENTS = np.array([[4.0, 2.0], [1.0, -4.0]])  # (a, b) of a (x - b)^2 / 2


def quadratic(params, batch, key, round_, train):
    return masked_mean(0.5 * batch.x[:, 0] * (params - batch.x[:, 1]) ** 2, batch.mask)


@functools.cache
def program(name):
    federation = federate(CLIENTS, np.zeros(2, int), [np.array([0]), np.array([1])])
    local = fedeba_jax.LocalTraining(objective=quadratic, learning_rate=0.25, steps=1)

    def init(key):
        return jnp.asarray(0.0)

    @jax.jit
    def run(hparams):
        algorithm = fedeba_jax.ALGORITHMS[name](local, fedeba_jax.descent(optax.sgd(1.0)), **hparams)
        sizes, key = fedeba_jax.sizes_of(federation, init, 2), jax.random.key(0)
        state = algorithm.init(key, init, sizes)
        return fedeba_jax.run_round(algorithm, federation, state, key, 0, sizes=sizes, client_map=jax.vmap)

    return run


def one_round(name, **hparams):
    state, info = program(name)(hparams)
    x = float(state.server.params)
    return x, 0.5 * CLIENTS[:, 0] * (x - CLIENTS[:, 1]) ** 2, info


def test_fedavg_lands_at_one_half(x64):
    x, losses, _ = one_round("fedavg")
    np.testing.assert_allclose(x, 0.5, atol=1e-12)
    np.testing.assert_allclose(np.ptp(losses), 5.625, atol=1e-12)
    np.testing.assert_allclose(losses.var(), 7.910, atol=5e-4)


@pytest.mark.parametrize(
    ("tau", "first_weight", "model", "gap"), [(1.0, 0.010987, -0.9670, 13.007), (5.311, 0.3, -0.1, 1.215)]
)
def test_entropy_based_weights_by_temperature(x64, tau, first_weight, model, gap):
    x, losses, info = one_round("fedeba", tau=tau)
    np.testing.assert_allclose(1 - info["weight_max"], first_weight, atol=1e-5)
    np.testing.assert_allclose(x, model, atol=5e-5)
    np.testing.assert_allclose(np.ptp(losses), gap, atol=2e-3)


def test_a_suitable_temperature_is_fairer_than_fedavg_and_a_low_one_is_not(x64):
    variance = {tau: one_round("fedeba", tau=tau)[1].var() for tau in (1.0, 5.311)}
    fedavg = one_round("fedavg")[1].var()
    np.testing.assert_allclose(variance[5.311], 0.369, atol=1e-3)
    assert variance[5.311] < fedavg < variance[1.0]


def test_the_entropy_of_the_fair_losses_is_nearly_one_bit(x64):
    _, losses, _ = one_round("fedeba", tau=5.311)
    share = losses / losses.sum()
    np.testing.assert_allclose(-(share * np.log2(share)).sum(), 0.996, atol=5e-4)


def test_the_first_round_is_fair_and_keeps_the_gate_closed(x64):
    """F_1(0) = F_2(0) = 8: the angle is exactly 0, which theta = 0 lets pass."""
    _, _, info = one_round("fedeba_plus", theta=0.0)
    assert (float(info["angle"]), bool(info["gate"])) == (0.0, False)


def test_a_closed_gate_with_one_local_step_mixes_fedeba_and_fedavg(x64):
    """Delta = (1 - alpha) sum p Delta_i + alpha mean Delta_i, since the first step is the whole update."""
    x, *_ = one_round("fedeba_plus", tau=5.311, alpha=0.4, theta=0.0)
    np.testing.assert_allclose(x, 0.6 * one_round("fedeba", tau=5.311)[0] + 0.4 * 0.5, atol=1e-12)
