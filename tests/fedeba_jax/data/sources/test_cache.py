"""The cache of decoded arrays: what it gives again, and that a broken or half-written one is never used."""

import os

import numpy as np
import pytest

from fedeba_jax.data import sources
from fedeba_jax.data.sources.raw import ARRAYS, DataError
from tests.support.tiny_set import IDX, break_file, same, write_idx


def test_the_second_load_is_memory_mapped_and_keeps_the_source(data_dir, arrays):
    write_idx(data_dir / "tiny", arrays)
    first = sources.load("tiny", data_dir)
    for name in IDX:
        (data_dir / "tiny" / name).unlink()
    lines = []
    second = sources.load("tiny", data_dir, log=lines.append)
    assert lines == ["tiny: read from the cache of raw files"]
    assert isinstance(second.x_train, np.memmap)
    assert same(first, second)
    assert second.source == first.source
    assert second.md5 == first.md5


@pytest.mark.parametrize("how", ["flip", "truncate", "magic", "empty"])
@pytest.mark.parametrize("array", ARRAYS)
def test_a_broken_cache_is_found(data_dir, arrays, array, how):
    write_idx(data_dir / "tiny", arrays)
    sources.load("tiny", data_dir)
    break_file(data_dir / "tiny" / "cache" / f"{array}.npy", how)
    with pytest.raises(DataError, match=rf"{array}\.npy: .*source: cache\); delete .*cache and try"):
        sources.load("tiny", data_dir)


@pytest.mark.parametrize("text", ["", "[]", "{}", "3"])
def test_a_broken_cache_record_is_found(data_dir, arrays, text):
    write_idx(data_dir / "tiny", arrays)
    sources.load("tiny", data_dir)
    (data_dir / "tiny" / "cache" / "source.json").write_text(text)
    with pytest.raises(DataError, match=r"source\.json: broken"):
        sources.load("tiny", data_dir)


def test_a_cache_of_an_earlier_version_is_read(data_dir, arrays):
    write_idx(data_dir / "tiny", arrays)
    first = sources.load("tiny", data_dir)
    (data_dir / "tiny" / "cache" / "source.json").write_text('{"source": "raw files"}')  # it recorded no md5
    assert same(first, sources.load("tiny", data_dir))


def test_an_interrupted_cache_is_not_used_and_leaves_no_scraps(data_dir, arrays, monkeypatch):
    write_idx(data_dir / "tiny", arrays)
    replace, seen = os.replace, []

    def fail_at_third(old, new):
        seen.append(new)
        if len(seen) == 3:
            raise OSError("disk full")
        replace(old, new)

    monkeypatch.setattr(os, "replace", fail_at_third)
    lines = []
    got = sources.load("tiny", data_dir, log=lines.append)
    assert lines[-1] == "not cached: disk full"
    assert sorted(file.name for file in (data_dir / "tiny" / "cache").iterdir()) == ["x_train.npy", "y_train.npy"]
    assert same(got, sources.load("tiny", data_dir))  # decoded again: no source.json, no cache
    assert (data_dir / "tiny" / "cache" / "source.json").exists()
