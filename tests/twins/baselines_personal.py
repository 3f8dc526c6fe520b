"""Baselines with several models: local_only, Ditto, FOCUS and lp-proj. Their traces keep every client's own model."""

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from tests.twins import network
from tests.twins.algebra import add, combine, flat, scale, subtract
from tests.twins.local import local_batches, local_sgd
from tests.twins.problem import Trace
from tests.twins.weights import fedavg_weights, uniform_weights


@dataclass
class PersonalTrace(Trace):
    """A trace with {client: its personal model} after each round, of all m clients."""

    personal: list = field(default_factory=list)


# Local training alone.


def local_only(problem):
    """Nobody talks to anybody: v_i <- v_i - eta_L grad F_i(v_i), K times, if i is sampled; trace.params is the mean."""
    trace = PersonalTrace()
    personal = {i: problem.params for i in range(len(problem.data))}
    for t, cohort in enumerate(problem.cohorts):
        losses_before = problem.full_losses([personal[i] for i in cohort], cohort)
        personal = {**personal, **{i: local_sgd(problem, t, i, personal[i])[-1] for i in cohort}}
        trace.record(
            combine([1.0 / len(personal)] * len(personal), list(personal.values())),
            losses_before=losses_before,
            losses_after=problem.full_losses([personal[i] for i in cohort], cohort),
            weights=uniform_weights(problem, cohort),
        )
        trace.personal.append(personal)
    return trace


# Ditto.


def ditto(problem, *, lam, weighting="examples"):
    """Ditto (Li et al. 2021): FedAvg, and beside it v_i <- v_i - eta_L (grad F_i(v_i) + lam (v_i - x_t))."""
    trace = PersonalTrace()
    x = problem.params
    personal = {i: problem.params for i in range(len(problem.data))}
    for t, cohort in enumerate(problem.cohorts):
        losses_before = problem.full_losses([x for _ in cohort], cohort)
        trained = [local_sgd(problem, t, i, x)[-1] for i in cohort]
        personal = {**personal, **{i: ditto_sgd(problem, t, i, personal[i], x, lam)[-1] for i in cohort}}
        a = fedavg_weights(problem, cohort, weighting)
        x = add(x, scale(problem.server_rate, combine(a, [subtract(z, x) for z in trained])))
        losses_after = problem.full_losses(trained, cohort)
        trace.record(x, losses_before=losses_before, losses_after=losses_after, weights=a)
        trace.personal.append(personal)
    return trace


def ditto_sgd(problem, t, client, start, anchor, lam):
    """Local steps from `start` along grad F_i(v; batch) + lam (v - anchor), on the global model's own batches."""

    def direction(v, x, y):
        return add(problem.gradient(v, x, y), scale(lam, subtract(v, anchor)))

    return local_sgd(problem, t, client, start, direction)


# FOCUS.


def focus(problem, *, clusters, pi_damping=0.0):
    """FOCUS (Chu et al. 2023): EM of soft clusters; `clusters` are the M initial models, problem.params is unused.

    trace.params[t] is the list of cluster models. Losses are the mixtures sum_m pi_im F_i(w_m) with the round's pi.
    """
    trace = Trace()
    pi = np.full((len(problem.data), len(clusters)), 1.0 / len(clusters))
    for t, cohort in enumerate(problem.cohorts):
        before = np.array([[problem.full_loss(w, i) for w in clusters] for i in cohort])
        pi = pi.copy()
        pi[cohort] = focus_assignments(pi[cohort], before, pi_damping)
        trained = [[local_sgd(problem, t, i, w)[-1] for w in clusters] for i in cohort]
        after = np.array([[problem.full_loss(z, i) for z in row] for i, row in zip(cohort, trained, strict=True)])
        weights = focus_weights(pi[cohort])
        updated = []
        for k, w in enumerate(clusters):
            steps = combine(weights[:, k], [subtract(row[k], w) for row in trained])
            updated.append(add(w, scale(problem.server_rate, steps)))
        clusters = updated
        trace.record(
            clusters,
            losses_before=np.sum(pi[cohort] * before, axis=1),
            losses_after=np.sum(pi[cohort] * after, axis=1),
            weights=weights,
            pi=pi,
            cluster_losses=before,
        )
    return trace


def focus_assignments(pi, losses, damping=0.0, floor=1e-8):
    """E-step: pi_im ~ pi_im exp(-F_i(w_m)), damped towards the old pi, at least `floor` before it is normalised."""
    exponents = np.log(pi) - losses
    new = np.exp(exponents - exponents.max(axis=1, keepdims=True))
    new = new / new.sum(axis=1, keepdims=True)
    new = np.maximum((1.0 - damping) * new + damping * pi, floor)
    return new / new.sum(axis=1, keepdims=True)


def focus_weights(pi):
    """M-step: a_im = pi_im / sum_j pi_jm; zeros keep a cluster that nobody is in."""
    totals = pi.sum(axis=0)
    return np.where(totals < 1e-12, 0.0, pi / np.maximum(totals, 1e-12))


def focus_predict(pi_i, clusters, x):
    """P(y | x) = sum_m pi_im softmax(f(x; w_m)) for one client."""
    return sum(p * np.exp(network.log_softmax(network.logits(w, x))) for p, w in zip(pi_i, clusters, strict=True))


def faa(losses, best=0.0):
    """FAA = max_i E_i - min_i E_i of the excess risks E_i = F_i - F_i* (Chu et al. 2023)."""
    excess = np.asarray(losses) - best
    return float(excess.max() - excess.min())


# lp-proj.


def lp_proj(
    problem, *, projection, personal, lam=15.0, p=1, outer=5, inner=20, clip=60.0, damped=False, train_all=False
):
    """lp-proj (Lin et al. 2022): personal models theta_i tied to a shared w in R^dim through P theta_i ~ w; w_0 = 0.

    projection: P [dim, d], columns in the order of `flatten`. personal: the m initial models. The steps of theta and w
    have rate eta_L; inner step j of repeat r takes batch (r inner + j) mod K_i. The server rate is beta. train_all:
    clients outside the cohort train too, but are not averaged. trace.params is the mean of all m personal models, and
    the losses are F_i(theta_i).
    """
    trace = PersonalTrace()
    w = np.zeros(len(projection))
    personal = dict(enumerate(personal))
    tie = Tie(projection, lam, p, damped)
    for t, cohort in enumerate(problem.cohorts):
        losses_before = problem.full_losses([personal[i] for i in cohort], cohort)
        clients = range(len(problem.data)) if train_all else cohort
        trained = {i: lp_proj_local(problem, t, i, personal[i], w, tie, outer, inner, clip) for i in clients}
        personal = {**personal, **{i: theta for i, (theta, _) in trained.items()}}
        a = uniform_weights(problem, cohort)
        local = np.array([trained[i][1] for i in cohort])
        w = (1.0 - problem.server_rate) * w + problem.server_rate * (a @ local)
        trace.record(
            combine([1.0 / len(personal)] * len(personal), list(personal.values())),
            losses_before=losses_before,
            losses_after=problem.full_losses([personal[i] for i in cohort], cohort),
            weights=a,
            shared=w,
            local_shared=local,
        )
        trace.personal.append(personal)
    return trace


def lp_proj_local(problem, t, client, theta, w, tie, outer, inner, clip):
    """`outer` times: `inner` steps of theta, then one of the client's own w."""
    batches = local_batches(problem, t, client)
    rate = problem.learning_rate(t)
    for r in range(outer):
        for j in range(inner):
            x, y = batches[(r * inner + j) % len(batches)]
            theta = theta_step(theta, w, clipped(problem.gradient(theta, x, y), clip), tie, rate)
        w = shared_step(theta, w, tie, rate)
    return theta, w


class Tie(NamedTuple):
    """lam |P theta - w|_1 (p = 1) or lam/2 |P theta - w|_2^2 (p = 2); damped: no step of p = 1 passes zero."""

    P: np.ndarray
    lam: float
    p: int = 1
    damped: bool = False

    def step(self, theta, w, rate):
        """rate times the slope of the tie in w."""
        c = w - self.P @ flatten(theta)
        if self.p == 2:
            return rate * self.lam * c
        if self.p != 1:
            raise ValueError(f"p={self.p} mixes two objectives in the reference; take 1 or 2")
        return np.sign(c) * (np.minimum(rate * self.lam, np.abs(c)) if self.damped else rate * self.lam)


def theta_step(theta, w, gradient, tie, rate):
    """theta <- theta - eta (g - lam P' sign(w - P theta))."""
    pull = unflatten(tie.P.T @ tie.step(theta, w, rate), theta)
    return add(subtract(theta, scale(rate, gradient)), pull)


def shared_step(theta, w, tie, rate):
    """w <- w - eta lam sign(w - P theta)."""
    return w - tie.step(theta, w, rate)


def clipped(gradient, most):
    """The gradient, shortened to norm `most` if it is longer."""
    length = np.linalg.norm(flatten(gradient))
    return scale(most / length, gradient) if length > most else gradient


def flatten(model):
    """Every array of a model in order, as one vector."""
    return np.concatenate([a.ravel() for a in flat(model)])


def unflatten(vector, like):
    """The model of like's shapes whose `flatten` is the vector."""
    model, start = [], 0
    for layer in like:
        arrays = []
        for a in layer:
            arrays.append(vector[start : start + a.size].reshape(a.shape))
            start += a.size
        model.append(tuple(arrays))
    return model
