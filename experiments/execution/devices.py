"""Devices, the compilation cache, and client and run maps by name.

On a CPU each core becomes a device, so that clients (or runs) can be sharded over cores.
"""

import os
import re
from pathlib import Path

import jax

from fedeba_jax import client_map as maps
from fedeba_jax.types import ClientMap

MAPS = "auto, vmap, map, chunked(N), sharded or sharded(vmap)"


def set_up(*, host_devices: int = 0, cache: str | None = None) -> None:
    """Before JAX starts: one host device per core (or as many as given), and compiled programs kept on disk."""
    if host_devices < 0:
        raise ValueError(f"--host_devices={host_devices} is not valid; give 0 for one per core, or a positive number")
    jax.config.update("jax_num_cpu_devices", host_devices or len(os.sched_getaffinity(0)))
    cache = default_cache() if cache is None else cache
    if cache:
        jax.config.update("jax_compilation_cache_dir", cache)
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.5)


def default_cache() -> str:
    root = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return os.path.join(root, "fedeba_jax", "xla")


def free_memory() -> int:
    """Bytes that arrays may still take on a device, or on the machine where the devices are its cores."""
    if stats := jax.devices()[0].memory_stats():
        return stats["bytes_limit"] - stats.get("bytes_in_use", 0)
    known = [os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")]
    for path, pattern, unit in _MEMORY:
        if path.exists() and (match := re.search(pattern, path.read_text())):
            known.append(int(match[1]) * unit)
    return min(known)


_MEMORY = (  # what is available, and what a container may have at most
    (Path("/proc/meminfo"), r"MemAvailable:\s+(\d+) kB", 1024),
    (Path("/sys/fs/cgroup/memory.max"), r"^(\d+)", 1),
    (Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"), r"^(\d+)", 1),
)


def by_name(name: str, flag: str) -> ClientMap:
    """A map from its name; `flag` is for the error message."""
    if name == "vmap":
        return jax.vmap
    if name == "map":
        return maps.mapped
    if match := re.fullmatch(r"chunked\(([1-9]\d*)\)", name):
        return maps.chunked(int(match[1]))
    if name == "sharded":
        return maps.sharded(maps.device_mesh())
    if name == "sharded(vmap)":
        return maps.sharded(maps.device_mesh(), jax.vmap)
    raise ValueError(f"--{flag}={name} is not valid; give {MAPS}")


def choose(client_map: str, run_map: str, runs: int) -> tuple[str, str]:
    """Names of the client and run maps for so many runs, `auto` resolved.

    Only one axis can be sharded. Accelerators take vmap for both. On a CPU whole runs are sharded over
    the cores if they fill them (no waiting at every exchange); otherwise each run's clients are.
    """
    if client_map.startswith("sharded") and run_map.startswith("sharded"):
        raise ValueError(f"--client_map={client_map} and --run_map={run_map}: shard one of the two axes only")
    accelerator = jax.default_backend() != "cpu"
    devices = jax.device_count()
    if run_map == "auto":
        fill = runs % devices == 0 and devices > 1 and not client_map.startswith("sharded")
        run_map = "vmap" if accelerator else "sharded" if fill else "map"
    if client_map == "auto":
        shard = devices > 1 and not run_map.startswith("sharded")
        client_map = "vmap" if accelerator else "sharded" if shard else "map"
    return client_map, run_map
