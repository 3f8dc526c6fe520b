"""Which cases of a test are in the suite."""

from collections.abc import Collection, Iterable
from typing import Any

import pytest


def slow_but(kept: Collection[Any], cases: Iterable[Any]) -> list[Any]:
    """Cases for `parametrize`: those that are not kept are slow. Who uses it says what covers them in the suite."""
    return [
        pytest.param(*(case if isinstance(case, tuple) else (case,)), marks=() if case in kept else pytest.mark.slow)
        for case in cases
    ]
