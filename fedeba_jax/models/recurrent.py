"""Two-layer LSTMs that predict the next word or character at every position."""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
from flax import linen as nn

from fedeba_jax.models.layers import Dense, torch_uniform
from fedeba_jax.models.wrapping import check_tokens, of_tokens
from fedeba_jax.types import Model

LAYERS = 2
Residuals = tuple[jax.Array, ...]
Memory = tuple[jax.Array, jax.Array]  # output and memory of a cell, or their gradients


def _cell(gates: jax.Array, c: jax.Array) -> tuple[jax.Array, jax.Array, tuple[jax.Array, ...]]:
    """Next output and memory of a cell with these gates before their nonlinearities, and the gates after."""
    i, f, g, o = jnp.split(gates, 4, -1)
    i, f, g, o = jax.nn.sigmoid(i), jax.nn.sigmoid(f), jnp.tanh(g), jax.nn.sigmoid(o)
    c = f * c + i * g
    return o * jnp.tanh(c), c, (i, f, g, o)


@jax.custom_vjp
def recur(inputs: jax.Array, kernel: jax.Array) -> jax.Array:
    """An LSTM's outputs [L, B, H] from its gates' inputs [L, B, 4H] (PyTorch's order: i, f, g, o) and kernel [4H, H].

    The gradient is written out, because the kernel's is then one product over all positions instead of a sum of L.
    """
    return _recur(inputs, kernel)[0]


def _recur(inputs: jax.Array, kernel: jax.Array) -> tuple[jax.Array, Residuals]:
    def step(carry: Memory, x: jax.Array) -> tuple[Memory, Residuals]:
        h, before = carry
        h, c, gates = _cell(x + h @ kernel.T, before)
        return (h, c), (h, *gates, before, jnp.tanh(c))

    zeros = jnp.zeros((inputs.shape[1], kernel.shape[1]), inputs.dtype)
    _, (outputs, *kept) = jax.lax.scan(step, (zeros, zeros), inputs)
    return outputs, (kernel, outputs, *kept)


def _recur_bwd(residuals: Residuals, g_outputs: jax.Array) -> tuple[jax.Array, jax.Array]:
    kernel, outputs, *kept = residuals

    def step(carry: Memory, at: Residuals) -> tuple[Memory, jax.Array]:
        dh, dc = carry
        i, f, g, o, before, tanh_c, dy = at
        dh = dh + dy
        dc = dc + dh * o * (1 - tanh_c**2)
        parts = (dc * g * i * (1 - i), dc * before * f * (1 - f), dc * i * (1 - g**2), dh * tanh_c * o * (1 - o))
        d_gates = jnp.concatenate(parts, -1)
        return (d_gates @ kernel, dc * f), d_gates

    zeros = jnp.zeros_like(outputs[0])
    _, d_inputs = jax.lax.scan(step, (zeros, zeros), (*kept, g_outputs), reverse=True)
    return d_inputs, jnp.einsum("lbg,lbh->gh", d_inputs[1:], outputs[:-1])


recur.defvjp(_recur, _recur_bwd)


class Lstm(nn.Module):
    """One layer over a whole sequence: [L, B, in] -> [L, B, features], from a zero state.

    It has one bias a gate; PyTorch's has two, of which only the sum matters. All parameters start as
    U(+-1/sqrt(features)).
    """

    features: int

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        init, gates = torch_uniform(self.features), 4 * self.features
        kernel_input = self.param("kernel_input", init, (gates, x.shape[-1]), x.dtype)
        kernel = self.param("kernel", init, (gates, self.features), x.dtype)
        bias = self.param("bias", init, (gates,), x.dtype)
        return recur(x @ kernel_input.T + bias[None, None], kernel)


class LanguageModel(nn.Module):
    """Embedding, LSTM layers, and logits over the vocabulary at every position: [B, L] -> [B, L, vocabulary]."""

    vocabulary: int
    embedding: int
    hidden: int
    layers: int

    @nn.compact
    def __call__(self, tokens: jax.Array) -> jax.Array:
        shape, dtype = (self.vocabulary, self.embedding), jnp.result_type(float)
        table = self.param("embedding", nn.initializers.normal(1.0), shape, dtype)
        x = table[tokens.T]  # [L, B, embedding]
        for _ in range(self.layers):
            x = Lstm(self.hidden)(x)
        rows = x.swapaxes(0, 1).reshape(-1, self.hidden)  # as a matrix: 4% faster than as [B, L, hidden] on a CPU
        return Dense(self.vocabulary)(rows).reshape(*tokens.shape, self.vocabulary)


def lstm_words(input_shape: Sequence[int], num_classes: int, *, embedding: int = 200, hidden: int = 256) -> Model:
    """The next word at every position, with AAggFF's network: 5,563,280 parameters for 10,000 words.

    `num_classes` is the size of the vocabulary.
    """
    return _lstm("lstm_words", input_shape, num_classes, embedding, hidden)


def lstm_chars(input_shape: Sequence[int], num_classes: int, *, embedding: int = 8, hidden: int = 256) -> Model:
    """The next character at every position, with the sizes of LEAF's network: 817,872 parameters for 80 characters.

    Notes:
      LEAF's network reads 80 characters and predicts only the one that follows. Here every position has its target;
      with targets of -1, which do not count, at all positions but the last it is LEAF's.
    """
    return _lstm("lstm_chars", input_shape, num_classes, embedding, hidden)


def _lstm(name: str, input_shape: Sequence[int], num_classes: int, embedding: int, hidden: int) -> Model:
    check_tokens(name, input_shape)
    return of_tokens(LanguageModel(num_classes, embedding, hidden, LAYERS), input_shape)
