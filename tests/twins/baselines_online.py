"""Baselines that learn the mixture over rounds: AFL and AAggFF."""

import math

import numpy as np

from tests.twins.algebra import combine
from tests.twins.baselines_weights import weighted_rounds
from tests.twins.solvers import box_simplex_qp, project_simplex

# AFL.


def afl(problem, *, gamma, participation="block", order=None, average_iterate=None):
    """AFL (Mohri et al. 2019): gradient ascent of the mixture lambda, on the simplex, with step gamma.

    participation: "all" (every client in every cohort), "block" (the cohort's own simplex) or "full_simplex".
    order: aggregate with the "old" lambda or the "new". average_iterate: record the mean of x_1..x_t as well.
    """
    m, n = len(problem.data), len(problem.cohorts[0])
    if participation == "all" and any(len(cohort) < m for cohort in problem.cohorts):
        raise ValueError("participation='all' needs every client in every cohort")
    order = order or ("old" if participation == "all" else "new")
    lam = np.full(m, 1.0 / (n if participation == "block" else m))

    def rule(r):
        nonlocal lam
        old, lam = lam, afl_ascent(lam, r.cohort, r.losses, gamma, participation)
        a = afl_weights({"old": old, "new": lam}[order], r.cohort)
        return a, {"lambda": lam}

    trace = weighted_rounds(problem, rule)
    if participation == "all" if average_iterate is None else average_iterate:
        for t, measured in enumerate(trace.diagnostics):
            measured["average"] = combine([1.0 / (t + 1)] * (t + 1), trace.params[: t + 1])
    return trace


def afl_ascent(lam, cohort, losses, gamma, participation):
    """lambda_S <- lambda_S + gamma F_S, then the projection of the block, or of the whole vector."""
    lam = lam.copy()
    lam[cohort] += gamma * np.asarray(losses)
    if participation == "block":
        lam[cohort] = project_simplex(lam[cohort])
        return lam
    return project_simplex(lam)


def afl_weights(lam, cohort):
    """a_i = lambda_i / sum_S lambda; uniform if the sum is 0."""
    total = lam[cohort].sum()
    return lam[cohort] / total if total > 0 else np.full(len(cohort), 1.0 / len(cohort))


# AAggFF.


def aaggff(problem, *, variant="D", cdf="normal", repo_exact=False):
    """AAggFF (Hahn et al. 2024): online convex optimisation of -log(1 + <p, r>), r a CDF of the losses."""
    m = len(problem.data)
    if variant == "S" and any(len(cohort) < m for cohort in problem.cohorts):
        raise ValueError("variant='S' needs every client in every cohort; take 'D'")
    fraction = len(problem.cohorts[0]) / m
    learner = {"D": DeviceLearner, "S": SiloLearner}[variant](m, fraction, cdf, repo_exact)

    def rule(r):
        p = learner.update(r.cohort, r.losses)
        a = p[r.cohort] / p[r.cohort].sum()
        return a, {"p": p, **learner.state()}

    return weighted_rounds(problem, rule)


CDFS = {
    "weibull": lambda z: 1.0 - math.exp(-(z**2)),
    "exponential": lambda z: 1.0 - math.exp(-z),
    "frechet": lambda z: math.exp(-1.0 / z) if z > 0 else 0.0,
    "normal": lambda z: 0.5 * (1.0 + math.erf((z - 1.0) / math.sqrt(2.0))),
    "gumbel": lambda z: math.exp(-math.exp(-(z - 1.0))),
    "logistic": lambda z: 1.0 / (1.0 + math.exp(-(z - 1.0))),
    "repo_normal": lambda z: 0.5 * (1.0 + math.erfc((z - 1.0) / math.sqrt(2.0))),  # erfc for erf: falls with the loss
}


def responses(losses, cdf):
    """CDF(F_i / mean_S F), each in [0, 1]; equal losses (zero ones too) are at 1."""
    mean = np.mean(losses)
    return np.array([CDFS[cdf](F / mean if mean > 0 else 1.0) for F in losses])


def cdf_name(cdf, repo_exact):
    """The published code's normal CDF is not one."""
    return "repo_normal" if repo_exact and cdf == "normal" else cdf


class DeviceLearner:
    """AAggFF-D: follow the regularised leader with the entropy, in closed form, on doubly robust responses."""

    def __init__(self, m, fraction, cdf, repo_exact):
        self.m, self.fraction, self.cdf, self.repo_exact = m, fraction, cdf_name(cdf, repo_exact), repo_exact
        self.p = np.full(m, fraction if repo_exact else 1.0 / m)
        self.G = np.zeros(m)
        self.t = 1

    def update(self, cohort, losses):
        """G += g; p = softmax(-G sqrt(log m) / ((2 + C) sqrt(t + 1)))."""
        r = self.fraction * responses(losses, self.cdf)
        self.doubly_robust, mean = self.robust_responses(cohort, r)
        s = self.p.sum()
        slope = mean * (self.p @ (self.doubly_robust - mean)) / (1.0 + mean * s) ** 2
        self.G = self.G - self.doubly_robust / (1.0 + mean * s) + slope
        exponents = -self.G * math.sqrt(math.log(self.m)) / ((2.0 + self.fraction) * math.sqrt(self.t + 1))
        unnormalised = np.exp(exponents - exponents.max())
        self.p = unnormalised / unnormalised.sum()
        self.t += 1
        return self.p

    def robust_responses(self, cohort, r):
        """r~_i = rbar + 1[i in S] (r_i - rbar) / C, and rbar = mean_S r; the code has no rbar where i in S."""
        mean = r.mean()
        robust = np.full(self.m, mean)
        for i, r_i in zip(cohort, r, strict=True):
            robust[i] = (0.0 if self.repo_exact else mean) + (r_i - mean) / self.fraction
        return robust, mean

    def state(self):
        return {"G": self.G, "responses": self.doubly_robust}


class SiloLearner:
    """AAggFF-S: the online Newton step, full participation; alpha = 4, beta = m / 4."""

    def __init__(self, m, fraction, cdf, repo_exact):
        self.m, self.cdf, self.repo_exact = m, cdf_name(cdf, repo_exact), repo_exact
        self.alpha, self.beta = 4.0, m / 4.0
        self.p = np.full(m, 1.0 if repo_exact else 1.0 / m)
        self.G, self.b = np.zeros(m), np.zeros(m)
        self.A = self.alpha * np.eye(m) if repo_exact else np.zeros((m, m))

    def update(self, cohort, losses):
        """p = argmin_simplex <G - beta b, p> + alpha/2 |p|^2 + beta/2 p'Ap; the code drops b."""
        r = np.zeros(self.m)
        r[cohort] = responses(losses, self.cdf) / self.m
        g = -r / (1.0 + self.p @ r)
        self.G = self.G + g
        self.A = self.A + np.outer(g, g)
        self.b = self.b if self.repo_exact else self.b + g * (g @ self.p)
        Q = self.alpha * np.eye(self.m) + self.beta * self.A
        uniform = np.full(self.m, 1.0 / self.m)
        self.p = box_simplex_qp(Q, self.G - self.beta * self.b, np.zeros(self.m), np.ones(self.m), start=uniform)
        return self.p

    def state(self):
        return {"G": self.G, "A": self.A, "b": self.b}
