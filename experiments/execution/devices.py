"""Devices, the compilation cache, and the memory that is free.

On a CPU each core becomes a device, so that clients (or runs) can be sharded over cores.
"""

import os
import re
from pathlib import Path

import jax

from experiments.execution import processes


def set_up(*, host_devices: int = 0, cache: str | None = None) -> None:
    """Before JAX starts: one host device per core (or as many as given), and compiled programs kept on disk."""
    if host_devices < 0:
        raise ValueError(f"--host_devices={host_devices} is not valid; give 0 for one per core, or a positive number")
    jax.config.update("jax_num_cpu_devices", host_devices or len(os.sched_getaffinity(0)))
    cache = default_cache() if cache is None else cache
    if cache:
        jax.config.update("jax_compilation_cache_dir", cache)
        if "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS" not in os.environ:
            jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.5)


def default_cache() -> str:
    root = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return os.path.join(root, "fedeba_jax", "xla")


def free_memory() -> int:
    """Bytes that arrays may still take on a device, or on the machine where the devices are its cores.

    With several processes, the smallest of their numbers.
    """
    return processes.least(_free_memory())


def _free_memory() -> int:
    if stats := jax.local_devices()[0].memory_stats():
        return stats["bytes_limit"] - stats.get("bytes_in_use", 0)
    known = [os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")]
    for path, pattern, unit in _MEMORY:
        if path.exists() and (match := re.search(pattern, path.read_text())):
            known.append(int(match[1]) * unit)
    return min(known)


def mapped() -> float:
    """The share of the memory mappings that the system allows this process which it has; 0 where that is not known.

    Compiled code takes hundreds for each program. Linux refuses more than vm.max_map_count, and XLA then crashes.
    """
    held, most = Path("/proc/self/maps"), Path("/proc/sys/vm/max_map_count")
    if not (held.exists() and most.exists()):
        return 0.0
    return held.read_bytes().count(b"\n") / int(most.read_text())


_MEMORY = (  # what is available, and what a container may have at most
    (Path("/proc/meminfo"), r"MemAvailable:\s+(\d+) kB", 1024),
    (Path("/sys/fs/cgroup/memory.max"), r"^(\d+)", 1),
    (Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"), r"^(\d+)", 1),
)
