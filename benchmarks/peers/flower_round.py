"""Flower's simulation (Ray), with its own FedAvg strategy and PyTorch clients.

Its best setting: an actor a core with one thread each, images kept in each actor, the local training of the
PyTorch loop, no evaluation by clients. The simulation is started once; what is timed is `strategy.start`, so neither
Ray's start nor its end counts.
"""

import functools
import logging
import os

os.environ.setdefault("FLWR_TELEMETRY_ENABLED", "0")
os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")

import numpy as np
import torch
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation

from benchmarks.peers import protocol, torch_loop
from benchmarks.peers.protocol import Data, Peer, Spec


@functools.cache
def task_of(text: str) -> torch_loop.Task:
    """The images and the network, once a process."""
    torch.set_num_threads(1)
    spec = protocol.spec_of(text)
    return torch_loop.make_task(spec, Data.load(spec.data))


def names(task: torch_loop.Task) -> list[str]:
    return [name for name, _ in task.net.named_parameters()]


def receive(task: torch_loop.Task, arrays: ArrayRecord) -> None:
    received = arrays.to_torch_state_dict()
    torch._foreach_copy_(task.model, [received[name] for name in names(task)])


def make_client(text: str) -> ClientApp:
    app = ClientApp()

    @app.train()
    def train(message: Message, context: Context) -> Message:
        task = task_of(text)
        client = int(context.node_config["partition-id"])
        receive(task, message.content["arrays"])
        torch_loop.restart(task)
        torch_loop.train(task, client, torch.Generator().manual_seed(int(torch.randint(1 << 30, ()))))
        trained = {name: p.detach() for name, p in zip(names(task), task.params, strict=True)}
        metrics = MetricRecord({"num-examples": len(task.index[client])})
        return Message(content=RecordDict({"arrays": ArrayRecord(trained), "metrics": metrics}), reply_to=message)

    return app


def make_server(text: str) -> ServerApp:
    app = ServerApp()

    def make(grid: Grid, spec: Spec, data: Data) -> Peer:
        task = task_of(text)
        arrays = ArrayRecord(dict(zip(names(task), task.model, strict=True)))
        clients = len(data.index)
        strategy = FedAvg(
            fraction_train=spec.cohort / clients, fraction_evaluate=0.0, min_train_nodes=spec.cohort,
            min_available_nodes=clients,
        )  # fmt: skip

        def run(count: int) -> None:
            nonlocal arrays
            arrays = strategy.start(grid=grid, initial_arrays=arrays, num_rounds=count).arrays

        def predict(images: np.ndarray) -> np.ndarray:
            receive(task, arrays)
            return torch_loop.predict(task, images)

        return Peer(run, predict, ["flwr", "ray", "torch"])

    @app.main()
    def main(grid: Grid, context: Context) -> None:
        protocol.serve(functools.partial(make, grid))

    return app


def main(text: str) -> None:
    logging.getLogger("flwr").setLevel(logging.ERROR)
    run_simulation(
        server_app=make_server(text),
        client_app=make_client(text),
        num_supernodes=len(np.load(os.path.join(protocol.spec_of(text).data, "index.npy"))),
        backend_config={
            "client_resources": {"num_cpus": 1, "num_gpus": 0.0},
            "init_args": {"num_cpus": len(os.sched_getaffinity(0)), "include_dashboard": False},
        },
    )


if __name__ == "__main__":
    import sys

    from benchmarks.peers import flower_round  # actors find the functions by name there, not in __main__

    flower_round.main(sys.argv[1])
