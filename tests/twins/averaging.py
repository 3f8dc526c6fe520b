"""FedAvg and FedSGD (McMahan et al. 2017) and FedProx (Li et al. 2020)."""

from tests.twins.algebra import add, scale, subtract
from tests.twins.local import local_sgd
from tests.twins.problem import Trace
from tests.twins.weights import fedavg_weights


def fedavg(problem, *, weighting="examples"):
    """FedAvg: K local SGD steps, then x <- x + eta sum_i a_i Delta_i."""
    trace = Trace()
    x = problem.params
    for t, cohort in enumerate(problem.cohorts):
        losses_before = problem.full_losses([x for _ in cohort], cohort)
        trained = [local_sgd(problem, t, i, x)[-1] for i in cohort]
        losses_after = problem.full_losses(trained, cohort)
        a = fedavg_weights(problem, cohort, weighting)
        delta = problem.aggregate(t, cohort, a, [subtract(z, x) for z in trained])
        x = add(x, scale(problem.server_rate, delta))
        trace.record(x, losses_before=losses_before, losses_after=losses_after, weights=a)
    return trace


def fedsgd(problem, *, weighting="examples"):
    """FedSGD: x <- x - eta eta_L sum_i a_i nabla F_i(x), on whole local sets; the batches are not used."""
    trace = Trace()
    x = problem.params
    for t, cohort in enumerate(problem.cohorts):
        losses_before = problem.full_losses([x for _ in cohort], cohort)
        steps = [scale(-problem.learning_rate(t), problem.full_gradient(x, i)) for i in cohort]
        losses_after = problem.full_losses([add(x, step) for step in steps], cohort)
        a = fedavg_weights(problem, cohort, weighting)
        x = add(x, scale(problem.server_rate, problem.aggregate(t, cohort, a, steps)))
        trace.record(x, losses_before=losses_before, losses_after=losses_after, weights=a)
    return trace


def fedprox(problem, *, mu, weighting="examples"):
    """FedProx: local steps z <- z - eta_L (grad F_i(z) + mu (z - x)), aggregated as in FedAvg."""
    trace = Trace()
    x = problem.params
    for t, cohort in enumerate(problem.cohorts):
        losses_before = problem.full_losses([x for _ in cohort], cohort)
        trained = [proximal_sgd(problem, t, i, x, mu)[-1] for i in cohort]
        losses_after = problem.full_losses(trained, cohort)
        a = fedavg_weights(problem, cohort, weighting)
        delta = problem.aggregate(t, cohort, a, [subtract(z, x) for z in trained])
        x = add(x, scale(problem.server_rate, delta))
        trace.record(x, losses_before=losses_before, losses_after=losses_after, weights=a)
    return trace


def proximal_sgd(problem, t, client, start, mu):
    """Local steps along grad F_i(z; batch) + mu (z - start)."""

    def direction(z, x, y):
        return add(problem.gradient(z, x, y), scale(mu, subtract(z, start)))

    return local_sgd(problem, t, client, start, direction)
