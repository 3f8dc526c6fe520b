"""A ReLU network with a softmax cross entropy, and its gradient by hand.

A model is [(W [in, out], b [out]), ...]; one layer is softmax regression. float64 throughout.
"""

from itertools import pairwise

import numpy as np


def random_params(rng, sizes):
    """Layers of the given widths, W and b ~ U(-1/sqrt(in), 1/sqrt(in))."""
    params = []
    for fan_in, fan_out in pairwise(sizes):
        bound = 1.0 / np.sqrt(fan_in)
        W = rng.uniform(-bound, bound, (fan_in, fan_out))
        b = rng.uniform(-bound, bound, fan_out)
        params.append((W, b))
    return params


def logits(params, x):
    """W_L relu(... relu(W_1 x + b_1) ...) + b_L."""
    return activations(params, x)[-1]


def loss(params, x, y):
    """Mean cross entropy of softmax(logits) over the examples."""
    return float(-np.mean(log_softmax(logits(params, x))[np.arange(len(y)), y]))


def gradient(params, x, y):
    """Back-propagation of `loss`: a list of (dW, db)."""
    outputs = activations(params, x)
    signal = np.exp(log_softmax(outputs[-1]))
    signal[np.arange(len(y)), y] -= 1.0
    signal /= len(y)  # d loss / d logits = (softmax - one_hot(y)) / N
    grads = []
    for layer in reversed(range(len(params))):
        below = outputs[layer]
        grads.insert(0, (below.T @ signal, signal.sum(axis=0)))
        if layer > 0:
            signal = (signal @ params[layer][0].T) * (below > 0)
    return grads


def activations(params, x):
    """The input, every hidden layer's output and the logits."""
    outputs = [np.asarray(x, np.float64)]
    for layer, (W, b) in enumerate(params):
        z = outputs[-1] @ W + b
        is_last = layer == len(params) - 1
        outputs.append(z if is_last else np.maximum(z, 0.0))
    return outputs


def log_softmax(z):
    """z - log sum exp z, by row."""
    z = z - z.max(axis=1, keepdims=True)
    return z - np.log(np.exp(z).sum(axis=1, keepdims=True))
