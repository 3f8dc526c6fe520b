"""Two host devices, so that every run of the suite shards; compiled programs are kept between runs.

The suite is bound by compilation, not by arithmetic, so LLVM optimises little here. Set XLA_FLAGS
(to "", for instance) to test what users run.
"""

import os
import tempfile

os.environ.setdefault("XLA_FLAGS", "--xla_backend_optimization_level=0")

import jax
import pytest

jax.config.update("jax_num_cpu_devices", 2)
jax.config.update("jax_compilation_cache_dir", os.path.join(tempfile.gettempdir(), f"fedeba_jax_tests_{os.getuid()}"))
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.3)


@pytest.fixture
def x64():
    """Equality across maps, sweeps and twins is a float64 statement."""
    with jax.enable_x64(True):
        yield


# Modules whose tests share runs or programs.
SHARING = ("test_experiments", "test_sweep", "test_simulate", "test_noise", "test_both_ways", "test_personal_methods")


def pytest_collection_modifyitems(items):
    """Tests that share compiled programs go to one worker (`--dist=loadgroup`): laws by algorithm, others by file."""
    for item in items:
        module = item.module.__name__.rpartition(".")[2]
        if module == "test_algorithm_laws":
            item.add_marker(pytest.mark.xdist_group(item.callspec.params["name"]))
        elif module in SHARING:
            item.add_marker(pytest.mark.xdist_group(module))


MOST_MAPS = 30_000  # of the 65,530 memory maps that Linux grants a process; every compiled program holds some


def pytest_runtest_teardown():
    """A worker that kept all programs of the suite would run out of memory maps and die inside XLA."""
    try:
        with open("/proc/self/maps") as maps:
            crowded = sum(1 for _ in maps) > MOST_MAPS
    except OSError:  # not Linux
        return
    if crowded:
        jax.clear_caches()
