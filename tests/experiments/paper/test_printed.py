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


def test_errata_of_the_first_table_follow_from_its_numbers():
    """How much less variance than FedAvg FedEBA+ has, beside the best of the others; and two rows that are alike."""
    table = printed.tables()["performance"]
    _, times, alike = table.errata
    for dataset, best, ratio in (("fashion_mnist", "q-FFL", "2.5"), ("cifar10", "lp-proj", "1.4")):
        by_method = {line.method: line.value("variance").mean for line in table.lines if line.dataset == dataset}
        ours, fedavg = by_method["FedEBA+"], by_method["FedAvg"]
        others = {method: value for method, value in by_method.items() if "FedEBA+" not in method}
        assert min(others, key=others.get) == best
        gain, theirs = fedavg - ours, fedavg - others[best]
        assert f"{gain / theirs:.1f}" == ratio
        assert f"{ratio} times ({gain:.2f} / {theirs:.2f}, {best})" in times
    same = [line.value("variance") for line in table.lines if line.method in ("Rank-Core-Fed", "AAggFF")][::2]
    assert same == [Value(58.19, 2.83)] * 2
    assert "58.19 with a std of 2.83" in alike


def test_grids_name_values():
    assert printed.grids()["FedEBA+"]["tau"] == [0.1, 0.5, 1.0, 5.0, 10.0, 20.0]
    assert len(printed.grids()) == 11
