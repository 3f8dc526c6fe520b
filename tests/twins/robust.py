"""R-FedEBA+: Algorithm 1 with guards, and robust rules of vectors; loops over clients and over coordinates."""

import itertools

import numpy as np

from tests.twins.algebra import add, combine, flat, scale, subtract
from tests.twins.entropy import aligned_sgd
from tests.twins.local import local_sgd
from tests.twins.problem import Trace
from tests.twins.weights import angle_degrees, example_weights, prior_weights


def robust_fedeba_plus(
    problem, *, tau, alpha, theta, fair_scale=None, prior=None, loss_clip=5.0, outliers="middle", norm_clip=2.0,
    weight_cap=2.0, trust="history", level="full",
):  # fmt: skip
    """Algorithm 1 with guarded losses, a trust prior and a cap, in each of its three sums."""
    trace, past, usual = Trace(), {}, {}
    x = problem.params
    trust = trust if level == "full" else "off"
    guards = {"norm_clip": norm_clip, "weight_cap": weight_cap, "trust": trust, "level": level}
    for t, cohort in enumerate(problem.cohorts):
        losses_before = problem.full_losses([x for _ in cohort], cohort)
        believed = guard_losses(losses_before, loss_clip, outliers)
        sizes, q = example_weights(problem, cohort), prior_weights(problem, cohort, prior)
        known = {i: past[c] for i, c in enumerate(cohort) if c in past}
        gate = angle_degrees(believed) > theta
        if gate:
            gradients = [problem.full_gradient(x, i) for i in cohort]
            fair = guarded(gradients, believed / tau, q, known, usual=usual.get("gradient"), **guards)[0]
            usual["gradient"] = mean_length(gradients, known, usual.get("gradient"))
            paths = [aligned_sgd(problem, t, i, x, fair, alpha, fair_scale) for i in cohort]
        else:
            paths = [local_sgd(problem, t, i, x) for i in cohort]
        deltas = [subtract(path[-1], x) for path in paths]
        losses_after = problem.full_losses([path[-1] for path in paths], cohort)
        if trust == "history":
            cosines = directions(deltas, known, usual.get("update"))
            past |= {cohort[i]: mean for i, mean in remembered(cosines, known).items()}
        believed_after = guard_losses(losses_after, loss_clip, outliers)
        delta, p = guarded(
            deltas, believed_after / tau, q, known, usual=usual.get("update"), updates=True, **guards
        )  # fmt: skip
        of_updates, usual["update"] = usual.get("update"), mean_length(deltas, known, usual.get("update"))
        if not gate:
            first_steps = [subtract(path[1], x) for path in paths]
            ideal = guarded(first_steps, np.zeros(len(cohort)), sizes, known, usual=of_updates, **guards)[0]
            delta = add(scale(1 - alpha, delta), scale(alpha, ideal))
        x = add(x, scale(problem.server_rate, delta))
        trace.record(
            x, losses_before=losses_before, losses_after=losses_after, weights=p, gate=bool(gate),
            angle=angle_degrees(believed), history=np.array([past.get(i, 0.0) for i in range(len(problem.data))]),
        )  # fmt: skip
    return trace


def guarded(vectors, exponents, prior, past, *, norm_clip, weight_cap, trust, level, usual=None, updates=False):
    """(sum_i p_i v_i with v_i clipped, p): steps 2 to 6."""
    n = len(vectors)
    if level == "full":
        cosines = directions(vectors, past, usual)
        r = middle_length(vectors, past, usual)
        against = 1 / weight_cap if trust == "history" else np.inf
        limits = [min(norm_clip, against) * r if c < 0 else norm_clip * r for c in cosines]
        vectors = [shorten(v, limit) for v, limit in zip(vectors, limits, strict=True)]
    if trust == "off":
        q = np.ones(n)
    elif trust == "relu":
        q = np.array([max(c, 0.0) for c in cosines])
    elif trust == "sign":
        q = np.array([float(c > 0) for c in cosines])
    elif updates:
        least = max(np.median(cosines), 0) / 2
        q = np.array([float(mean > 0 and cosines[i] > least) for i, mean in remembered(cosines, past).items()])
    else:
        q = np.array([float(past.get(i, c) > 0) for i, c in enumerate(cosines)])
    if not q.any():
        q = np.ones(n)
    q = q * prior
    p = capped_softmax(exponents, q, max(weight_cap / n, 1 / np.count_nonzero(q)))
    return combine(p, vectors), p


def guard_losses(losses, c, outliers):
    """Those beyond c robust standard deviations from the median become the median ("middle"), or so far ("clip")."""
    losses = np.maximum(losses, 0.0)
    middle = np.median(losses)
    deviation = 1.4826 * np.median(np.abs(losses - middle))
    believed = []
    for loss in losses:
        if np.isinf(c) or abs(loss - middle) <= c * deviation:
            believed.append(loss)
        elif outliers == "middle":
            believed.append(middle)
        else:
            believed.append(middle + np.sign(loss - middle) * c * deviation)
    return np.array(believed)


def remembered(cosines, past):
    """By client, the mean of its cosines with that of this round; of a client that is new, that one."""
    return {i: 0.9 * past[i] + 0.1 * c if i in past else c for i, c in enumerate(cosines)}


def unsuspected(vectors, past):
    """The vectors of clients that are new, or have agreed so far; all vectors if there are none."""
    return [v for i, v in enumerate(vectors) if past.get(i, 1) > 0] or vectors


def middle_length(vectors, past, usual):
    """The median length, but no more than twice its mean over the rounds before."""
    r = np.median([length(v) for v in unsuspected(vectors, past)])
    return r if usual is None else min(r, 2 * usual)


def mean_length(vectors, past, usual):
    r = middle_length(vectors, past, usual)
    return r if usual is None else 0.9 * usual + 0.1 * r


def directions(vectors, past, usual=None):
    """The cosine of each vector to the geometric median of those that are not suspected, cut to their median length."""
    r = middle_length(vectors, past, usual)
    cut = [shorten(v, r) for v in unsuspected(vectors, past)]
    center = combine(np.full(len(cut), 1 / len(cut)), cut)
    for _ in range(8):
        b = np.array([1 / max(length(subtract(v, center)), 1e-6) for v in cut])
        center = combine(b / b.sum(), cut)
    return [cosine(v, center) for v in vectors]


def capped_softmax(exponents, prior, most):
    """min(P, nu q_i e^{l_i}) with sum 1, by giving P to the largest until the next one fits."""
    with np.errstate(divide="ignore"):
        logits = np.log(prior) + exponents
    order, p = np.argsort(-logits, kind="stable"), np.zeros(len(logits))
    for k in range(len(order)):
        rest = order[k:]
        shares = np.exp(logits[rest] - logits[rest].max())
        p[rest] = (1 - k * most) * shares / shares.sum()
        if p[order[k]] <= most * (1 + 1e-5):
            break
        p[order[k]] = most
    return p


def length(u):
    return np.sqrt(sum(np.sum(a * a) for a in flat(u)))


def shorten(u, limit):
    """u, no longer than the limit."""
    return scale(limit / length(u), u) if length(u) > limit else u


def cosine(u, v):
    """0 if one of them is."""
    size = length(u) * length(v)
    return sum(np.sum(a * b) for a, b in zip(flat(u), flat(v), strict=True)) / size if size else 0.0


# Robust rules of vectors x [n, d], from their papers.


def trimmed_mean(x, f):
    return np.array([sorted(column)[f : len(column) - f] for column in x.T]).mean(1)


def meamed(x, f):
    nearest = [column[np.argsort(np.abs(column - np.median(column)))[: len(x) - f]] for column in x.T]
    return np.array(nearest).mean(1)


def geometric_median(x, nu, iterations):
    z = np.zeros(x.shape[1])
    for _ in range(iterations):
        b = np.array([1 / max(np.linalg.norm(row - z), nu) for row in x])
        z = b @ x / b.sum()
    return z


def krum_scores(x, f):
    away = [[np.sum((a - b) ** 2) for b in x] for a in x]
    return np.array([np.mean(sorted(row)[1 : len(x) - f]) for row in away])


def krum(x, f):
    return x[np.argmin(krum_scores(x, f))]


def multi_krum(x, f):
    return x[np.argsort(krum_scores(x, f), kind="stable")[: len(x) - f]].mean(0)


def mda(x, f):
    def diameter(subset):
        return max(np.linalg.norm(x[i] - x[j]) for i, j in itertools.combinations(subset, 2))

    return x[list(min(itertools.combinations(range(len(x)), len(x) - f), key=diameter))].mean(0)


def centered_clipping(x, radius, iterations):
    v = np.zeros(x.shape[1])
    for _ in range(iterations):
        v = v + np.mean([(row - v) * min(1, radius / np.linalg.norm(row - v)) for row in x], axis=0)
    return v


def nnm(x, f):
    return np.array([x[np.argsort([np.linalg.norm(a - b) for b in x], kind="stable")[: len(x) - f]].mean(0) for a in x])


def arc(x, f):
    lengths = np.linalg.norm(x, axis=1)
    clipped = int(2 * f / len(x) * (len(x) - f))
    limit = np.sort(lengths)[len(x) - clipped - 1]
    return np.array([row * min(1, limit / size) for row, size in zip(x, lengths, strict=True)])
