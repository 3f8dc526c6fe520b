"""The aggregators and attacks of the package byzfl, if it is installed."""

import importlib.util
import sys
import types

import pytest


def load(module):
    """byzfl.aggregators or byzfl.attacks, without the rest of byzfl, which imports torchvision and seaborn."""
    pytest.importorskip("torch", reason="byzfl needs torch (extra: bench)")
    if "byzfl" not in sys.modules:
        found = importlib.util.find_spec("byzfl")
        if found is None:
            pytest.skip("byzfl is not installed (extra: bench)")
        package = types.ModuleType("byzfl")
        package.__path__ = list(found.submodule_search_locations)
        sys.modules["byzfl"] = package
    return importlib.import_module(f"byzfl.{module}")
