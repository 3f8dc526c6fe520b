"""Server optimizers and FedVARP under algorithms: twins, limits, and the laws that must survive them."""

import functools
import itertools
import re
import types

import jax
import numpy as np
import pytest

import fedeba_jax
from fedeba_jax import client_map as maps
from fedeba_jax import ownership
from fedeba_jax.hyperparameters import hyperparameters
from fedeba_jax.server import SERVERS
from tests.support.for_twins import ROUNDS, as_twin_problem
from tests.support.marks import slow_but
from tests.support.problems import COUNTS, tiny
from tests.twins import TWINS
from tests.twins.baselines_weights import weighted_rounds
from tests.twins.varp import varp as varp_twin
from tests.twins.weights import angle_degrees, entropy_weights, example_weights, uniform_weights


def close(a, b, tolerance):
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, atol=tolerance, rtol=0), a, b)


# FedVARP under algorithms.

VARP_CASES = [
    ("fedavg", {}),
    ("fedavg", {"weighting": "uniform"}),
    ("fedsgd", {}),
    ("fedprox", {"mu": 0.7}),
    ("mime_lite", {"beta": 0.6}),
    ("qffl", {"q": 0.5}),
    ("fedmgda_plus", {"eps": 0.1}),
    ("fedfv", {"alpha": 0.5, "window": 0}),
    ("fedfv", {"alpha": 0.1, "window": 2}),
    ("fedfv", {"alpha": 0.5, "window": 2, "fv_window": "current"}),
    ("term", {"t": 1.5}),
    ("propfair", {"M": 2.0}),
    ("fedeba", {"tau": 0.5}),
    ("fedeba_plus", {"tau": 0.5, "alpha": 0.6, "theta": 0.0}),
    ("fedeba_plus", {"tau": 0.5, "alpha": 0.6, "theta": 20.0}),
    ("fedeba_plus", {"tau": 0.5, "alpha": 0.6, "theta": 180.0}),
    ("fedavg_align", {"tau": 0.5, "alpha": 0.6, "theta": 20.0}),
    ("prac_fedeba_plus", {"tau": 0.5, "alpha": 0.6, "theta": 0.0}),
    ("prac_fedeba_plus", {"tau": 0.5, "alpha": 0.6, "theta": 20.0}),
    ("prac_fedeba_plus", {"tau": 0.5, "alpha": 0.6, "theta": 180.0}),
]


def practical(problem, *, tau, alpha, theta):
    """Prac-FedEBA+ by its weights alone: its whole step is linear in the updates."""

    def rule(r):
        n = uniform_weights(problem, r.cohort)
        steps = np.array([len(problem.batches[r.t][i]) for i in r.cohort])
        p = entropy_weights(problem.full_losses(r.trained, r.cohort), tau, n)
        fair = (p @ steps) * entropy_weights(r.losses, tau, n) / steps
        ideal = example_weights(problem, r.cohort) / steps
        return (1 - alpha) * p + alpha * (fair if angle_degrees(r.losses) > theta else ideal), {}

    return weighted_rounds(problem, rule)


def trained(problem, algorithm, rounds=ROUNDS, client_map=maps.mapped):
    return problem.train(algorithm, jax.random.key(3), rounds=rounds, client_map=client_map)


@functools.cache
def program(name, server, static=(), cohort_size=4, epochs=None, **changes):
    """Traced hyper-parameters -> (state, info); the server as its name and rate."""
    problem, (kind, rate) = tiny(cohort_size, epochs=epochs), server
    made = SERVERS[kind](learning_rate=rate)

    def run(numbers):
        return trained(problem, problem.algorithm(name, server=made, **numbers, **dict(static)), **changes)

    return jax.jit(run)


def simulated(name, server, hparams=types.MappingProxyType({}), **changes):
    known = hyperparameters(fedeba_jax.ALGORITHMS[name])
    static = tuple((k, v) for k, v in hparams.items() if not known[k].traced)
    return program(name, server, static, **changes)({k: v for k, v in hparams.items() if known[k].traced})


def assert_varp_equals_twin(name, hparams, epochs=None):
    state, info = simulated(name, ("varp", 0.8), hparams, epochs=epochs)
    slow = as_twin_problem(tiny(), jax.random.key(3), np.asarray(info["cohort"]), epochs)
    slow.server_rate, slow.aggregate = 0.8, varp_twin(slow)
    twin = practical if name == "prac_fedeba_plus" else TWINS[name]
    close(state.server.params, twin(slow, **hparams).params[-1], 1e-8)


IN_SUITE = [case for i, case in enumerate(VARP_CASES) if i in (1, 4, 8, 12, 14, 18)]


# Beyond these: the methods' own twins, and the server's twin under any weights (test_server.py).
@pytest.mark.parametrize(
    ("name", "hparams"), slow_but(IN_SUITE, VARP_CASES), ids=lambda v: v if isinstance(v, str) else None
)
def test_varp_equals_its_twin(x64, name, hparams):
    assert_varp_equals_twin(name, hparams)


@pytest.mark.parametrize("name", ["fedavg", "prac_fedeba_plus"])
def test_varp_equals_its_twin_with_unequal_steps(x64, name):
    hparams = {} if name == "fedavg" else {"tau": 0.5, "alpha": 0.6, "theta": 20.0}
    assert_varp_equals_twin(name, hparams, epochs=2)


UNIFORM_CASES = [
    ("fedavg", {"weighting": "uniform"}),
    ("qffl", {"q": 0.0}),
    ("fedeba_plus", {"tau": 1e30, "alpha": 0.6, "theta": 20.0}),
]


@pytest.mark.parametrize(
    ("name", "hparams"), slow_but(UNIFORM_CASES[1:2], UNIFORM_CASES), ids=lambda v: v if isinstance(v, str) else None
)
def test_full_participation_with_uniform_weights_is_the_plain_server(x64, name, hparams):
    """Also with local epochs over clients of unequal size: 1 to 3 steps a pass."""
    varp, sgd = (
        simulated(name, (kind, 1.0), hparams, cohort_size=6, epochs=2)[0].server.params for kind in ("varp", "sgd")
    )
    close(varp, sgd, 1e-10)


@pytest.mark.parametrize("name", slow_but(["fedavg"], ["fedavg", "fedeba_plus"]))
def test_the_running_mean_does_not_drift(name):
    """50 rounds in float32."""
    state, info = simulated(name, ("varp", 1.0), rounds=50)
    last, mean = getattr(state.server, "server", state.server).memory  # a method with a memory keeps both
    assert info["finite"].all()
    for kept, rows in zip(jax.tree.leaves(mean), jax.tree.leaves(last), strict=True):
        true = np.asarray(rows, np.float64).mean(0)
        assert np.linalg.norm(kept - true) <= 1e-5 * np.linalg.norm(true)


def test_devices_exchange_the_rows_that_travel_and_no_others():
    """Nothing that passes between devices, and nothing that is copied, has a row for each of 24 clients, or of 12."""
    problem, client_map = tiny(cohort_size=2, counts=COUNTS * 4), maps.sharded(maps.device_mesh())
    algorithm = problem.algorithm("fedavg", server=SERVERS["varp"](learning_rate=1.0))
    state = problem.start(algorithm, jax.random.key(0))
    place = ownership.placement(client_map, state)

    def run(state):
        return problem.train(algorithm, jax.random.key(1), state=state, rounds=2, client_map=client_map)[0]

    program = jax.jit(run, donate_argnums=0, in_shardings=(place,), out_shardings=place)
    text = program.lower(state).compile().as_text()
    exchanged = re.findall(r"= (.*) (?:all-reduce|all-gather|all-to-all|collective-permute|copy)\(", text)
    assert any(f"f32[{problem.sizes.model_size}]" in shapes for shapes in exchanged), exchanged  # a row, in one
    assert not [shapes for shapes in exchanged if re.search(r"f32\[(24|12),", shapes)]


# Laws under a server with a state.

PAIRS = list(itertools.product(("fedavg", "fedeba_plus"), ("varp", "adam")))


def here(*kept):
    """All pairs; those not `kept` are slow. The laws cover every method; what is new here is the state of a server."""
    marked = [pytest.param(*pair, marks=() if pair in kept else pytest.mark.slow) for pair in PAIRS]
    return pytest.mark.parametrize(("name", "server"), marked)


@here(("fedavg", "varp"))
def test_client_maps_agree(x64, name, server):
    expected = simulated(name, (server, 0.1), cohort_size=5)
    for client_map in (maps.chunked(3), maps.sharded(maps.device_mesh())):
        close(simulated(name, (server, 0.1), cohort_size=5, client_map=client_map), expected, 1e-8)


@here(("fedavg", "varp"), ("fedavg", "adam"))
def test_swept_equals_single(x64, name, server):
    """Over the numbers of the server and the local rate: bit-equal under map, one trace."""
    problem, traces, rates = tiny(cohort_size=5), [], (np.array([0.5, 1.0, 0.1]), np.array([0.1, 0.2, 0.3]))

    def make_run(learning_rate, rate):
        traces.append(name)
        algorithm = problem.algorithm(name, rate=rate, server=SERVERS[server](learning_rate=learning_rate))
        return trained(problem, algorithm, rounds=2)

    program = jax.jit(make_run)
    single = [program(*point) for point in zip(*rates, strict=True)]
    single = jax.tree.map(lambda *leaves: np.stack(leaves), *single)
    for run_map, tolerance in [(maps.mapped, 0), (jax.vmap, 1e-8)]:
        traces.clear()
        close(jax.jit(lambda *p, m=run_map: fedeba_jax.sweep(make_run, p, run_map=m))(*rates), single, tolerance)
        assert len(traces) == 1
