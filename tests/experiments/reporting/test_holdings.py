"""What clients hold, in text and as a picture."""

import re
from functools import partial

import numpy as np
import pytest

from experiments.reporting import holdings, style
from experiments.reporting.style import drawn
from fedeba_jax.data import partition
from fedeba_jax.data.ragged import Ragged

LABELS = np.repeat(np.arange(4), 25)


@pytest.fixture
def told():
    """Four clients with one label each, and something to be tested on."""
    shards = partition.label_shards(LABELS, 4, seed=0, shards_per_client=1)
    splits = {"train": shards, "test": Ragged.of([[0], [1, 2], [3], [4]])}
    return holdings.describe("four clients", splits, LABELS, 4, tuple("abcd"))


def test_the_text_has_sizes_labels_and_the_distance(told):
    text = "\n".join(holdings.lines(told))
    assert text.startswith("four clients\n")
    assert re.search(r"examples, train +25 +25 +25 +100\n", text)
    assert re.search(r"examples, test +1 +1 +2 +5\n", text)
    assert re.search(r"different labels, train +1 +1 +1 *\n", text)
    assert "tokens" not in text
    assert "clients by number of training examples (4 clients)\n  25         4 ####" in text
    found = re.search(r"distance from i.i.d.: 0.750; an i.i.d. deal of the same sizes has (0\.\d+)", text)
    assert float(found[1]) < 0.3
    assert "farthest: client a, 0.750; nearest: client a, 0.750" in text


def test_of_text_the_tokens_that_count_are_told():
    y = np.stack([LABELS, np.full(100, -1)], axis=1)
    owned = partition.iid(100, num_clients=3, seed=0)
    text = "\n".join(holdings.lines(holdings.describe("text", {"train": owned}, y, 4)))
    assert "tokens that count" not in text  # one for each sequence
    y[:50, 1] = 0
    text = "\n".join(holdings.lines(holdings.describe("text", {"train": owned}, y, 4)))
    assert re.search(r"tokens that count, train +\d+ +\d+ +\d+ +150\n", text)


def test_sizes_are_counted_in_ranges():
    owned = Ragged(np.arange(1220), np.array([10, 10, 200, 1000]))
    lines = holdings.lines(holdings.describe("few", {"train": owned}, np.arange(1220) % 2, 2))
    counts = [int(found[1]) for line in lines if (found := re.match(r" +[\d,]+ to [\d,]+ +(\d+)", line))]
    assert sum(counts) == 4
    assert counts[0] == 2
    assert counts[-1] == 1


def test_rows_of_the_heat_map_are_sorted_and_shared_by_many_clients():
    counts = np.array([[0, 8, 0], [3, 1, 0], [4, 0, 0], [2, 1, 1]])
    rows = holdings.rows_of(counts)
    np.testing.assert_allclose(rows, [[1, 0, 0], [0.75, 0.25, 0], [0.5, 0.25, 0.25], [0, 1, 0]])
    many = holdings.rows_of(np.tile(counts, (1000, 1)))
    assert many.shape == (holdings.MOST_ROWS, 3)
    np.testing.assert_allclose(many.mean(axis=0), rows.mean(axis=0))


def test_of_many_labels_the_most_common_are_drawn():
    y = np.concatenate([np.arange(500), np.full(500, 77)])
    told = holdings.describe("many", {"train": partition.iid(1000, num_clients=5, seed=0)}, y, 500)
    assert told.heat.shape == (5, holdings.MOST_LABELS)
    assert 77 in told.labels
    assert told.heat.sum(axis=1).max() < 1


def test_the_picture(told, tmp_path, capsys):
    drawn(tmp_path / "holdings.png", partial(holdings.draw, told))
    assert (tmp_path / "holdings.png").stat().st_size > 10_000
    assert capsys.readouterr().out == f"picture: {tmp_path / 'holdings.png'}\n"


def test_without_the_library_it_says_so(told, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(style, "no_library", lambda: "matplotlib is not installed")
    drawn(tmp_path / "holdings.png", partial(holdings.draw, told))
    assert capsys.readouterr().out == "no holdings.png: matplotlib is not installed\n"
