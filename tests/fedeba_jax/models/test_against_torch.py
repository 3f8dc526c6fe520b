"""Logits and gradients of every model beside PyTorch's own layers with the same weights; skipped without PyTorch."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedeba_jax.examples import cross_entropies
from fedeba_jax.models import cnn, cnn_deep, cnn_shallow, logistic, lstm_words, mlp, mobilenet_v2, resnet18
from fedeba_jax.models.mobile import PAPER, Blocks

torch = pytest.importorskip("torch", reason="PyTorch is not installed: make test-peers")

from benchmarks.peers import torch_models  # noqa: E402, it needs torch

CLASSES = 7
SMALL_BLOCKS = (Blocks(1, 8, 1, 1), Blocks(3, 16, 2, 2), Blocks(2, 16, 1, 1))


def plain(*layers):
    """Layers in a row, those with parameters named as ours are."""
    named, seen = torch.nn.Sequential(), {"Linear": 0, "Conv2d": 0}
    for number, layer in enumerate(layers):
        kind = type(layer).__name__
        name = {"Linear": "Dense", "Conv2d": "ConvReluPool"}.get(kind)
        named.add_module(f"{name}_{seen[kind]}" if name else f"other_{number}", layer)
        if name:
            seen[kind] += 1
    return named


def torch_logistic():
    return plain(torch.nn.Flatten(), torch.nn.Linear(12, CLASSES))


def torch_mlp():
    nn = torch.nn
    return plain(nn.Flatten(), nn.Linear(12, 6), nn.ReLU(), nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, CLASSES))


def torch_cnn():
    nn = torch.nn
    return plain(
        *(nn.Conv2d(3, 4, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(4, 16, 5), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Flatten(), nn.Linear(16, 6), nn.ReLU(), nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, CLASSES)),
    )


def torch_shallow():
    nn = torch.nn
    return plain(
        *(nn.Conv2d(3, 64, 5), nn.ReLU(), nn.AdaptiveMaxPool2d(1), nn.Flatten()),
        *(nn.Linear(64, 384), nn.ReLU(), nn.Linear(384, 192), nn.ReLU(), nn.Linear(192, CLASSES)),
    )


def torch_deep():
    nn, pool = torch.nn, torch.nn.MaxPool2d(2)
    return plain(
        *(nn.Conv2d(3, 64, 5), nn.ReLU(), pool, nn.Conv2d(64, 128, 5), nn.ReLU(), pool),
        *(nn.Conv2d(128, 128, 3, padding=1), nn.ReLU(), torch.nn.MaxPool2d(2), nn.Flatten()),
        *(nn.Linear(128, 384), nn.ReLU(), nn.Linear(384, 192), nn.ReLU(), nn.Linear(192, CLASSES)),
    )


PAIRS = {  # ours, PyTorch's, shape of an example
    "logistic": (logistic, torch_logistic, (2, 2, 3)),
    "mlp": (functools.partial(mlp, hidden=(6, 5)), torch_mlp, (2, 2, 3)),
    "cnn": (functools.partial(cnn, channels=(4, 16), hidden=(6, 5)), torch_cnn, (17, 16, 3)),
    "cnn_shallow": (cnn_shallow, torch_shallow, (10, 10, 3)),
    "cnn_deep": (cnn_deep, torch_deep, (20, 20, 3)),
    "resnet18": (
        functools.partial(resnet18, width=2),
        functools.partial(torch_models.resnet18, 3, CLASSES, width=2),
        (13, 12, 3),
    ),
    "mobilenet_v2": (
        functools.partial(mobilenet_v2, blocks=SMALL_BLOCKS, stem=8, head=24),
        functools.partial(torch_models.mobilenet_v2, 3, CLASSES, SMALL_BLOCKS, stem=8, head=24),
        (13, 12, 3),
    ),
    "lstm_words": (
        functools.partial(lstm_words, embedding=6, hidden=8),
        functools.partial(torch_models.LanguageModel, CLASSES, embedding=6, hidden=8),
        (5,),
    ),
}


def named_as_torch(params, prefix=""):
    """Our parameters, or their gradients, by PyTorch's names and with its axes."""
    found = {}
    for name, value in params.items():
        if name.startswith("Lstm_"):
            number = name[-1]
            kinds = {"kernel_input": "weight_ih", "kernel": "weight_hh", "bias": "bias_ih"}
            found |= {f"lstm.{kinds[kind]}_l{number}": array for kind, array in value.items()}
            found[f"lstm.bias_hh_l{number}"] = np.zeros_like(value["bias"])
        elif isinstance(value, dict):
            found |= named_as_torch(value, f"{prefix}{name}.")
        elif name == "embedding":
            found["embedding.weight"] = value
        else:
            kind = "bias" if name == "bias" else "weight"
            found[prefix + kind] = value.transpose(3, 2, 0, 1) if value.ndim == 4 else value
    return found


def flattened_as_ours(net):
    """PyTorch flattens [C, H, W], we [H, W, C]."""
    for module in net.modules():
        if isinstance(module, torch.nn.Flatten):
            module.register_forward_pre_hook(lambda _, x: (x[0].permute(0, 2, 3, 1),))
    return net


@pytest.mark.parametrize(("dtype", "tolerance"), [(np.float64, 1e-8), (np.float32, 1e-4)])
@pytest.mark.parametrize("name", PAIRS)
def test_logits_and_gradients_are_pytorchs(name, dtype, tolerance):
    factory, make_net, shape = PAIRS[name]
    rng = np.random.default_rng(0)
    tokens = len(shape) == 1
    x = rng.integers(0, CLASSES, (4, *shape)).astype(np.int32) if tokens else rng.normal(size=(4, *shape)).astype(dtype)
    y = rng.integers(0, CLASSES, (4, *shape) if tokens else 4)
    with jax.enable_x64(dtype == np.float64):
        model = factory(shape, CLASSES)
        params = jax.device_get(model.init(jax.random.key(0)))

        def loss(params):
            logits = model.apply(params, jnp.asarray(x))
            return cross_entropies(logits, jnp.asarray(y)).mean(), logits

        gradient, logits = jax.device_get(jax.jit(jax.grad(loss, has_aux=True))(params))

    net = flattened_as_ours(make_net()).to(torch.float64 if dtype == np.float64 else torch.float32)
    net.load_state_dict({k: torch.tensor(np.asarray(v)) for k, v in named_as_torch(params).items()})
    inputs = torch.tensor(x).long() if tokens else torch.tensor(x).permute(0, 3, 1, 2)
    theirs = net(inputs)
    torch.nn.functional.cross_entropy(theirs.flatten(0, -2), torch.tensor(y).flatten()).backward()

    def close(got, want):
        np.testing.assert_allclose(got, want, rtol=tolerance, atol=tolerance * np.abs(want).max())

    close(logits, theirs.detach().numpy())
    ours = named_as_torch(gradient)
    for key, parameter in net.named_parameters():
        if "bias_hh" not in key:  # the second of two biases that are added
            close(ours[key], parameter.grad.numpy())


def test_the_benchmarks_networks_have_the_papers_size():
    nets = [torch_models.resnet18(3, 100), torch_models.mobilenet_v2(3, 200), torch_models.LanguageModel(10_000)]
    counts = [sum(p.numel() for p in net.parameters()) for net in nets]
    assert counts == [11_220_132, 2_480_072, 5_563_280 + 2 * 4 * 256]
    assert [tuple(b) for b in torch_models.MOBILE] == [tuple(b) for b in PAPER]
