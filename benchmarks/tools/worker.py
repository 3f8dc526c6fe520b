"""The driver's side of a benchmark: contestants as processes that run rounds when told to (`peers.protocol`)."""

import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.peers.protocol import Data, Spec
from experiments.command.cli import RunError

ROOT = Path(__file__).parent.parent.parent
ENVIRONMENTS = ROOT / ".bench"
TRIALS = 10  # rounds of each setting of a peer, as far as the time allows
TRIAL_SECONDS = 20
PAUSE = 0.05  # between contestants: idle threads of the last one spin for a while
THREADS = [{"threads": n} for n in sorted({1, len(os.sched_getaffinity(0))})]


class Entrant(NamedTuple):
    """A library: where its worker is, what it needs, which algorithms it has, and the settings it may be best with."""

    module: str
    environment: str | None  # a folder of ENVIRONMENTS; None: this interpreter's
    package: str
    algorithms: tuple[str, ...] = ("fedavg",)
    settings: tuple[dict[str, Any], ...] = ({},)


OURS = Entrant("benchmarks.tools.ours", None, "jax", ())
PEERS = {
    "torch_loop": Entrant("benchmarks.peers.torch_loop", None, "torch", ("fedavg", "fedeba_plus"), tuple(THREADS)),
    "torch_vmap": Entrant("benchmarks.peers.torch_vmap", None, "torch", settings=tuple(THREADS)),
    "fedjax": Entrant("benchmarks.peers.fedjax_round", "fedjax", "fedjax"),
    "flower": Entrant("benchmarks.peers.flower_round", "flower", "flwr"),
    "pfl": Entrant("benchmarks.peers.pfl_round", "pfl", "pfl", settings=tuple(THREADS)),
}


def python_of(name: str) -> str:
    """The interpreter that a peer runs in; an error that says how to get it, if there is none."""
    entrant = PEERS[name]
    if entrant.environment is None:
        if importlib.util.find_spec(entrant.package) is None:
            raise ValueError(f'--peers={name} needs {entrant.package}; run: pip install -e ".[bench]"')
        return sys.executable
    python = ENVIRONMENTS / entrant.environment / "bin" / "python"
    if not python.exists():
        raise ValueError(f"--peers={name} needs its environment {python.parent.parent}; run: make bench-envs")
    return str(python)


class Worker:
    """A running contestant."""

    def __init__(self, entrant: Entrant, spec: Spec, python: str = sys.executable) -> None:
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115, closed in `close`
        self._process = subprocess.Popen(
            [python, "-m", entrant.module, json.dumps(spec._asdict())],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors, text=True, cwd=ROOT,
        )  # fmt: skip
        self._what = f"{entrant.module} {spec.model} {spec.algorithm}"
        self.facts = self._reply()

    def run(self, count: int) -> float:
        """Seconds of so many rounds."""
        return self._ask(f"run {count}")

    def accuracy(self) -> float:
        return self._ask("accuracy")

    def peak_memory(self) -> int:
        """Bytes: the largest resident sets of the process and those it started, added up (Linux)."""
        return sum(_peak(pid) for pid in _family(self._process.pid))

    def close(self) -> None:
        """Ask it to quit (the end of its input says so), and wait."""
        self._process.stdin.close()
        try:
            self._process.wait(60)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()
        self._errors.close()

    def _ask(self, command: str) -> Any:
        self._process.stdin.write(command + "\n")
        self._process.stdin.flush()
        return self._reply()

    def _reply(self) -> Any:
        line = self._process.stdout.readline()
        if not line:
            self._process.wait()
            self._errors.seek(0)
            tail = self._errors.read().strip().splitlines()[-1:]
            self.close()
            raise RunError(f"{self._what} ended: {' '.join(tail) or 'no message'}")
        return json.loads(line)


def best(name: str, spec: Spec) -> Worker:
    """A peer at work, with the setting of its `Entrant` whose fastest round in a trial is the fastest.

    Several turns: PyTorch with two threads is slow for a while at times.
    """
    entrant, python = PEERS[name], python_of(name)
    workers = [Worker(entrant, spec._replace(setting=setting), python) for setting in entrant.settings]
    chosen = workers[0]
    if len(workers) > 1:
        times: dict[Worker, list[float]] = {worker: [worker.run(1)] for worker in workers}  # warms up as well
        begun = time.perf_counter()
        while len(times[chosen]) <= TRIALS and time.perf_counter() - begun < TRIAL_SECONDS:
            for worker in workers:
                times[worker].append(worker.run(1))
                time.sleep(PAUSE)
        chosen = min(workers, key=lambda worker: min(times[worker]))
    for worker in workers:
        if worker is not chosen:
            worker.close()
    return chosen


def save(data: Data) -> tempfile.TemporaryDirectory:
    """The data in a folder that workers read; it goes when the value does."""
    folder = tempfile.TemporaryDirectory(prefix="bench_")
    data.save(folder.name)
    return folder


def _family(pid: int) -> list[int]:
    """A process and its descendants."""
    parents = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            parents[int(stat.parent.name)] = int(stat.read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue
    family = [pid]
    for member in family:
        family += [child for child, parent in parents.items() if parent == member]
    return family


def _peak(pid: int) -> int:
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0
    return sum(1024 * int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM"))
