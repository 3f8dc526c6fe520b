"""The images in the package: a broken file is an error that says so."""

import lzma

import pytest

from fedeba_jax.data import sources
from fedeba_jax.data.sources import embedded
from fedeba_jax.data.sources.raw import DataError


def test_a_broken_embedded_file_is_an_error(monkeypatch):
    monkeypatch.setattr(embedded, "read", lambda: lzma.decompress(b"not xz"))
    with pytest.raises(DataError, match=r"npz\.xz: broken.*source: embedded.*reinstall"):
        sources.load("fashion_mnist_mini")
