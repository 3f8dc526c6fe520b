"""The worker's side of a benchmark: one line in, one line of JSON out.

    python -m benchmarks.peers.torch_loop '{"model": "mlp", "data": "FOLDER", ...}'

    (start)      {"setting": ..., "versions": ..., ...}    once everything is compiled or warm
    run COUNT    seconds of that many rounds
    accuracy     percent of FOLDER's test images that the global model classifies
    (end)        the worker ends

What the library prints goes to stderr. Only the standard library and NumPy are imported here.
"""

import importlib.metadata
import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np


class Spec(NamedTuple):
    """The work, and how a peer shall do it."""

    model: str  # mlp or cnn
    algorithm: str
    cohort: int  # clients of a round
    steps: int  # K
    batch: int  # B
    rate: float
    mean: Sequence[float]  # of pixels in [0, 1], by channel
    std: Sequence[float]
    data: str  # folder of `Data`
    setting: dict[str, Any]  # the peer's own: threads, backend ...


class Data(NamedTuple):
    """Images uint8 [N, H, W, C] and labels [N], each client's rows [M, C], and held-out images; files NAME.npy."""

    x: np.ndarray
    y: np.ndarray
    index: np.ndarray
    x_test: np.ndarray
    y_test: np.ndarray

    def save(self, folder: str) -> None:
        for name, array in self._asdict().items():
            np.save(Path(folder) / f"{name}.npy", array)

    @classmethod
    def load(cls, folder: str) -> "Data":
        return cls(*(np.load(Path(folder) / f"{name}.npy") for name in cls._fields))


class Peer(NamedTuple):
    """What a library can do for us."""

    run: Callable[[int], Any]  # so many rounds, to the end
    predict: Callable[[np.ndarray], np.ndarray]  # uint8 images -> classes, with the global model
    packages: Sequence[str]  # whose versions are recorded
    facts: dict[str, Any] = {}  # noqa: RUF012, never changed


def normalised(x: np.ndarray, spec: Spec) -> np.ndarray:
    """Bytes as the networks take them: floats, centred and scaled by channel."""
    return (x.astype(np.float32) / 255 - np.asarray(spec.mean, np.float32)) / np.asarray(spec.std, np.float32)


def spec_of(text: str) -> Spec:
    return Spec(**json.loads(text))


def serve(make: Callable[[Spec, Data], Peer]) -> None:
    """Make the peer of the first command-line argument, then answer until the end of the input."""
    replies = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # whatever else is printed must not disturb the replies
    spec = spec_of(sys.argv[1])
    data = Data.load(spec.data)
    peer = make(spec, data)
    versions = {name: importlib.metadata.version(name) for name in peer.packages}
    print(json.dumps({"setting": spec.setting, "versions": versions, **peer.facts}), file=replies)
    for line in iter(sys.stdin.readline, ""):
        command, *arguments = line.split()
        if command == "run":
            begun = time.perf_counter()
            peer.run(int(arguments[0]))
            print(json.dumps(time.perf_counter() - begun), file=replies)
        elif command == "accuracy":
            right = peer.predict(data.x_test) == data.y_test
            print(json.dumps(100 * float(right.mean())), file=replies)
        else:
            raise ValueError(f"unknown command {command!r}")
