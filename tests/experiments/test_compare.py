"""The comparison of all methods: one table, in the terminal and in a file."""

import pytest
from absl.testing import flagsaver

from experiments import compare
from experiments.execution import session
from fedeba_jax import ALGORITHMS
from tests.support.runs import MINI, TINY, binary

pytestmark = pytest.mark.usefixtures("parsed_flags")


@pytest.fixture(autouse=True)
def few(tmp_path, monkeypatch):
    """Two methods, one of which diverges, two rounds, on the suite's devices."""
    monkeypatch.setattr(session, "set_up", lambda: None)
    settings = TINY | {"algorithm": ["fedavg", "fedprox"], "seeds": ["0"], "task": MINI, "out": str(tmp_path / "out")}
    with flagsaver.flagsaver(**settings):
        yield


def test_one_table_of_fairness_bytes_and_speed(tmp_path, capsys):
    compare.main()
    shown = capsys.readouterr().out
    table = (tmp_path / "out" / "compare.md").read_text()
    assert f"table: {tmp_path / 'out' / 'compare.md'}" in shown
    for name in ("fedavg", "fedprox"):
        assert name in shown
        assert f"| {name} |" in table
    assert "rounds/s" in table
    assert "MiB" in table
    compare.main()
    assert "2 runs, done before" in capsys.readouterr().out
    assert (tmp_path / "out" / "compare.md").read_text() == table


def test_a_method_that_diverges_has_a_row_that_says_so(tmp_path, capsys):
    with flagsaver.flagsaver(lr=1e30, algorithm=["fedavg"]):
        compare.main()
    assert "diverged" in (tmp_path / "out" / "compare.md").read_text()
    capsys.readouterr()


def test_its_default_is_every_method():
    assert compare.DEFAULTS["algorithm"].split(",") == list(ALGORITHMS)


def test_help_shows_the_defaults_that_it_uses():
    shown = binary("experiments.compare", "--help").stdout
    for flag, default in (("rounds", "200"), ("seeds", "0,1")):
        assert f"(default: '{default}')" in shown.split(f"--{flag}: ")[1][:300]
