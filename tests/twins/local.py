"""Local training, shared by every twin."""

from tests.twins.algebra import scale, subtract


def local_sgd(problem, t, client, start, direction=None):
    """SGD from `start` over the client's batches of round t: the K_i + 1 models x_{t,0}, ..., x_{t,K_i}.

    direction(z, x, y) is what a step descends at model z on batch (x, y); None is the batch gradient.
    """
    direction = direction or problem.gradient
    path = [start]
    for x, y in local_batches(problem, t, client):
        z = path[-1]
        path.append(subtract(z, scale(problem.learning_rate(t), direction(z, x, y))))
    return path


def local_batches(problem, t, client):
    """The examples (x, y) of each of the client's K_i steps in round t."""
    x, y = problem.data[client]
    return [(x[index], y[index]) for index in problem.batches[t][client]]
