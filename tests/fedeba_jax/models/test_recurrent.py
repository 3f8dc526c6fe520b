"""The LSTM against a cell written out in NumPy, and its gradient against automatic differentiation; in float64."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from fedeba_jax.models import lstm_words
from fedeba_jax.models.recurrent import recur

L, B, H, VOCABULARY = 4, 3, 5, 11


pytestmark = pytest.mark.usefixtures("x64")


def close(got, want):
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-10), got, want)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def numpy_lstm(x, layer):
    """Position by position, sequence by sequence: [L, in] -> [L, H]."""
    h = c = np.zeros(layer["kernel"].shape[1])
    outputs = []
    for x_t in x:
        gates = layer["kernel_input"] @ x_t + layer["kernel"] @ h + layer["bias"]
        i, f, g, o = np.split(gates, 4)
        c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
        h = sigmoid(o) * np.tanh(c)
        outputs.append(h)
    return np.stack(outputs)


def test_logits_are_those_of_a_cell_in_a_loop():
    model = lstm_words((L,), VOCABULARY, embedding=6, hidden=H)
    params = jax.device_get(model.init(jax.random.key(0)))
    tokens = np.random.default_rng(0).integers(0, VOCABULARY, (B, L))
    want = []
    for sequence in tokens:
        x = params["embedding"][sequence]
        for layer in ("Lstm_0", "Lstm_1"):
            x = numpy_lstm(x, params[layer])
        want.append(x @ params["Dense_0"]["kernel"].T + params["Dense_0"]["bias"])
    close(jax.jit(model.apply)(params, jnp.asarray(tokens, jnp.int32)), np.stack(want))


def scanned(inputs, kernel):
    """The definition, for automatic differentiation."""

    def step(carry, x):
        h, c = carry
        i, f, g, o = jnp.split(x + h @ kernel.T, 4, -1)
        c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
        h = jax.nn.sigmoid(o) * jnp.tanh(c)
        return (h, c), h

    zeros = jnp.zeros((inputs.shape[1], kernel.shape[1]), inputs.dtype)
    return lax.scan(step, (zeros, zeros), inputs)[1]


def value_and_grads(layer):
    def run(inputs, kernel):
        y, pullback = jax.vjp(layer, inputs, kernel)
        return y, pullback(jnp.cos(3 * y))

    return run


@pytest.mark.parametrize("length", [1, L])
@pytest.mark.parametrize("clients", [None, 2])
def test_the_recurrences_gradient(length, clients):
    lead = () if clients is None else (clients,)
    rng = np.random.default_rng(0)
    arrays = (jnp.asarray(rng.normal(size=(*lead, *shape))) for shape in ((length, B, 4 * H), (4 * H, H)))
    inputs, kernel = arrays
    over = (lambda f: f) if clients is None else jax.vmap
    close(*(jax.jit(over(value_and_grads(layer)))(inputs, kernel) for layer in (recur, scanned)))


def test_parameters_start_as_pytorchs():
    params = lstm_words((L,), 200, embedding=30, hidden=64).init(jax.random.key(0))
    for name in ("Lstm_0", "Lstm_1"):
        for leaf in params[name].values():
            assert 0.9 / 8 < jnp.abs(leaf).max() <= 1 / 8
            np.testing.assert_allclose(leaf.std(), 1 / 8 / 3**0.5, rtol=0.1)
    np.testing.assert_allclose([params["embedding"].mean(), params["embedding"].std()], [0, 1], atol=0.05)
