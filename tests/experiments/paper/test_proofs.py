"""Figures of the theory as a file, as statements and as tables."""

import json

import numpy as np
import pytest

from experiments.claims import fairness, toy
from experiments.claims.convergence import Course
from experiments.claims.fairness import Map
from experiments.claims.statements import Statement
from experiments.claims.temperature import Limits, Uniqueness
from experiments.paper import proofs
from experiments.reporting.tables import plain_markdown

SHARES = np.full((len(fairness.SPREADS), len(fairness.TAUS)), 0.25)
COURSE = Course((4, 16), (1.0, 2.0), np.ones((2, 2)), np.ones((2, 2)), np.ones(2))


@pytest.fixture(scope="module")
def figures():
    return proofs.Figures(
        cases=toy.cases(),
        crossings=toy.crossings(),
        maps={name: Map(SHARES, 1 - SHARES, SHARES) for name in ("outlier", "convex")},
        two=fairness.two_equal_clients(1.0),
        three=fairness.three_values(),
        unique=Uniqueness(20, 6, 1e-8, 2e-8, -1.0),
        ends=Limits(200, 1e-7, 0.999, 1e-7, True),
        course=COURSE,
    )


def test_tables_have_a_row_for_each_spread_temperature_and_claim():
    title, head, rows, *_ = proofs.map_table("outlier", Map(SHARES, 1 - SHARES, SHARES))
    assert "one outlier" in title
    assert rows[0] == ["0.1", *["25.0 / 75.0"] * (len(head) - 1)]
    assert len(proofs.course_table(COURSE).rows) == 5
    text = plain_markdown(proofs.claims_table([Statement("a | b", "place", "holds", "so")]))
    assert "| a \\| b | place | holds | so |" in text


def test_what_is_read_gives_the_tables_of_what_was_written(tmp_path, figures):
    proofs.write(tmp_path / proofs.FILE, figures, federations=20, random_seed=3)
    found = proofs.read(tmp_path / proofs.FILE)
    assert (found.federations, found.random_seed) == (20, 3)
    assert {"commit", "packages", "machine"} <= found.environment.keys()
    assert found.claims == proofs.judged(found.figures) == proofs.judged(figures)
    assert proofs.tables(found.figures) == proofs.tables(figures)


def test_every_statement_is_on_fairness_temperature_or_convergence(figures):
    parts = [proofs.on_fairness(figures), proofs.on_temperature(figures), proofs.on_convergence(figures)]
    assert [len(part) for part in parts] == [2 + 2 * len(figures.maps) + 2, 2, 2]
    assert proofs.judged(figures) == [one for part in parts for one in part]


@pytest.mark.parametrize("content", [{}, {"format": proofs.FORMAT, "version": 1}])
def test_a_file_of_another_version_is_refused_in_one_line(tmp_path, content):
    (tmp_path / proofs.FILE).write_text(json.dumps(content))
    with pytest.raises(
        ValueError, match=r"theory\.json is no file of this version's experiments\.theory; run it again"
    ):
        proofs.read(tmp_path / proofs.FILE)
