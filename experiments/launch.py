"""Several processes of one binary on this host, as one run: for tests, and for hosts with several accelerators.

    python -m experiments.launch --processes=2 -- train --task=fashion_mnist_mini_mlp --algorithm=fedavg

What follows the two dashes is a binary and its flags. Each process gets its share of the devices, unless --host_devices
says otherwise. They are not bound to cores: with fewer of them XLA computes other last bits. On a cluster the scheduler
starts the processes instead, with --distributed (docs/scaling.md).
"""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence

from absl import flags

from experiments.command import cli

FLAGS = flags.FLAGS
flags.DEFINE_integer("processes", 2, "How many.", lower_bound=1, upper_bound=256)
BINARIES = ("train", "sweep")
GRACE = 20  # seconds that the others have to tell what happened, when one has died


def main(arguments: Sequence[str]) -> int:
    binary, *given = arguments or [""]
    if binary not in BINARIES:
        raise ValueError(f"{binary!r} cannot be launched; write -- and then {' or '.join(BINARIES)} with its flags")
    count, address = FLAGS.processes, f"127.0.0.1:{_free_port()}"
    if not any(flag.startswith("--host_devices") for flag in given):
        given.append(f"--host_devices={max(1, len(os.sched_getaffinity(0)) // count)}")
    together = ["--distributed", f"--coordinator_address={address}", f"--num_processes={count}"]
    command = [sys.executable, "-m", f"experiments.{binary}", *given, *together]
    started = [subprocess.Popen([*command, f"--process_id={number}"]) for number in range(count)]

    def pass_on(number: int, _: object) -> None:
        for process in started:
            process.send_signal(number)

    for sent in (signal.SIGTERM, signal.SIGINT):
        signal.signal(sent, pass_on)
    return next((max(code, 1) for code in _wait(started) if code), 0)


def _wait(started: Sequence[subprocess.Popen[bytes]]) -> list[int]:
    """The exit codes, first that of the first process to fail; a failure ends the others, too."""
    failed: list[subprocess.Popen[bytes]] = []
    deadline = float("inf")
    while any(process.poll() is None for process in started):
        failed += [process for process in started if process.poll() and process not in failed]
        if failed and deadline == float("inf"):
            deadline = time.monotonic() + GRACE
        if time.monotonic() > deadline:
            for process in started:
                process.kill()
        time.sleep(0.05)
    return [process.returncode for process in (*failed, *started)]


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


if __name__ == "__main__":
    cli.run(main, positional=True)
