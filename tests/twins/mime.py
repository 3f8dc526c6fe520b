"""MimeLite (Karimireddy et al. 2021) with momentum as an exponential mean."""

from tests.twins.algebra import add, combine, scale, subtract, zeros
from tests.twins.local import local_sgd
from tests.twins.problem import Trace
from tests.twins.weights import fedavg_weights


def mime_lite(problem, *, beta, weighting="examples"):
    """MimeLite: local steps with the server's momentum m, which full gradients at x_t move once a round."""
    trace = Trace()
    x = problem.params
    m = zeros(x)
    for t, cohort in enumerate(problem.cohorts):
        losses_before = problem.full_losses([x for _ in cohort], cohort)
        trained = [mime_sgd(problem, t, i, x, m, beta)[-1] for i in cohort]
        losses_after = problem.full_losses(trained, cohort)
        a = fedavg_weights(problem, cohort, weighting)
        gradient = combine(a, [problem.full_gradient(x, i) for i in cohort])
        delta = problem.aggregate(t, cohort, a, [subtract(z, x) for z in trained])
        x = add(x, scale(problem.server_rate, delta))
        m = add(scale(1 - beta, gradient), scale(beta, m))
        trace.record(x, losses_before=losses_before, losses_after=losses_after, weights=a, momentum=m)
    return trace


def mime_sgd(problem, t, client, start, m, beta):
    """Local steps along (1 - beta) grad F_i(z; batch) + beta m."""

    def direction(z, x, y):
        return add(scale(1 - beta, problem.gradient(z, x, y)), scale(beta, m))

    return local_sgd(problem, t, client, start, direction)
