"""The demo: a table and a picture, and shown again without training."""

import contextlib
import io

import pytest
from absl.testing import flagsaver

from experiments import demo
from experiments.execution import folder, session
from tests.support.runs import compilations

pytestmark = [pytest.mark.xdist_group("demo"), pytest.mark.usefixtures("parsed_flags")]


@pytest.fixture(scope="module")
def first(tmp_path_factory, parsed_flags):
    """The folder of a demo of one method and two rounds, on the suite's devices, and what it printed."""
    out, printed = tmp_path_factory.mktemp("demo") / "demo", io.StringIO()
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(printed):
        patch.setattr(session, "set_up", lambda: None)
        with flagsaver.flagsaver(algorithm=["fedavg"], seeds=["0", "1"], rounds=2, out=str(out)):
            demo.main()
            yield out, printed.getvalue()


def test_a_table_a_picture_and_the_files_of_an_experiment(first):
    out, shown = first
    assert "fashion_mnist_mini: 50 clients with 2 label shards each, 5 sampled in each round, 2 rounds" in shown
    assert "2 runs (2 to do), 1 compilation" in shown
    assert "fedavg" in shown
    assert "lower variance is fairer" in shown
    assert {path.name for path in out.iterdir()} == {*folder.OURS, folder.LOCK, "demo.png", "demo.svg"} - {
        folder.ROUNDS
    }
    assert (out / "demo.png").stat().st_size > 10_000


def test_a_demo_that_is_whole_is_shown_again(first, capsys):
    out, _ = first
    before = (out / folder.RESULTS).read_bytes()
    with compilations() as compiled:
        demo.main()
    shown = capsys.readouterr().out
    assert "2 runs, done before" in shown
    assert "lower variance is fairer" in shown
    assert not compiled
    assert (out / folder.RESULTS).read_bytes() == before


@pytest.mark.usefixtures("first")
def test_another_demo_in_its_folder_is_refused():
    with flagsaver.flagsaver(rounds=3), pytest.raises(ValueError, match="rounds=2 there, 3 now"):
        demo.main()


def test_its_defaults_are_three_methods_and_two_seeds():
    assert demo.DEFAULTS["algorithm"].split(",") == ["fedavg", "fedeba_plus", "prac_fedeba_plus"]
    assert demo.DEFAULTS["seeds"] == "0,1"
