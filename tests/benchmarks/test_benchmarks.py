"""The benchmarks measure what they say, on tiny work: turns and ratios, workers, the record and its check."""

import json
import re

import jax
import numpy as np
import pytest
from absl import flags
from absl.testing import flagsaver

from benchmarks import algorithms, check, evaluation, overhead, products, robustness, round_throughput, scaling, sweep
from benchmarks.peers import protocol
from benchmarks.tools import flops, limit, measure, worker
from benchmarks.tools.work import Work, compile_round, random_data
from experiments.command import cli
from tests.support.marks import slow_but

TINY = {"cohort": 2, "steps": 1, "batch": 5, "clients": 4}


@pytest.fixture(autouse=True)
def mlp_alone(short_measurements):
    """Without the CNN and without other libraries."""
    with flagsaver.flagsaver(models=["mlp"], peers=["none"]):
        yield


def test_contestants_take_turns_and_ratios_are_paired():
    order = []

    def contestant(name, *seconds):
        left = iter((0.1, 0.1, *seconds))  # warming up, and finding how many units fill the time
        return lambda units: order.append((name, units)) or next(left) * units

    with flagsaver.flagsaver(repeats=3, seconds=0.4):
        seconds = measure.interleaved({"a": contestant("a", 1, 2, 3), "b": contestant("b", 2, 8, 6)})
    assert [name for name, _ in order[4:]] == list("abbaab")
    assert {units for _, units in order[4:]} == {4}
    np.testing.assert_allclose(seconds["b"], [2, 8, 6])
    assert measure.ratio(seconds["b"], seconds["a"]) == measure.Ratio(2.0, 2.0, 3.0)


def test_the_limit_is_the_best_rate():
    seconds = {"GEMM a": np.array([2.0, 1.0]), "GEMM b": np.array([0.5, 3.0]), "ours": np.array([0.1, 0.1])}
    assert limit.rate(seconds) == limit.FLOPS / 0.5
    assert all(run(2) > 0 for run in limit.products().values())


def test_more_clients_share_the_images():
    data = random_data(Work(clients=250, cohort=3))
    assert data.index.shape == (250, 600)
    assert len(np.unique(data.index[:100])) == 60_000


def test_rounds_move_the_model_and_are_timed():
    work = Work(**TINY)
    compiled = compile_round(work, random_data(work))
    before = jax.device_get(compiled.state().server.params)
    assert compiled.run(2) > 0
    after = jax.device_get(compiled.state().server.params)
    assert all(np.any(x != y) for x, y in zip(*map(jax.tree.leaves, (before, after)), strict=True))
    assert compiled.compile_seconds > 0
    assert compiled.temp_bytes > 0


def test_a_worker_runs_rounds_and_tells_accuracy_memory_and_versions(tmp_path):
    work = Work(**TINY)
    random_data(work).save(str(tmp_path))
    contestant = worker.Worker(worker.OURS, work.spec(str(tmp_path)))
    try:
        assert contestant.run(2) > 0
        assert 0 <= contestant.accuracy() <= 100
        assert contestant.peak_memory() > 50e6
        assert contestant.facts["versions"]["jax"]
        assert contestant.facts["compile_seconds"] > 0
    finally:
        contestant.close()


def test_a_worker_that_dies_says_why(tmp_path):
    with pytest.raises(cli.RunError, match="FileNotFoundError"):
        worker.Worker(worker.OURS, Work().spec(str(tmp_path)))


def test_what_a_library_prints_does_not_disturb_the_replies(tmp_path, monkeypatch):
    (tmp_path / "chatty.py").write_text(
        "from benchmarks.peers.protocol import Peer, serve\n"
        "def make(spec, data):\n"
        "    print('hello')\n"
        "    return Peer(lambda count: print(count), lambda images: data.y_test, ['numpy'])\n"
        "serve(make)\n"
    )
    zeros = np.zeros((2, 2, 2, 1), np.uint8)
    protocol.Data(zeros, zeros[:, 0, 0, 0], np.zeros((1, 2)), zeros, zeros[:, 0, 0, 0]).save(str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    contestant = worker.Worker(worker.OURS._replace(module="chatty"), Work().spec(str(tmp_path)))
    assert contestant.run(3) > 0
    assert contestant.accuracy() == 100
    contestant.close()


def test_peers_are_known_and_have_the_algorithm():
    with flagsaver.flagsaver(peers=["all"]):
        assert measure.peers("fedavg") == list(worker.PEERS)
        assert measure.peers("fedeba_plus") == ["torch_loop"]
    with flagsaver.flagsaver(peers=["tensorflow"]), pytest.raises(ValueError, match="choose from torch_loop"):
        measure.peers("fedavg")


def result(path, **ratios):
    content = {name: measure.Ratio(value, value, value, better)._asdict() for name, (value, better) in ratios.items()}
    path.write_text(json.dumps({"environment": {"commit": "abc", "date": "today"}, "ratios": content}))
    return str(path)


def test_the_check_tells_what_got_worse(tmp_path, capsys):
    record = tmp_path / "recorded.json"
    record.write_text("{}")
    before = result(tmp_path / "before.json", fast=(2.0, "higher"), cost=(1.0, "lower"))
    with flagsaver.flagsaver(recorded=str(record), tolerance=0.15):
        with flagsaver.flagsaver(record=True):
            assert check.main([before]) == 0
        assert json.loads(record.read_text())["fast"]["commit"] == "abc"
        assert check.main([result(tmp_path / "same.json", fast=(1.8, "higher"), cost=(1.1, "lower"))]) == 0
        assert check.main([result(tmp_path / "better.json", fast=(9.0, "higher"), cost=(0.1, "lower"))]) == 0
        capsys.readouterr()
        assert check.main([result(tmp_path / "slow.json", fast=(1.6, "higher"), cost=(1.0, "lower"))]) == 1
        (line,) = capsys.readouterr().err.splitlines()
        assert line == "error: fast is 1.60, recorded 2.00 (higher is better, tolerance 15%)"
        assert check.main([result(tmp_path / "dear.json", cost=(1.2, "lower"))]) == 1
        with pytest.raises(ValueError, match="none of the 1 ratios is recorded"):
            check.main([result(tmp_path / "new.json", other=(1.0, "higher"))])
        with pytest.raises(ValueError, match="holds no ratios"):
            check.main([str(record)])


def test_recorded_ratios_are_well_formed():
    with open(flags.FLAGS.recorded) as file:
        for name, ratio in json.load(file).items():
            assert ratio["low"] <= ratio["value"] <= ratio["high"], name
            assert ratio["better"] in ("higher", "lower"), name


BINARIES = {
    "round_throughput": (round_throughput, {"algorithms": ["fedavg"]}, "mlp fedavg: share of the limit"),
    "algorithms": (algorithms, {"algorithms": ["fedavg", "fedeba"]}, "mlp fedeba: round / its passes"),
    "scaling": (
        scaling,
        {"algorithms": ["fedavg"], "cohorts": ["2", "3"], "num_clients": ["10"], "num_steps": [], "maps": []},
        "mlp fedavg cohort, a client: n=3 / n=2",
    ),
    "sweep": (sweep, {"algorithms": ["fedavg"], "settings": 2}, "mlp fedavg sweep of 2: single / sweep"),
    "evaluation": (evaluation, {}, "mlp evaluation: share of the limit"),
    "overhead": (overhead, {}, None),
    "products": (products, {"algorithms": ["fedavg"]}, None),
    "robustness": (robustness, {}, "mlp robust_fedeba_plus: round / fedeba_plus"),
}


# What binaries share (turns, limits, the table, the file) these two go through; the others only measure other things.
IN_THE_SUITE = ("round_throughput", "evaluation")


@pytest.mark.parametrize("name", slow_but(IN_THE_SUITE, BINARIES))
def test_binaries_print_a_table_and_write_rows_and_ratios(name, tmp_path, capsys):
    module, settings, ratio = BINARIES[name]
    out = tmp_path / "result.json"
    with flagsaver.flagsaver(out=str(out), **settings):
        if "algorithms" in settings:
            flags.FLAGS["algorithms"].present = 1
        module.main()
    content = json.loads(out.read_text())
    assert content["benchmark"] == name
    assert content["rows"]
    assert content["environment"]["machine"]["cores"] >= 1
    assert ratio is None or content["ratios"][ratio]["value"] > 0
    assert "mlp" in capsys.readouterr().out


@pytest.mark.parametrize("algorithm", ["fedavg", "fedeba_plus"])
def test_the_products_are_those_that_the_round_needs(algorithm):
    work = Work("mlp", algorithm, cohort=2 * jax.device_count())
    done = sum(times * product.operations for product, times in products.of_round(work).items())
    assert done * jax.device_count() == flops.needed(work)


@pytest.mark.parametrize("kind", products.CONTRACTED)
def test_a_product_has_the_shape_of_its_kind(kind):
    shapes = products.Product(5, 3, 2, kind).shapes
    contracted = tuple((dimension,) for dimension in products.CONTRACTED[kind])
    got = jax.eval_shape(lambda a, b: jax.lax.dot_general(a, b, (contracted, ((), ()))), *map(np.zeros, shapes))
    assert got.shape == {"forward": (5, 2), "weights": (2, 3), "inputs": (5, 3)}[kind]


@pytest.mark.slow  # a tool beside the benchmarks
def test_a_profile_is_a_trace_and_tables_of_operations_and_parts(tmp_path, capsys):
    with flagsaver.flagsaver(profile=str(tmp_path), algorithms=["fedavg"]):
        round_throughput.main()
    assert list(tmp_path.rglob("*.xplane.pb"))
    shown = capsys.readouterr().out
    assert re.search(r"f32\[\d+,200\] .*Dense_0/dot_general", shown)  # of the first layer, forward
    parts = [line.split()[0] for line in shown.splitlines()]
    assert {"round", "training", "averaging", "evaluation", "left"} <= set(parts)


@pytest.mark.parametrize(("flag", "known"), [("models", "mlp, cnn"), ("algorithms", "fedavg, fedsgd")])
def test_an_unknown_name_is_told_when_flags_are_parsed(flag, known):
    with pytest.raises(flags.IllegalFlagValueError, match=rf"--{flag}=.*nobody is not known; choose from {known}"):
        flags.FLAGS(["test", f"--{flag}=nobody"])


def test_a_busy_machine_is_warned_about(monkeypatch, capsys):
    assert 0 <= measure.busy_share(0.05) <= 1
    monkeypatch.setattr(measure, "busy_share", lambda: 0.1)
    measure.warn_if_busy()
    assert not capsys.readouterr().out
    monkeypatch.setattr(measure, "busy_share", lambda: 0.9)
    measure.warn_if_busy()
    assert "the machine is 90% busy" in capsys.readouterr().out
