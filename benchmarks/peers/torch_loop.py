"""PyTorch, as the plain loop over clients that most federated code bases run.

It gets the settings that were fastest for it: normalised float images made once (not per batch), `channels_last`
for the CNN, in-place `_foreach` SGD without an optimizer object, gradients without `.grad`, and losses at x_t as a
by-product of the full gradients. Setting: `threads`.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from benchmarks.peers.protocol import Data, Peer, Spec, normalised, serve

Tensors = list[Tensor]

# Examples at once in a pass over all of a client's data: 100 was a third faster than 500 for the CNN (cache).
CHUNK = {"mlp": 10_000, "cnn": 100}


class Task(NamedTuple):
    """A network with its parameters, the examples, and who owns which."""

    net: Any
    params: Tensors  # of `net`; the loop trains them in place
    model: Tensors  # the global model
    x: Tensor  # [N, H, W, C] normalised
    y: Tensor  # [N]
    index: Tensor  # [M, C]
    spec: Spec


def make_net(model: str, height: int, width: int, channels: int, num_classes: int = 10) -> nn.Module:
    """The networks of `fedeba_jax.models`, on images laid out [B, H, W, C] in memory."""
    if model == "mlp":
        flat = height * width * channels
        layers = [nn.Flatten(), nn.Linear(flat, 200), nn.ReLU(), nn.Linear(200, 200), nn.ReLU()]
        return nn.Sequential(*layers, nn.Linear(200, num_classes))
    left = [((n - 4) // 2 - 4) // 2 for n in (height, width)]
    net = nn.Sequential(
        *(nn.Conv2d(channels, 64, 5), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(64, 64, 5), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Flatten(), nn.Linear(64 * left[0] * left[1], 384), nn.ReLU(), nn.Linear(384, 192), nn.ReLU()),
        nn.Linear(192, num_classes),
    )
    return net.to(memory_format=torch.channels_last)


def make_task(spec: Spec, data: Data) -> Task:
    torch.manual_seed(0)
    net = make_net(spec.model, *data.x.shape[1:])
    params = list(net.parameters())
    labels, owned = (torch.from_numpy(np.asarray(a, np.int64)) for a in (data.y, data.index))
    images = torch.from_numpy(normalised(data.x, spec))
    return Task(net, params, [p.detach().clone() for p in params], images, labels, owned, spec)


def as_images(x: Tensor) -> Tensor:
    """[B, H, W, C] in memory as [B, C, H, W]: the view that torch calls channels_last."""
    return x.permute(0, 3, 1, 2)


def loss_of(task: Task, rows: Tensor) -> Tensor:
    return cross_entropy(task.net(as_images(task.x[rows])), task.y[rows])


def loss_and_grad(task: Task, rows: Tensor) -> tuple[Tensor, Tensors]:
    loss = loss_of(task, rows)
    return loss.detach(), list(torch.autograd.grad(loss, task.params))


def full_loss(task: Task, client: int) -> Tensor:
    rows = task.index[client]
    with torch.no_grad():
        return sum(loss_of(task, part) * (len(part) / len(rows)) for part in rows.split(CHUNK[task.spec.model]))


def full_loss_and_grad(task: Task, client: int) -> tuple[Tensor, Tensors]:
    rows = task.index[client]
    parts = rows.split(CHUNK[task.spec.model])
    losses, grads = zip(*(loss_and_grad(task, part) for part in parts), strict=True)
    shares = [len(part) / len(rows) for part in parts]
    return sum(share * loss for share, loss in zip(shares, losses, strict=True)), weighted_sum(shares, grads)


def restart(task: Task) -> None:
    """The client receives the global model."""
    with torch.no_grad():
        torch._foreach_copy_(task.params, task.model)


def batches(rows: Tensor, spec: Spec, generator: torch.Generator) -> Tensor:
    """Rows of K batches of B, [K, B], cut from permutations of a client's examples."""
    passes = -(-spec.steps * spec.batch // len(rows))
    order = torch.cat([torch.randperm(len(rows), generator=generator) for _ in range(passes)])
    return rows[order[: spec.steps * spec.batch]].reshape(spec.steps, spec.batch)


def train(
    task: Task, client: int, generator: torch.Generator, share: float = 1.0, drift: Tensors | None = None
) -> None:
    """K steps x <- x - rate share grad - drift."""
    for rows in batches(task.index[client], task.spec, generator):
        _, grads = loss_and_grad(task, rows)
        with torch.no_grad():
            torch._foreach_add_(task.params, grads, alpha=-task.spec.rate * share)
            if drift is not None:
                torch._foreach_add_(task.params, drift, alpha=-1.0)


def weighted_sum(weights: Sequence[float], trees: Sequence[Tensors]) -> Tensors:
    total = torch._foreach_mul(trees[0], weights[0])
    for weight, tree in zip(weights[1:], trees[1:], strict=True):
        torch._foreach_add_(total, tree, alpha=weight)
    return list(total)


def fedavg_round(task: Task, client_ids: Sequence[int], generator: torch.Generator) -> None:
    """The uniform mean of the clients' models."""
    total = [torch.zeros_like(p) for p in task.model]
    for client in client_ids:
        restart(task)
        train(task, client, generator)
        with torch.no_grad():
            torch._foreach_add_(total, task.params, alpha=1 / len(client_ids))
    torch._foreach_copy_(task.model, total)


def fedeba_plus_round(
    task: Task, client_ids: Sequence[int], generator: torch.Generator, tau: float = 1.0, alpha: float = 0.9
) -> None:
    """FedEBA+ with theta = 0, that is with the gate open, and the fair gradient scaled by 1/K."""
    restart(task)
    losses, grads = zip(*(full_loss_and_grad(task, client) for client in client_ids), strict=True)
    fair = weighted_sum(torch.softmax(torch.stack(losses) / tau, 0).tolist(), grads)
    drift = list(torch._foreach_mul(fair, task.spec.rate * alpha / task.spec.steps))
    models, after = [], []
    for client in client_ids:
        restart(task)
        train(task, client, generator, 1 - alpha, drift)
        after.append(full_loss(task, client))
        models.append([p.detach().clone() for p in task.params])
    weights = torch.softmax(torch.stack(after) / tau, 0).tolist()
    torch._foreach_copy_(task.model, weighted_sum(weights, models))


ROUNDS: dict[str, Callable[[Task, Sequence[int], torch.Generator], None]] = {
    "fedavg": fedavg_round,
    "fedeba_plus": fedeba_plus_round,
}


def predict(task: Task, images: np.ndarray) -> np.ndarray:
    """Classes of uint8 images, by the global model."""
    restart(task)
    x = as_images(torch.from_numpy(normalised(images, task.spec)))
    with torch.no_grad():
        return torch.cat([task.net(part).argmax(1) for part in x.split(500)]).numpy()


def make(spec: Spec, data: Data, one_round: Callable[..., None] | None = None) -> Peer:
    """The peer that runs this round; by default the loop over clients of the algorithm asked for."""
    one_round = one_round or ROUNDS[spec.algorithm]
    torch.set_num_threads(spec.setting["threads"])
    task = make_task(spec, data)
    return Peer(runner(task, one_round), lambda images: predict(task, images), ["torch"])


def runner(task: Any, one_round: Callable[..., None]) -> Callable[[int], None]:
    """(count) -> so many rounds, each with a cohort drawn at random."""
    generator = torch.Generator().manual_seed(1)

    def run(count: int) -> None:
        for _ in range(count):
            ids = torch.randperm(len(task.index), generator=generator)[: task.spec.cohort]
            one_round(task, ids.tolist(), generator)

    return run


if __name__ == "__main__":
    serve(make)
