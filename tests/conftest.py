"""Two host devices, so that every run of the suite shards; compiled programs are kept between runs.

Arrays of different rank do not meet by accident: who wants [n] beside [m, n] says so by [None].

The suite is bound by compilation, not by arithmetic, so here LLVM optimises little, and fusions are emitted the
old way, in one piece, which compiles in half the time. Set XLA_FLAGS (to "", for instance) to test what users run.
Python looks for garbage seldom: what JAX traced is long-lived, and looking through it took a seventh of the time.
"""

import gc
import os
import tempfile

os.environ.setdefault(
    "XLA_FLAGS",
    "--xla_backend_optimization_level=0 --xla_cpu_use_fusion_emitters=false --xla_cpu_parallel_codegen_split_count=1",
)

import jax
import numpy as np
import pytest

from fedeba_jax.data import sources
from fedeba_jax.data.sources import fetching
from fedeba_jax.data.sources.raw import Package
from tests.support import marks
from tests.support.tiny_set import spec_of

gc.set_threshold(200_000, 20, 100)
jax.config.update("jax_num_cpu_devices", 2)
jax.config.update("jax_compilation_cache_dir", os.path.join(tempfile.gettempdir(), f"fedeba_jax_tests_{os.getuid()}"))
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.3)
jax.config.update("jax_numpy_rank_promotion", "raise")


@pytest.fixture
def x64():
    """Equality across maps, sweeps and twins is a float64 statement."""
    with jax.enable_x64(True):
        yield


@pytest.fixture
def arrays():
    """Nine images and their labels; `tests.support.tiny_set` writes them as files."""
    rng = np.random.default_rng(0)
    return {
        "x_train": rng.integers(0, 256, (6, 4, 5, 1), np.uint8),
        "y_train": np.array([2, 0, 1, 1, 0, 2], np.uint8),
        "x_test": rng.integers(0, 256, (3, 4, 5, 1), np.uint8),
        "y_test": np.array([1, 0, 2], np.uint8),
    }


@pytest.fixture
def data_dir(arrays, tmp_path, monkeypatch):
    """Where data set `tiny` is looked for; it has an apt package and a system folder, clients are not to be called."""
    package = Package("apt", "dataset-tiny", "usr/tiny")
    spec = spec_of(arrays, system=tmp_path / "system", package=package)
    monkeypatch.setitem(sources.DATASETS, "tiny", spec)
    monkeypatch.setattr(fetching, "run", lambda *_: pytest.fail("a client was called"))
    monkeypatch.delenv("FEDEBA_DATA", raising=False)
    return tmp_path / "data"


BY_ALGORITHM = ("tests.fedeba_jax.algorithms.test_laws", "tests.fedeba_jax.algorithms.test_twins")
SHARING = (  # modules whose tests share runs or programs; others say so by a mark of their own
    "tests.fedeba_jax.algorithms.test_min_norm",
    "tests.fedeba_jax.algorithms.test_personal_methods",
    "tests.fedeba_jax.test_private_runs",
    "tests.fedeba_jax.test_privacy_twins",
    "tests.fedeba_jax.test_rounds",
    "tests.fedeba_jax.test_sampling",
    "tests.fedeba_jax.test_server_runs",
)


@pytest.hookimpl(tryfirst=True)  # before pytest leaves out what is slow
def pytest_collection_modifyitems(items):
    """Mark what is slow (tests/slow.toml); tests that share programs go to one worker, by algorithm or by file."""
    marks.mark_slow(items)
    for item in items:
        module = item.module.__name__
        if module in BY_ALGORITHM and hasattr(item, "callspec"):
            item.add_marker(pytest.mark.xdist_group(item.callspec.params["name"]))
        elif module in SHARING and not item.get_closest_marker("xdist_group"):
            item.add_marker(pytest.mark.xdist_group(module))


MOST_MAPS = 60_000  # of the 65,530 memory maps that Linux grants a process
MAPS_OF_A_PROGRAM = 1_000  # at most; one operation has 3, a round 100 to 400
to_compile = 0  # programs, until the maps are counted again: listing them takes longer than many a test


def _count_down(event, _, **context):
    global to_compile
    to_compile -= event == "/jax/core/compile/backend_compile_duration"


jax.monitoring.register_event_duration_secs_listener(_count_down)


def pytest_runtest_teardown():
    """A worker that kept all programs of the suite would run out of memory maps and die inside XLA."""
    global to_compile
    if to_compile > 0:
        return
    try:
        with open("/proc/self/maps") as maps:
            found = sum(1 for _ in maps)
    except OSError:  # not Linux
        return
    to_compile = (MOST_MAPS - found) // MAPS_OF_A_PROGRAM
    if to_compile <= 0:
        jax.clear_caches()
