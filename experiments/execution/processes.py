"""Several processes as one, on one host or on many: JAX's own runtime (`jax.distributed`).

Each runs the same binary with the same flags, and so the same programs in the same order. The first one alone has the
folder: it writes, prints and saves checkpoints, and what follows from the folder it tells the others.
"""

import atexit
import contextlib
import hashlib
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np
from jax.experimental import multihost_utils

from fedeba_jax import checkpoint
from fedeba_jax.client_map import replicated

PATIENCE = 15  # seconds without a sign of life after which a process counts as dead: a busy machine takes its time
START = 120  # seconds in which all must have come
BROKEN = ("Gloo", "NCCL", "UNAVAILABLE", "DEADLINE_EXCEEDED", "coordination service")  # how XLA tells of a lost process
GONE = (multihost_utils.ProcessFailureError, jax.errors.JaxRuntimeError)

_guardian: subprocess.Popen[bytes] | None = None
_ending = threading.Event()  # what the processes did together is done, or this one is told to end


def join(address: str | None = None, number: int | None = None, count: int | None = None, *, chatty: bool) -> None:
    """Become one of several processes, before JAX starts; without arguments JAX asks the cluster's scheduler.

    Args:
      address: of the first process, HOST:PORT.
      number: of this process.
      count: of processes.
      chatty: whether to show what the libraries below write of themselves.
    """
    jax.config.update("jax_enable_recoverability", True)  # a dead process is ours to tell, in a line
    jax.config.update("jax_enable_preemption_service", False)  # so is SIGTERM
    if not chatty:
        _keep_stderr()
    try:
        with quiet(1):
            jax.distributed.initialize(
                address, count, number, initialization_timeout=START, heartbeat_timeout_seconds=PATIENCE
            )
            multihost_utils.sync_global_devices("all are here")
    except (RuntimeError, ValueError, TypeError) as error:
        where = f"--coordinator_address={address}" if address else "--distributed"
        reason = str(error).strip().splitlines()[0]
        remedy = "start all processes, within two minutes, with the same address and their own --process_id"
        raise ValueError(f"{where}: the processes did not come together ({reason}); {remedy}") from None
    if not is_first():
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    if jax.process_count() > 1:
        _guard()
        atexit.register(leave)
        atexit.register(_ending.set)  # before JAX leaves the others
        threading.Thread(target=_watch, daemon=True).start()


def is_first() -> bool:
    """Whether this process has the folder."""
    return jax.process_index() == 0


def finish() -> None:
    """What the processes do together is done: the first goes on alone, when the others have ended.

    XLA aborts a process that outlives the first one; and those that leave in order did not die.
    """
    if jax.process_count() == 1:
        return
    multihost_utils.sync_global_devices("all are done")
    _ending.set()
    if not is_first():
        sys.exit()
    alone = False
    while not alone:  # a call waits for each of the others to ask as well, or to be gone
        with contextlib.suppress(*GONE), multihost_utils.live_devices(jax.devices()) as live:
            alone = len(live) == jax.local_device_count()


def leave() -> None:
    """This process ends by itself, and says why; nobody is to speak for it."""
    if _guardian and _guardian.stdin and _guardian.poll() is None:
        _guardian.communicate(b"\n")


def _guard() -> None:
    """Start a helper that prints a line if this process dies silently: XLA aborts it when the first process is gone."""
    global _guardian
    line = f"error: a process died (told by process {jax.process_index()}); the same command resumes"
    _guardian = subprocess.Popen(
        ["sh", "-c", 'read word || echo "$0" >&2', line], stdin=subprocess.PIPE, stderr=sys.stderr, process_group=0
    )


def _keep_stderr() -> None:
    """What Python says is seen; what libraries write to the same place, stack traces among it, is not."""
    sys.stderr = os.fdopen(os.dup(2), "w", buffering=1)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)


@contextlib.contextmanager
def quiet(descriptor: int) -> Iterator[None]:
    """What is written to this descriptor, by whatever library, goes nowhere."""
    sys.stdout.flush()
    kept, nowhere = os.dup(descriptor), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, descriptor)
    try:
        yield
    finally:
        os.dup2(kept, descriptor)
        os.close(kept)
        os.close(nowhere)


@contextlib.contextmanager
def sharing_fate() -> Iterator[None]:
    """Where programs run that need all processes: if one is gone, the others end."""
    try:
        yield
    except jax.errors.JaxRuntimeError as error:
        if jax.process_count() > 1 and any(word in str(error) for word in BROKEN):
            time.sleep(0.5)  # a signal that all of them got says more
            os._exit(1)
        raise


def _watch() -> None:
    """End this process when another one has died: its part of every round is gone."""
    while not _ending.wait(1):
        try:
            with multihost_utils.live_devices(jax.devices()) as live:
                lost = len(live) < jax.device_count()
        except GONE:
            lost = True
        if lost and not _ending.is_set():
            os._exit(1)


def check_same(**parts: str) -> None:
    """An error on every process if they were not started alike.

    Args:
      parts: texts that must be equal everywhere, by what they are.
    """
    if jax.process_count() == 1:
        return
    digests = [np.frombuffer(hashlib.sha256(text.encode()).digest(), np.uint8) for text in parts.values()]
    of_all = np.asarray(multihost_utils.process_allgather(np.stack(digests)))
    for process, part in np.argwhere((of_all != of_all[:1]).any(-1)):
        what = list(parts)[part]
        raise ValueError(
            f"process {process} has other {what} than process 0; start all with the same command, data and version"
        )


def least(number: int) -> int:
    """The smallest of what the processes know, so that they decide alike."""
    if jax.process_count() == 1:
        return number
    return int(np.min(multihost_utils.process_allgather(np.array([number >> 20], np.int32)))) << 20  # int32: mebibytes


def whole(array: Any) -> np.ndarray:
    """An array on the host of every process, also where the processes have parts of it.

    One device's part after the other goes to all: no device has to hold the whole.
    """
    if not isinstance(array, jax.Array) or array.is_fully_addressable or array.is_fully_replicated:
        return np.asarray(array)
    where: Any = array.sharding
    axis = next(i for i, name in enumerate(where.spec) if name is not None)
    rows = where.shard_shape(array.shape)[axis]
    to_all = jax.jit(
        lambda array, first: jax.lax.dynamic_slice_in_dim(array, first, rows, axis),
        out_shardings=replicated(where.mesh),
    )
    parts = [np.asarray(to_all(array, np.int32(first))) for first in range(0, array.shape[axis], rows)]
    return np.concatenate(parts, axis)


def agreed(make: Callable[[], Any]) -> Any:
    """What the first process makes, as JSON, on every process; its error is everybody's."""
    return told(lambda: (make(), []))[0]


def told(make: Callable[[], tuple[Any, list[np.ndarray]]]) -> tuple[Any, list[np.ndarray]]:
    """What the first process makes (JSON and arrays), on every process; its error is everybody's."""
    if jax.process_count() == 1:
        return make()
    content, problem = b"", None
    if is_first():
        try:
            said, leaves = make()
            content = checkpoint.packed({"said": said}, leaves)
        except (ValueError, OSError) as error:
            content, problem = checkpoint.packed({"error": str(error)}), error
    journal, leaves = checkpoint.unpacked(_from_first(content))
    if "error" in journal:
        raise problem or ValueError(journal["error"])
    return journal["said"], leaves


def _from_first(content: bytes) -> bytes:
    """The bytes of the first process."""
    size = np.array([len(content) >> 24, len(content) & 0xFFFFFF], np.int32)
    high, low = np.asarray(multihost_utils.broadcast_one_to_all(size))
    data = np.zeros((int(high) << 24) + int(low), np.uint8)
    if is_first():
        data[:] = np.frombuffer(content, np.uint8)
    return np.asarray(multihost_utils.broadcast_one_to_all(data)).tobytes()
