"""Folders of results with anything wrong in them are reported, or refused in one line. The draws are fixed."""

import copy
import json
import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import strategies as st

from experiments.execution import folder, recovery
from experiments.reporting.page import report
from tests.support.folders import both, sweep_folder, write_rows
from tests.support.fuzzing import changed, changes, fuzz, refused

FEW, MANY = 30, 1000  # examples of each property
FILES = (folder.MARK, folder.RESULTS, folder.TIMINGS)
ODD = (
    None,
    True,
    -1,
    0,
    1,
    3,
    10**30,
    1.5,
    -1e300,
    "",
    "x",
    "\x1b[2J",
    "\\input{a}",
    "<b>",
    [],
    [1],
    [None],
    {},
    {"a": []},
)


@pytest.fixture(scope="module")
def origin(tmp_path_factory):
    """Two settings with two seeds."""
    made = tmp_path_factory.mktemp("origin") / "sweep"
    points = [("fedeba", {"tau": tau}, seed, both(50 + seed, 40), 9.0) for tau in (0.1, 1.0) for seed in (0, 1)]
    sweep_folder(made, points)
    write_rows(made / folder.TIMINGS, [{"runs": ["0", "1"], "rounds": 4, "seconds": 2.0, "compiled": False}])
    return made


def looked_at(origin, damage):
    """Report on a damaged copy of a folder, and put it in order as the runner does."""
    with tempfile.TemporaryDirectory() as place:
        copied = Path(place) / "sweep"
        shutil.copytree(origin, copied)
        damage(copied)
        refused(report, [copied], Path(place) / "report", plot=False)
        refused(recovery.recover, copied, lambda line: None)


def damaged_bytes(origin, name, at):
    looked_at(origin, lambda made: (made / name).write_bytes(changed((made / name).read_bytes(), at)))


def odd_values(origin, name, steps, value):
    """A value somewhere in a file is another, with right checksums: somebody wrote it so."""

    def damage(made):
        if name == folder.MARK:
            content = json.loads((made / name).read_text())
            content.pop("crc")
            replaced = replace(content, steps, value)
            folder.write_mark(made, replaced if isinstance(replaced, dict) else {})
        else:
            rows = replace(folder.read_rows(made / name), [*steps[:1], *steps], value)
            write_rows(made / name, [row for row in rows if isinstance(row, dict)])

    looked_at(origin, damage)


def replace(content, steps, value):
    """Content with another value at a place; a value of "gone" removes what is there."""
    content = copy.deepcopy(content)
    inner = content
    for number, step in enumerate(steps):
        if not isinstance(inner, dict | list) or not inner:
            break
        keys = list(inner) if isinstance(inner, dict) else range(len(inner))
        key = keys[step % len(keys)]
        if number == len(steps) - 1 or not isinstance(inner[key], dict | list) or not inner[key]:
            if value == "gone":
                del inner[key]
            else:
                inner[key] = value
            break
        inner = inner[key]
    return content


PROPERTIES = {
    damaged_bytes: st.tuples(st.sampled_from(FILES), changes),
    odd_values: st.tuples(
        st.sampled_from(FILES), st.lists(st.integers(0, 40), min_size=1, max_size=4), st.sampled_from((*ODD, "gone"))
    ),
}


@pytest.mark.parametrize("check", PROPERTIES, ids=lambda check: check.__name__)
def test_a_folder_is_reported_or_refused_in_one_line(origin, check):
    fuzz(lambda *drawn: check(origin, *drawn), PROPERTIES[check], FEW)


@pytest.mark.slow
@pytest.mark.parametrize("check", PROPERTIES, ids=lambda check: check.__name__)
def test_many_folders_are_reported_or_refused_in_one_line(origin, check):
    fuzz(lambda *drawn: check(origin, *drawn), PROPERTIES[check], MANY)
