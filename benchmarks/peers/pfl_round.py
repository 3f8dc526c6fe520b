"""pfl (Apple's pfl-research): its simulated backend with PyTorch, one process.

Its best setting: tensors in memory, a user's data set made of the K batches that it will visit, `foreach` SGD, no
evaluation, no metrics to the platform. Setting: `threads`.
"""

from collections.abc import Iterator

import numpy as np
import torch
from pfl.aggregate.simulate import SimulatedBackend
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.data.federated_dataset import FederatedDataset
from pfl.data.pytorch import PyTorchTensorDataset
from pfl.hyperparam import NNEvalHyperParams, NNTrainHyperParams
from pfl.metrics import Weighted
from pfl.model.pytorch import PyTorchModel
from torch.nn.functional import cross_entropy

from benchmarks.peers import torch_loop
from benchmarks.peers.protocol import Data, Peer, Spec, serve


class Net(torch.nn.Module):
    """The network as pfl wants it: with a loss, and metrics of its single evaluation before the first round."""

    def __init__(self, net: torch.nn.Module) -> None:
        super().__init__()
        self.net = net

    def loss(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return cross_entropy(self.net(torch_loop.as_images(x)), y)

    @torch.no_grad()
    def metrics(self, x: torch.Tensor, y: torch.Tensor) -> dict[str, Weighted]:
        return {"loss": Weighted.from_unweighted(self.loss(x, y).item())}


def make(spec: Spec, data: Data) -> Peer:
    torch.set_num_threads(spec.setting["threads"])
    task = torch_loop.make_task(spec, data)
    generator = torch.Generator().manual_seed(1)
    rng = np.random.default_rng(1)
    net = Net(task.net)
    model = PyTorchModel(
        net,
        local_optimizer_create=torch.optim.SGD,
        central_optimizer=torch.optim.SGD(net.parameters(), lr=1.0, foreach=True),
    )

    def user(client: int) -> PyTorchTensorDataset:
        rows = torch_loop.batches(task.index[client], spec, generator).flatten()
        return PyTorchTensorDataset((task.x[rows], task.y[rows]))

    def clients() -> Iterator[int]:
        while True:  # a cohort is a run of distinct clients
            yield from rng.permutation(len(data.index))[: spec.cohort]

    ids = clients()
    federation = FederatedDataset(user, lambda: next(ids))
    backend = SimulatedBackend(training_data=federation, val_data=federation)
    algorithm = FederatedAveraging()
    training = NNTrainHyperParams(local_num_epochs=1, local_learning_rate=spec.rate, local_batch_size=spec.batch)
    done = 0

    def run(count: int) -> None:
        nonlocal done
        done += count
        rounds = NNAlgorithmParams(
            central_num_iterations=done, evaluation_frequency=1 << 30, train_cohort_size=spec.cohort, val_cohort_size=0
        )
        evaluation = NNEvalHyperParams(local_batch_size=None)
        algorithm.run(rounds, backend, model, training, evaluation, [], send_metrics_to_platform=False)

    def predict(images: np.ndarray) -> np.ndarray:
        torch._foreach_copy_(task.model, [p.detach() for p in task.params])
        return torch_loop.predict(task, images)

    return Peer(run, predict, ["pfl", "torch"])


if __name__ == "__main__":
    serve(make)
