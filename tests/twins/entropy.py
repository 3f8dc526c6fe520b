"""FedEBA, FedEBA+ (Algorithm 1), Prac-FedEBA+ (Algorithm 2) and the ablation "FedAvg + (2)"."""

from tests.twins.algebra import add, combine, scale, subtract, zeros
from tests.twins.local import local_batches, local_sgd
from tests.twins.problem import Trace
from tests.twins.weights import (
    angle_degrees,
    entropy_weights,
    example_weights,
    fedavg_weights,
    prior_weights,
    uniform_weights,
)


def fedeba(problem, *, tau, prior=None):
    """FedEBA: FedAvg with the entropy aggregation p_i = softmax(F_i(x_{t,K}^i) / tau) (EBA)."""
    trace = Trace()
    x = problem.params
    for t, cohort in enumerate(problem.cohorts):
        losses_before = problem.full_losses([x for _ in cohort], cohort)
        trained = [local_sgd(problem, t, i, x)[-1] for i in cohort]
        losses_after = problem.full_losses(trained, cohort)
        p = entropy_weights(losses_after, tau, prior_weights(problem, cohort, prior))
        delta = problem.aggregate(t, cohort, p, [subtract(z, x) for z in trained])
        x = add(x, scale(problem.server_rate, delta))
        trace.record(x, losses_before=losses_before, losses_after=losses_after, weights=p)
    return trace


def fedeba_plus(problem, *, tau, alpha, theta, fair_scale=None, prior=None, perturb=None, weigh_by="after"):
    """FedEBA+: Algorithm 1, with p and p~ both from the entropy model; perturb(t, z) of the alignment variable z."""

    def aggregation_weights(cohort, losses_before, losses_after):
        losses = {"after": losses_after, "before": losses_before}[weigh_by]
        return entropy_weights(losses, tau, prior_weights(problem, cohort, prior))

    def fair_weights(cohort, losses_before):
        return entropy_weights(losses_before, tau, prior_weights(problem, cohort, prior))

    return algorithm_1(problem, aggregation_weights, fair_weights, alpha, theta, fair_scale, perturb)


def fedavg_align(problem, *, tau, alpha, theta, fair_scale=None, weighting="uniform"):
    """Ablation "FedAvg + (2)": Algorithm 1 with FedAvg's weights for p and softmax(F_i(x_t) / tau) for p~."""

    def aggregation_weights(cohort, losses_before, losses_after):
        return fedavg_weights(problem, cohort, weighting)

    def fair_weights(cohort, losses_before):
        return entropy_weights(losses_before, tau, uniform_weights(problem, cohort))

    return algorithm_1(problem, aggregation_weights, fair_weights, alpha, theta, fair_scale)


def algorithm_1(problem, aggregation_weights, fair_weights, alpha, theta, fair_scale, perturb=None):
    """Algorithm 1, given its two weightings; theta in degrees, fair_scale None = 1 / K_i."""
    perturb = perturb or (lambda t, z: z)
    trace = Trace()
    x = problem.params
    for t, cohort in enumerate(problem.cohorts):  # line 4
        losses_before = problem.full_losses([x for _ in cohort], cohort)  # line 6
        p_fair = fair_weights(cohort, losses_before)
        gate = angle_degrees(losses_before) > theta  # line 7
        if gate:
            fair = perturb(t, combine(p_fair, [problem.full_gradient(x, i) for i in cohort]))  # line 8
            trained = [aligned_sgd(problem, t, i, x, fair, alpha, fair_scale)[-1] for i in cohort]  # 9-12
            deltas = [subtract(z, x) for z in trained]  # line 13
            losses_after = problem.full_losses(trained, cohort)
            p = aggregation_weights(cohort, losses_before, losses_after)
            delta = problem.aggregate(t, cohort, p, deltas)  # line 15
        else:
            paths = [local_sgd(problem, t, i, x) for i in cohort]  # lines 17-20
            deltas = [subtract(path[-1], x) for path in paths]  # line 21
            first_steps = [subtract(path[1], x) for path in paths]
            losses_after = problem.full_losses([path[-1] for path in paths], cohort)
            p = aggregation_weights(cohort, losses_before, losses_after)
            ideal = perturb(t, combine(example_weights(problem, cohort), first_steps))
            delta = add(scale(1 - alpha, problem.aggregate(t, cohort, p, deltas)), scale(alpha, ideal))  # line 23
        x = add(x, scale(problem.server_rate, delta))  # line 25
        trace.record(
            x,
            losses_before=losses_before,
            losses_after=losses_after,
            weights=p,
            fair_weights=p_fair,
            gate=bool(gate),
        )
    return trace


def aligned_sgd(problem, t, client, start, fair, alpha, fair_scale):
    """Local steps along h = (1 - alpha) grad F_i(z; batch) + alpha c g~ (Algorithm 1, lines 10-12)."""
    steps = len(problem.batches[t][client])
    c = 1.0 / steps if fair_scale is None else fair_scale

    def aligned(z, x, y):
        return add(scale(1 - alpha, problem.gradient(z, x, y)), scale(alpha * c, fair))

    return local_sgd(problem, t, client, start, aligned)


def prac_fedeba_plus(problem, *, tau, alpha, theta, prior=None):
    """Prac-FedEBA+: Algorithm 2, with x_{t,K-1} in line 18 read as x_{t,K}; theta in degrees."""
    trace = Trace()
    x = problem.params
    for t, cohort in enumerate(problem.cohorts):  # line 4
        q = prior_weights(problem, cohort, prior)
        steps = [len(problem.batches[t][i]) for i in cohort]  # K_i
        paths = [local_sgd(problem, t, i, x) for i in cohort]  # lines 6-9
        deltas = [subtract(path[-1], x) for path in paths]  # line 10
        losses_before = problem.full_losses([x for _ in cohort], cohort)  # line 12
        losses_after = problem.full_losses([path[-1] for path in paths], cohort)
        p = entropy_weights(losses_after, tau, q)
        p_fair = entropy_weights(losses_before, tau, q)
        gate = angle_degrees(losses_before) > theta  # line 13
        if gate:
            mean_gradients = [mean_gradient(problem, t, i, path) for i, path in zip(cohort, paths, strict=True)]
            fair = combine(p_fair, mean_gradients)  # line 14
            aligned = []
            for delta_i, K in zip(deltas, steps, strict=True):  # line 15
                fair_part = scale(-alpha * problem.learning_rate(t) * K, fair)
                aligned.append(add(scale(1 - alpha, delta_i), fair_part))
            delta = combine(p, aligned)  # line 16
        else:
            one_steps = [scale(1.0 / K, delta_i) for delta_i, K in zip(deltas, steps, strict=True)]  # line 18
            ideal = combine(example_weights(problem, cohort), one_steps)
            delta = add(scale(1 - alpha, combine(p, deltas)), scale(alpha, ideal))  # line 19
        x = add(x, scale(problem.server_rate, delta))  # line 21
        trace.record(
            x,
            losses_before=losses_before,
            losses_after=losses_after,
            weights=p,
            fair_weights=p_fair,
            gate=bool(gate),
        )
    return trace


def mean_gradient(problem, t, client, path):
    """1/K_i sum_k grad F_i(x_{t,k}; batch k) along local training's path (Algorithm 2, line 14)."""
    batches = local_batches(problem, t, client)
    total = zeros(path[0])
    for z, (x, y) in zip(path[:-1], batches, strict=True):
        total = add(total, problem.gradient(z, x, y))
    return scale(1.0 / len(batches), total)
