"""The PyTorch peer of the benchmark: a round as the plain loop over clients that most federated code bases run.

It gets the settings that were fastest for it: normalised float images made once (not per batch), `channels_last`
for the CNN, in-place `_foreach` SGD without an optimizer object, gradients without `.grad`, losses at x_t as a
by-product of the full gradients, and the number of threads that wins a short trial. Torch is imported lazily, so
that this module can be imported without it (extra: `bench`).
"""

import os
import time
from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np

from fedeba_jax.models.normalization import MNIST, NORMALIZATION

ModelName = Literal["mlp", "cnn"]
Tensors = list[Any]

# Examples at once in a pass over all of a client's data: 100 was a third faster than 500 for the CNN (cache).
CHUNK = {"mlp": 10_000, "cnn": 100}


class LocalWork(NamedTuple):
    """What every client does: K steps of SGD on batches of B."""

    steps: int = 10
    batch: int = 50
    lr: float = 0.1


class Task(NamedTuple):
    """A network with its parameters, the examples, and who owns which."""

    net: Any
    params: Tensors  # of `net`; the loop trains them in place
    model: Tensors  # the global model
    x: Any  # [N, ...] normalised
    y: Any  # [N]
    index: Any  # [M, C]
    work: LocalWork
    chunk: int


class TorchRound(NamedTuple):
    """`round(client_ids, seed)` runs one round and moves the global model, which `parameters()` reads."""

    run: Callable[[Task, Sequence[int], int], None]
    task: Task
    num_threads: int

    def __call__(self, client_ids: Sequence[int], seed: int) -> None:
        import torch

        torch.set_num_threads(self.num_threads)  # global to the process, and peers may differ
        self.run(self.task, client_ids, seed)

    def parameters(self) -> dict[str, np.ndarray]:
        names = [name for name, _ in self.task.net.named_parameters()]
        return {name: p.numpy(force=True).copy() for name, p in zip(names, self.task.model, strict=True)}


def make_net(model: ModelName, height: int, width: int, channels: int, num_classes: int = 10) -> Any:
    """The networks of `fedeba_jax.models`, on images laid out [B, H, W, C] in memory."""
    from torch import nn

    if model == "mlp":
        flat = height * width * channels
        layers = [nn.Flatten(), nn.Linear(flat, 200), nn.ReLU(), nn.Linear(200, 200), nn.ReLU()]
        return nn.Sequential(*layers, nn.Linear(200, num_classes))
    import torch

    left = [((n - 4) // 2 - 4) // 2 for n in (height, width)]
    net = nn.Sequential(
        *(nn.Conv2d(channels, 64, 5), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(64, 64, 5), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Flatten(), nn.Linear(64 * left[0] * left[1], 384), nn.ReLU(), nn.Linear(384, 192), nn.ReLU()),
        nn.Linear(192, num_classes),
    )
    return net.to(memory_format=torch.channels_last)


def make_task(model: ModelName, x: np.ndarray, y: np.ndarray, index: np.ndarray, work: LocalWork) -> Task:
    """x is uint8 [N, H, W, C] or [N, H, W]."""
    import torch

    x = x.reshape(*x.shape[:3], -1)
    constants = MNIST if x.shape[-1] == 1 else NORMALIZATION["cifar10"]
    mean, std = (np.asarray(a, np.float32) for a in constants)
    images = torch.from_numpy((x.astype(np.float32) / 255 - mean) / std)
    torch.manual_seed(0)
    net = make_net(model, *x.shape[1:])
    params = list(net.parameters())
    labels, owned = (torch.from_numpy(np.asarray(a, np.int64)) for a in (y, index))
    return Task(net, params, [p.detach().clone() for p in params], images, labels, owned, work, CHUNK[model])


def _loss(task: Task, rows: Any) -> Any:
    from torch.nn.functional import cross_entropy

    # Rows are contiguous [H, W, C]; the view is what torch calls channels_last.
    return cross_entropy(task.net(task.x[rows].permute(0, 3, 1, 2)), task.y[rows])


def _loss_and_grad(task: Task, rows: Any) -> tuple[Any, Tensors]:
    import torch

    loss = _loss(task, rows)
    return loss.detach(), list(torch.autograd.grad(loss, task.params))


def _full_loss(task: Task, client: int) -> Any:
    import torch

    rows = task.index[client]
    with torch.no_grad():
        return sum(_loss(task, part) * (len(part) / len(rows)) for part in rows.split(task.chunk))


def _full_loss_and_grad(task: Task, client: int) -> tuple[Any, Tensors]:
    rows = task.index[client]
    parts = rows.split(task.chunk)
    losses, grads = zip(*(_loss_and_grad(task, part) for part in parts), strict=True)
    shares = [len(part) / len(rows) for part in parts]
    return sum(share * loss for share, loss in zip(shares, losses, strict=True)), _weighted_sum(shares, grads)


def _restart(task: Task) -> None:
    """The client receives the global model."""
    import torch

    with torch.no_grad():
        torch._foreach_copy_(task.params, task.model)


def _train(task: Task, client: int, generator: Any, share: float = 1.0, drift: Tensors | None = None) -> None:
    """K steps x <- x - lr share grad - drift, on batches cut from permutations of the client's examples."""
    import torch

    steps, batch, lr = task.work
    rows = task.index[client]
    passes = -(-steps * batch // len(rows))
    order = torch.cat([torch.randperm(len(rows), generator=generator) for _ in range(passes)])
    for k in range(steps):
        _, grads = _loss_and_grad(task, rows[order[k * batch : (k + 1) * batch]])
        with torch.no_grad():
            torch._foreach_add_(task.params, grads, alpha=-lr * share)
            if drift is not None:
                torch._foreach_add_(task.params, drift, alpha=-1.0)


def _weighted_sum(weights: Sequence[float], trees: Sequence[Tensors]) -> Tensors:
    import torch

    total = torch._foreach_mul(trees[0], weights[0])
    for weight, tree in zip(weights[1:], trees[1:], strict=True):
        torch._foreach_add_(total, tree, alpha=weight)
    return list(total)


def fedavg_round(task: Task, client_ids: Sequence[int], seed: int) -> None:
    """The uniform mean of the clients' models."""
    import torch

    generator = torch.Generator().manual_seed(seed)
    total = [torch.zeros_like(p) for p in task.model]
    for client in client_ids:
        _restart(task)
        _train(task, client, generator)
        with torch.no_grad():
            torch._foreach_add_(total, task.params, alpha=1 / len(client_ids))
    torch._foreach_copy_(task.model, total)


def fedeba_plus_round(task: Task, client_ids: Sequence[int], seed: int, tau: float = 1.0, alpha: float = 0.9) -> None:
    """FedEBA+ with theta = 0, that is with the gate open, and the fair gradient scaled by 1/K."""
    import torch

    generator = torch.Generator().manual_seed(seed)
    _restart(task)
    losses, grads = zip(*(_full_loss_and_grad(task, client) for client in client_ids), strict=True)
    fair = _weighted_sum(torch.softmax(torch.stack(losses) / tau, 0).tolist(), grads)
    drift = list(torch._foreach_mul(fair, task.work.lr * alpha / task.work.steps))
    models, after = [], []
    for client in client_ids:
        _restart(task)
        _train(task, client, generator, 1 - alpha, drift)
        after.append(_full_loss(task, client))
        models.append([p.detach().clone() for p in task.params])
    weights = torch.softmax(torch.stack(after) / tau, 0).tolist()
    torch._foreach_copy_(task.model, _weighted_sum(weights, models))


ROUNDS = {"fedavg": fedavg_round, "fedeba_plus": fedeba_plus_round}


def fastest_num_threads(task: Task, repeats: int = 3) -> int:
    """The thread count with the best of a few single-client rounds, taken in turns; the model is put back."""
    import torch

    best = dict.fromkeys(range(1, (os.cpu_count() or 1) + 1), float("inf"))
    start = [p.clone() for p in task.model]
    for _ in range(repeats + 1):  # the first turn warms up, and rarely wins
        for threads in best:
            torch.set_num_threads(threads)
            begin = time.perf_counter()
            fedavg_round(task, [0], 0)
            best[threads] = min(best[threads], time.perf_counter() - begin)
    torch._foreach_copy_(task.model, start)
    return min(best, key=lambda threads: best[threads])


def make_round(
    model: ModelName,
    x: np.ndarray,
    y: np.ndarray,
    client_index: np.ndarray,
    num_threads: int | None = None,
    *,
    algorithm: str = "fedavg",
    work: LocalWork = LocalWork(),  # noqa: B008, an immutable value
) -> TorchRound:
    """A round of `algorithm` on uint8 images x, labels y and the clients' rows [M, C]; no thread count: a trial."""
    task = make_task(model, x, y, client_index, work)
    return TorchRound(ROUNDS[algorithm], task, num_threads or fastest_num_threads(task))
