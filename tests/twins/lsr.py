"""LSR's loss (Jiang et al. 2022), one example at a time, from probabilities as the formulas have them."""

import numpy as np


def softmax(z):
    e = np.exp(z - z.max())
    return e / e.sum()


def kl(p, q):
    return sum(a * np.log(a / b) for a, b in zip(p, q, strict=True) if a > 0)


def loss(z, z_view, y, mix, gamma, sharpening=0.5, distillation=1 / 3, entropy=0.0, reference=False):
    """F^r of one example from its logits and those of its view."""
    p = mix * softmax(z) + (1 - mix) * softmax(z_view)
    p_s = p ** (1 / sharpening)
    p_s = p_s / p_s.sum()
    q, q_view = softmax(z / distillation), softmax(z_view / distillation)
    if reference:
        q, q_view = np.clip(q, 1e-6, 1.0), np.clip(q_view, 1e-6, 1.0)
    U = (q + q_view) / 2
    js = kl(q, U) / 2 + kl(q_view, U) / 2
    twice = softmax(q)
    self_entropy = -sum(a * np.log(a) for a in twice)
    if reference:
        return -np.log(softmax(p_s)[y]) + gamma * js / len(z) + entropy * self_entropy
    return -np.log(p_s[y]) + gamma * js + entropy * self_entropy


def weight(gamma, t, rounds, warmup=0.2):
    """gamma in round t = 0, 1, ..."""
    return gamma * min(1.0, t / (warmup * rounds)) if warmup else gamma
