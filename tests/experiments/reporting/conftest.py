"""Folders that several tests of the report read."""

import pytest

from tests.support.folders import both, sweep_folder, train_folder


@pytest.fixture
def runs(tmp_path):
    """FedAvg by train with two seeds; FedEBA+ by sweep: tau=0.1 best on validation, tau=1 on test, tau=10 diverges."""
    first = [(10, 9), (20, 9)]
    train_folder(tmp_path / "avg", "fedavg", {s: [*first, (60 + 10 * s, 400), (70 + 10 * s, 300)] for s in (0, 1)})
    points = [
        ("fedeba_plus", {"tau": tau, "theta": 0.0}, seed, both(test + 10 * seed, valid + 10 * seed), variance)
        for tau, test, valid, variance in ((0.1, 71, 90, 200.0), (1.0, 72, 80, 250.0))
        for seed in (0, 1)
    ]
    points += [("fedeba_plus", {"tau": 10.0, "theta": 0.0}, 0, both(99, 99), 1.0, 3)]
    sweep_folder(tmp_path / "sweep", points)
    return tmp_path
