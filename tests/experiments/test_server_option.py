"""--server=adam(0.01): servers as calls, what they share, and runs that train with them."""

import math

import pytest

from experiments.command import calls
from experiments.command.runs import grouped
from experiments.command.tasks import resolve
from experiments.command.values import Traced, join, split
from fedeba_jax.server import SERVERS
from tests.support.marks import slow_but
from tests.support.runs import execute, final_rows, make

OPTAX = [name for name in SERVERS if name not in ("sgd", "momentum", "varp")]


@pytest.mark.parametrize("name", OPTAX)
def test_an_optax_optimizer_is_written_as_it_was_given(name):
    assert str(calls.parse(SERVERS, f"{name}(0.5)", "--server")) == f"{name}(0.5)"


@pytest.mark.parametrize(
    ("text", "written", "numbers", "static"),
    [
        (
            "adam(0.01, b1=0.8, nesterov=true)", "adam(0.01, b1=0.8, nesterov=true)",
            {"learning_rate": 0.01, "b1": 0.8, "b2": 0.999, "eps": 1e-8, "eps_root": 0.0}, {"nesterov": True},
        ),
        (
            "rmsprop(0.1, momentum=0.5)", "rmsprop(0.1, momentum=0.5)",
            {"learning_rate": 0.1, "decay": 0.9, "eps": 1e-8, "initial_scale": 0.0, "momentum": 0.5},
            {"eps_in_sqrt": True, "centered": False, "nesterov": False, "bias_correction": False},
        ),
        ("momentum(0.9, form=ema)", "momentum", {"beta": 0.9, "learning_rate": 1.0}, {"form": "ema"}),
        (
            "momentum(0.5, 2, heavy_ball)", "momentum(beta=0.5, learning_rate=2.0, form=heavy_ball)",
            {"beta": 0.5, "learning_rate": 2.0}, {"form": "heavy_ball"},
        ),
        ("varp( 1 )", "varp(1.0)", {"learning_rate": 1.0}, {}),
    ],
)  # fmt: skip
def test_servers_are_written_as_calls(text, written, numbers, static):
    server = resolve("mnist_mlp", {"server": text}).server
    assert str(server) == written
    found = {name: value for name, value in server.arguments.items() if isinstance(value, Traced)}
    assert found == numbers
    assert {name: value for name, value in server.arguments.items() if name not in found} == static
    taken, rest = split(server)
    assert sorted(taken) == sorted(numbers.values())
    assert join(taken, rest) == server


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("adam", "--server=adam lacks learning_rate"),
        ("adam(0.1, beta=3)", "adam takes no 'beta=3' there; give adam(learning_rate (> 0), b1=0.9 (float)"),
        ("adam(0.1, mu_dtype=float32)", "adam takes no 'mu_dtype=float32' there"),
        ("momentum(1.5)", "beta=1.5 is not valid for momentum; give beta=0.9 (in [0, 1])"),
        ("varp(-1)", "learning_rate=-1 is not valid for varp"),
    ],
)
def test_a_wrong_server_is_one_clear_line(text, names):
    with pytest.raises(ValueError) as error:
        resolve("mnist_mlp", {"server": text})
    assert names in str(error.value)


def test_servers_that_differ_in_numbers_share_a_compilation():
    axis = "server=adam(0.01),adam(0.1, b1=0.8),adam(0.1, nesterov=true),varp(1),varp(0.5)"
    made = make("fedavg", grid=[axis], validation=0.1)
    assert [len(group) for group in grouped(made)] == [2, 1, 2]


@pytest.mark.parametrize("server", slow_but(["adam(0.01, b1=0.8)"], ["adam(0.01, b1=0.8)", "varp(1.0)"]))
def test_a_run_with_a_server_by_name(server, tmp_path):
    """Two chunks of a round: the server's state goes from one to the next."""
    (row,) = final_rows(execute(make("fedavg", server=server), tmp_path / "run"))
    assert (row["status"], row["settings"]["server"]) == ("ok", server)
    assert math.isfinite(row["mean"])
