"""Runs of a batch and runs alone: the same rows, to the bit."""

import pytest

from tests.support.marks import slow_but
from tests.support.runs import execute, make

pytestmark = [pytest.mark.xdist_group("swept"), pytest.mark.usefixtures("shared_programs")]


@pytest.mark.parametrize("algorithm", slow_but(["fedavg"], ["fedeba_plus", "fedavg"]))  # a law of the library, too
def test_swept_equals_trained_to_the_bit(algorithm, tmp_path):
    runs = make(algorithm, grid=("lr=0.05,0.1",), seeds=(3, 4))
    rows = execute(runs, tmp_path / "sweep", batch_runs=2, run_map="map", client_map="map")
    for i, run in enumerate(runs):
        trained = execute([run], tmp_path / str(i), client_map="map", log_rounds=True, only_these=True)
        assert trained == [row for row in rows if row["run"] == run.id]
