"""PyTorch's plain loop over clients with the networks of `torch_models`. Setting: `threads`.

As in `torch_loop`: normalised float images made once, `channels_last`, in-place `_foreach` SGD, no `.grad`.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from benchmarks.peers import torch_models
from benchmarks.peers.protocol import Data, Peer, Spec, normalised, serve
from benchmarks.peers.torch_loop import as_images, batches, runner

NETS: dict[str, Callable[[int, int], nn.Module]] = {  # (channels, classes) -> network
    "resnet18": torch_models.resnet18,
    "mobilenet_v2": torch_models.mobilenet_v2,
    "lstm_words": lambda _, num_classes: torch_models.LanguageModel(num_classes),
}


class Task(NamedTuple):
    net: Any
    x: Tensor  # [N, H, W, C] normalised, or [N, L] tokens
    y: Tensor  # [N] or [N, L]
    index: Tensor  # [M, C]
    spec: Spec


def make_task(spec: Spec, data: Data) -> Task:
    torch.manual_seed(0)
    net = NETS[spec.model](data.x.shape[-1], int(data.y.max()) + 1)
    y, index = (torch.from_numpy(np.asarray(a, np.int64)) for a in (data.y, data.index))
    if data.x.ndim == 2:
        return Task(net, torch.from_numpy(np.asarray(data.x, np.int64)), y, index, spec)
    return Task(net.to(memory_format=torch.channels_last), torch.from_numpy(normalised(data.x, spec)), y, index, spec)


def loss_of(task: Task, rows: Tensor) -> Tensor:
    x = task.x[rows]
    logits = task.net(x if x.ndim == 2 else as_images(x))
    return cross_entropy(logits.flatten(0, -2), task.y[rows].flatten())


def fedavg_round(task: Task, client_ids: list[int], generator: torch.Generator) -> None:
    """K steps of every client from the global model, then the mean of their models."""
    params = list(task.net.parameters())
    model = [p.detach().clone() for p in params]
    total = [torch.zeros_like(p) for p in model]
    for client in client_ids:
        with torch.no_grad():
            torch._foreach_copy_(params, model)
        for rows in batches(task.index[client], task.spec, generator):
            grads = torch.autograd.grad(loss_of(task, rows), params)
            with torch.no_grad():
                torch._foreach_add_(params, grads, alpha=-task.spec.rate)
        with torch.no_grad():
            torch._foreach_add_(total, params, alpha=1 / len(client_ids))
    with torch.no_grad():
        torch._foreach_copy_(params, total)


def make(spec: Spec, data: Data) -> Peer:
    torch.set_num_threads(spec.setting["threads"])
    task = make_task(spec, data)

    def predict(x: np.ndarray) -> np.ndarray:
        given = torch.from_numpy(np.asarray(x, np.int64) if x.ndim == 2 else normalised(x, spec))
        with torch.no_grad():
            return task.net(given if x.ndim == 2 else as_images(given)).argmax(-1).numpy()

    return Peer(runner(task, fedavg_round), predict, ["torch"])


if __name__ == "__main__":
    serve(make)
