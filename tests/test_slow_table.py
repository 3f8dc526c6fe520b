"""The table of slow tests names what there is, and keeps a case of what it does not leave out whole."""

import tomllib
from fnmatch import fnmatchcase

import pytest

from tests.support.marks import TABLE, TESTS

ENTRIES = [
    (path, name, entry)
    for path, functions in tomllib.loads(TABLE.read_text()).items()
    for name, entry in functions.items()
]


def test_every_entry_is_a_test_and_says_what_shows_the_same():
    for path, name, entry in ENTRIES:
        assert f"def {name}(" in (TESTS / path).read_text(), (path, name)
        assert set(entry) <= {"keep", "shown_by"}
        assert entry["shown_by"]


def test_every_pattern_keeps_a_case(request):
    """Of the files that were collected: all of them in a whole run."""
    if len(request.session.items) < 1000:
        pytest.skip("needs a run of the whole suite")
    cases = {}
    for item in request.session.items:
        if hasattr(item, "callspec"):
            key = (item.path.relative_to(TESTS).as_posix(), item.originalname)
            cases.setdefault(key, []).append(item.callspec.id)
    for path, name, entry in ENTRIES:
        for pattern in entry.get("keep", []):
            assert any(fnmatchcase(case, pattern) for case in cases.get((path, name), [])), (path, name, pattern)
