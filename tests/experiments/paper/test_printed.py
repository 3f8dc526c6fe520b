"""The paper's numbers as data: all of them are there, and some are known by heart."""

import pytest

from experiments.paper import printed
from experiments.paper.printed import Value


def test_all_tables_and_figures_are_there():
    tables, figures = printed.tables(), printed.figures()
    assert len(tables) == 21
    assert len(figures) == 15
    assert sum(len(line.values) for table in tables.values() for line in table.lines) == 1192
    assert not tables.keys() & figures.keys()
    assert "Entropy-driven" in printed.source()
    for one in (*tables.values(), *figures.values()):
        assert one.what.endswith(".")


@pytest.mark.parametrize(
    ("table", "method", "dataset", "measure", "value"),
    [
        ("performance", "FedAvg", "fashion_mnist", "variance", Value(62.44, 4.55)),
        ("performance", "FedEBA+", "cifar10", "global_acc", Value(72.75, 0.25)),
        ("performance", "Prac-FedEBA+", "fashion_mnist", "variance", Value(46.41, 0.88)),
        ("theta", "FedEBA+", "fashion_mnist", "additional_cost", Value(50.0, None)),
        ("reddit", "AAggFF", "reddit", "worst5", Value(5.93, 0.86)),
    ],
)
def test_known_numbers(table, method, dataset, measure, value):
    lines = [line for line in printed.tables()[table].lines if (line.method, line.dataset) == (method, dataset)]
    assert lines[0].value(measure) == value


def test_a_wrong_head_is_read_as_what_it_must_be():
    noisy = printed.tables()["noisy_labels"].lines[0]
    assert noisy.value("variance") == Value(57.34, 2.98)
    assert noisy.value("std") is None
    focus = next(
        line for line in printed.tables()["noisy_labels"].lines if (line.method, line.dataset) == ("FOCUS", "cifar10")
    )
    assert focus.value("std") == Value(14.04, 0.68)


def test_grids_name_values():
    assert printed.grids()["FedEBA+"]["tau"] == [0.1, 0.5, 1.0, 5.0, 10.0, 20.0]
    assert len(printed.grids()) == 11
