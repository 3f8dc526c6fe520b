"""Vector algebra on models: a model is a list of layers, a layer a tuple of float64 arrays."""

import numpy as np


def scale(c, u):
    """c u."""
    return [tuple(c * a for a in layer) for layer in u]


def add(u, v):
    """u + v."""
    return [tuple(a + b for a, b in zip(left, right, strict=True)) for left, right in zip(u, v, strict=True)]


def subtract(u, v):
    """u - v."""
    return add(u, scale(-1.0, v))


def zeros(u):
    """The zero of u's space."""
    return [tuple(np.zeros_like(a) for a in layer) for layer in u]


def dot(u, v):
    """<u, v> over every entry of every array."""
    return float(sum(np.sum(a * b) for a, b in zip(flat(u), flat(v), strict=True)))


def norm(u):
    """|u|."""
    return float(np.sqrt(dot(u, u)))


def combine(weights, models):
    """sum_i weights_i models_i."""
    total = zeros(models[0])
    for weight, model in zip(weights, models, strict=True):
        total = add(total, scale(weight, model))
    return total


def flat(u):
    """The arrays of u in order."""
    return [a for layer in u for a in layer]
