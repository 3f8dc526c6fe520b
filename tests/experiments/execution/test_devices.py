"""Memory and the folder of compiled programs."""

from pathlib import Path

import pytest

from experiments.execution import devices


def test_memory_is_known():
    assert 2**20 < devices.free_memory() < 2**50


def test_the_smallest_of_what_the_system_says_counts(tmp_path, monkeypatch):
    limit = tmp_path / "memory.max"
    monkeypatch.setattr(devices, "_MEMORY", ((limit, r"^(\d+)", 1), (tmp_path / "none", r"(\d+)", 1)))
    whole = devices.free_memory()  # no limit is set
    limit.write_text("max\n")
    assert devices.free_memory() == whole
    limit.write_text("4096\n")
    assert devices.free_memory() == 4096


def test_mappings_are_counted_where_the_system_tells_them():
    assert 0 <= devices.mapped() < 1
    assert (devices.mapped() > 0) == Path("/proc/self/maps").exists()


def test_compiled_programs_are_kept_in_the_users_cache(monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", "/elsewhere")
    assert devices.default_cache() == "/elsewhere/fedeba_jax/xla"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", "/house")
    assert devices.default_cache() == "/house/.cache/fedeba_jax/xla"


def test_a_negative_number_of_devices_is_told():
    with pytest.raises(ValueError, match="--host_devices=-1 is not valid; give 0 for one per core"):
        devices.set_up(host_devices=-1)
