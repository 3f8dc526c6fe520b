"""Which cases of a test are in the suite."""

import tomllib
from collections.abc import Collection, Iterable, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import pytest


def slow_but(kept: Collection[Any], cases: Iterable[Any]) -> list[Any]:
    """Cases for `parametrize`: those that are not kept are slow. Who uses it says what covers them in the suite."""
    return [
        pytest.param(*(case if isinstance(case, tuple) else (case,)), marks=() if case in kept else pytest.mark.slow)
        for case in cases
    ]


TESTS = Path(__file__).parents[1]
TABLE = TESTS / "slow.toml"


def mark_slow(items: Sequence[pytest.Item]) -> None:
    """Mark the tests that the table names, but for the cases that it keeps."""
    by_name: dict[tuple[str, str], list[pytest.Item]] = {}
    for item in items:
        by_name.setdefault((item.path.relative_to(TESTS).as_posix(), item.originalname), []).append(item)
    collected = {path for path, _ in by_name}
    for path, functions in tomllib.loads(TABLE.read_text()).items():
        for name, entry in functions.items() if path in collected else ():
            keep = entry.get("keep", [])
            for item in by_name.get((path, name), []):
                case = item.callspec.id if hasattr(item, "callspec") else ""
                if not any(fnmatchcase(case, pattern) for pattern in keep):
                    item.add_marker(pytest.mark.slow)
