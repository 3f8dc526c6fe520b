"""The benchmark of the larger models: our round and PyTorch's do the same work, on tiny examples."""

import jax
import numpy as np
import pytest
from absl.testing import flagsaver

from benchmarks import models
from benchmarks.peers.protocol import Spec
from benchmarks.tools.work import compile_made

FEATURES = models.Work((6,), 3, "none", batch=4, steps=2)
TOKENS = models.Work((5,), 7, "none", batch=2, steps=2)

pytestmark = pytest.mark.usefixtures("short_measurements")


def test_rounds_move_the_model_and_are_timed():
    data = models.random_data(TOKENS)
    assert (data.x.shape, data.y.shape, data.index.shape) == ((8, 5), (8, 5), (2, 4))
    compiled = compile_made(models.make_round("lstm_chars", TOKENS), data, "auto")
    before = jax.device_get(compiled.state().server.params)
    assert compiled.run(1) > 0
    after = jax.device_get(compiled.state().server.params)
    assert all(np.any(x != y) for x, y in zip(*map(jax.tree.leaves, (before, after)), strict=True))


def test_a_trace_shows_operations(tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(models.WORKS, "logistic", FEATURES._replace(shape=(2, 2, 1)))
    with flagsaver.flagsaver(trace=str(tmp_path)):
        models.main(["logistic"])
    assert "of all" in capsys.readouterr().out
    assert list(tmp_path.rglob("*.xplane.pb"))


def test_operations_are_those_of_the_products():
    data = models.random_data(FEATURES._replace(shape=(2, 3, 1)))
    got = models.operations(models.make_round("logistic", FEATURES._replace(shape=(2, 3, 1))), data)
    forward = 2 * 6 * 3  # of an example; the gradient by the kernel takes as much, that by the image is not needed
    training = FEATURES.clients * FEATURES.steps * FEATURES.batch * 2 * forward
    assert training < got < 1.2 * training  # and the mean of the clients' models


def test_unknown_models_are_told():
    with pytest.raises(ValueError, match="choose from resnet18, mobilenet_v2, lstm_words"):
        models.main(["vgg"])


def test_the_benchmark_runs_beside_pytorch(monkeypatch, capsys):
    pytest.importorskip("torch", reason="PyTorch is not installed: make test-peers")
    monkeypatch.setitem(models.WORKS, "lstm_words", TOKENS)
    monkeypatch.setattr(models, "TORCH", models.TORCH._replace(settings=({"threads": 1},)))
    models.main(["lstm_words"])
    shown = capsys.readouterr().out
    assert "lstm_words: 2 clients, 2 steps of batch 2" in shown
    assert "PyTorch, 1 threads" in shown


@pytest.mark.parametrize("model", ["resnet18", "mobilenet_v2", "lstm_words"])
def test_pytorchs_round_moves_every_parameter(model):
    torch = pytest.importorskip("torch", reason="PyTorch is not installed: make test-peers")
    from benchmarks.peers import torch_deep, torch_models

    small = {
        "resnet18": lambda c, n: torch_models.resnet18(c, n, width=4),
        "mobilenet_v2": lambda c, n: torch_models.mobilenet_v2(c, n, ((2, 8, 1, 1),), stem=8, head=8),
        "lstm_words": lambda _, n: torch_models.LanguageModel(n, 4, 4),
    }
    work = TOKENS if model == "lstm_words" else FEATURES._replace(shape=(4, 4, 3))
    spec = Spec(model, "fedavg", 2, work.steps, work.batch, 0.5, (0.5,), (0.5,), "", {"threads": 1})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch_deep, "NETS", small)
        task = torch_deep.make_task(spec, models.random_data(work))
    before = [p.detach().clone() for p in task.net.parameters()]
    torch_deep.fedavg_round(task, [0, 1], torch.Generator().manual_seed(0))
    assert all(bool((a != b).any()) for a, b in zip(before, task.net.parameters(), strict=True))
