"""PyTorch with `torch.func.vmap` over the clients of a round: their models are stacked, every step is one call.

Setting: `threads`.
"""

import torch
from torch.func import functional_call, grad, vmap
from torch.nn.functional import cross_entropy

from benchmarks.peers import torch_loop
from benchmarks.peers.protocol import Data, Peer, Spec, serve
from benchmarks.peers.torch_loop import Task, as_images, batches


def fedavg_round(task: Task, ids: list[int], generator: torch.Generator) -> None:
    names = [name for name, _ in task.net.named_parameters()]

    def loss(params: dict[str, torch.Tensor], x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return cross_entropy(functional_call(task.net, params, (as_images(x),)), y)

    gradients = vmap(grad(loss))
    rows = torch.stack([batches(task.index[i], task.spec, generator) for i in ids], 1)  # [K, n, B]
    params = {name: p.expand(len(ids), *p.shape).clone() for name, p in zip(names, task.model, strict=True)}
    for step in rows:
        grads = gradients(params, task.x[step], task.y[step])
        torch._foreach_add_(list(params.values()), [grads[name] for name in params], alpha=-task.spec.rate)
    torch._foreach_copy_(task.model, [params[name].mean(0) for name in names])


def make(spec: Spec, data: Data) -> Peer:
    return torch_loop.make(spec, data, fedavg_round)


if __name__ == "__main__":
    serve(make)
