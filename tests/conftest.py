"""Two host devices, so that every suite run shards; compiled programs are kept between runs."""

import os
import tempfile

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
