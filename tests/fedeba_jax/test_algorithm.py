"""Parts that methods share: weights with what is known of them beforehand, diagnostics, one model and a memory."""

import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedeba_jax import weights
from fedeba_jax.algorithm import alone, client_weights, diagnose, entropy_weights, one_model, remembering, size_prior
from fedeba_jax.privacy import Limits
from fedeba_jax.server import sgd
from fedeba_jax.types import Sizes

COHORT = types.SimpleNamespace(size=4, num_examples=jnp.array([10, 20, 30, 40]))
LOSSES = jnp.array([0.1, 0.5, 1.0, 2.0])
LIMITS = Limits(clip=1.0, loss_clip=2.3, weight_cap=1.2)  # no weight above 0.3


def close(actual, expected):
    np.testing.assert_allclose(actual, expected, rtol=1e-5)


def test_uniform_weights_are_known_beforehand():
    for limits in (None, LIMITS):
        p, most = client_weights(COHORT, "uniform", limits)
        close(p, [0.25] * 4)
        assert most == 0.25


def test_weights_by_examples_have_a_bound_only_under_limits():
    p, most = client_weights(COHORT, "examples")
    close(p, [0.1, 0.2, 0.3, 0.4])
    assert most is None
    p, most = client_weights(COHORT, "examples", LIMITS)
    close(most, 0.3)
    assert (p <= most * (1 + 1e-6)).all()
    close(p, weights.by_examples(COHORT.num_examples, 0.3))


@pytest.mark.parametrize("prior", ["none", "examples"])
def test_entropy_based_weights_have_a_bound_only_under_limits(prior):
    q = size_prior(COHORT, prior)
    p, most = entropy_weights(COHORT, LOSSES, 0.5, prior)
    close(p, weights.entropy_based(LOSSES, 0.5, q))
    assert most is None
    p, most = entropy_weights(COHORT, LOSSES, 0.5, prior, LIMITS)
    close(most, 0.3)
    close(p, weights.entropy_based(LOSSES, 0.5, q, 0.3))
    _, most = entropy_weights(COHORT, LOSSES, 50.0, prior, LIMITS)
    close(most, weights.entropy_cap(4, 50.0, 2.3))  # so even that the cap is never reached


def test_the_prior_is_none_or_the_share_of_examples():
    assert size_prior(COHORT, "none") is None
    close(size_prior(COHORT, "examples"), [0.1, 0.2, 0.3, 0.4])


def test_diagnostics_tell_of_weights_and_of_the_losses_that_were_asked_for():
    p = jnp.array([0.5, 0.25, 0.25, 0.0])
    assert set(diagnose(p)) == {"weight_entropy", "weight_max"}
    info = diagnose(p, before=LOSSES, after=2 * LOSSES)
    close(info["weight_entropy"], 1.5 * np.log(2))
    close(info["weight_max"], 0.5)
    close([info[f"loss_{k}"] for k in ("mean", "min", "max")], [0.9, 0.1, 2.0])
    close([info[f"trained_loss_{k}"] for k in ("mean", "min", "max")], [1.8, 0.2, 4.0])
    close(diagnose(0.1 * p)["weight_entropy"], 1.5 * np.log(2))  # of the shares


def test_one_model_is_all_the_state():
    algorithm = one_model(sgd(1.0), lambda state, cohort: (state._replace(params=state.params + 1), {"x": cohort}))
    state = algorithm.init(jax.random.key(0), lambda key: jnp.zeros(2), Sizes(3, 2, 1, 2))
    assert state.clients == ()
    server, clients, info = algorithm.update(state.server, 7)
    np.testing.assert_array_equal(server.params, [1, 1])
    assert (clients, info) == ((), {"x": 7})
    np.testing.assert_array_equal(algorithm.models(state)["global"], [0, 0])


def test_a_memory_goes_from_round_to_round_beside_the_model():
    def update(state, memory, cohort):
        return state._replace(params=state.params + memory), 2 * memory, {}

    algorithm = remembering(sgd(1.0), lambda params, sizes: jnp.ones(()) * sizes.num_clients, update)
    state = algorithm.init(jax.random.key(0), lambda key: jnp.zeros(2), Sizes(3, 2, 1, 2))
    server = state.server
    for _ in range(2):
        server, clients, _ = algorithm.update(server, None)
    assert clients == ()
    assert float(server.memory) == 12
    np.testing.assert_array_equal(server.params, [9, 9])
    np.testing.assert_array_equal(algorithm.models(state._replace(server=server))["global"], [9, 9])


def test_a_model_alone_is_a_mixture_of_one():
    mixture = alone({"w": jnp.arange(3.0)})
    np.testing.assert_array_equal(mixture.params["w"], [[0, 1, 2]])
    np.testing.assert_array_equal(mixture.weights, [1])
