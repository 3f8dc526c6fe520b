"""Server optimizers, FedVARP and MimeLite: vectors by hand, limits, twins, and the laws that must survive them."""

import functools
import inspect
import itertools
import types

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import fedeba_jax
from experiments import calls, points, run
from experiments.program import Seeds
from experiments.tasks import resolve, traced
from fedeba_jax import client_map as maps
from fedeba_jax import tree
from fedeba_jax.hyperparameters import hyperparameters
from fedeba_jax.data.federation import federate
from fedeba_jax.local import LocalTraining
from fedeba_jax.server import SERVERS, Memory, descent, momentum, sgd, variance_reduced, varp
from fedeba_jax.types import Sizes
from tests.support.problems import COUNTS, tiny
from tests.twins import TWINS
from tests.twins.baselines_weights import weighted_rounds
from tests.twins.varp import varp as varp_twin
from tests.twins.weights import angle_degrees, entropy_weights, example_weights, uniform_weights
from tests.test_experiments import MINI, settings
from tests.test_twins import ROUNDS, as_twin_problem

OURS = ("sgd", "momentum", "varp")
OPTAX = [name for name in SERVERS if name not in OURS]


def close(a, b, tolerance):
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, atol=tolerance, rtol=0), a, b)


# Optimizers.


def descended(server, deltas, start=(0.0, 0.0)):
    """x after each of the deltas."""
    state = server.init(jnp.array(start), Sizes(1, 1, 1, 2))
    for delta in deltas:
        state = server.descend(state, jnp.asarray(delta))
        yield state.params


DELTAS = ((1.0, -2.0), (0.5, 0.0), (0.0, 1.0))


@pytest.mark.parametrize(
    ("server", "expected"),
    [
        (momentum(0.9, form="heavy_ball"), ((1, -2), (2.4, -3.8), (3.66, -4.42))),
        (momentum(0.9), ((0.1, -0.2), (0.24, -0.38), (0.366, -0.442))),
        (momentum(0.9, 0.5), ((0.05, -0.1), (0.12, -0.19), (0.183, -0.221))),
        (momentum(0.0), ((1, -2), (1.5, -2), (1.5, -1))),
        (momentum(0.0, form="heavy_ball"), ((1, -2), (1.5, -2), (1.5, -1))),
        (sgd(1.0), ((1, -2), (1.5, -2), (1.5, -1))),
        (descent(optax.sgd(0.5)), ((0.5, -1), (0.75, -1), (0.75, -0.5))),
    ],
)
def test_momentum_vectors(server, expected):
    close(jnp.stack(list(descended(server, DELTAS))), jnp.array(expected, float), 1e-6)


def test_an_unknown_form_of_momentum_is_an_error():
    with pytest.raises(ValueError, match="form='nesterov' is not one of ema, heavy_ball"):
        momentum(0.9, form="nesterov")


def test_adam_by_hand():
    """The first step of Adam is the rate times the sign; a constant delta keeps it so."""
    for x, factor in zip(descended(SERVERS["adam"](0.1), [(4.0, -2.0)] * 3), (1, 2, 3), strict=True):
        close(x, jnp.array([0.1, -0.1]) * factor, 1e-5)


MODEL = {"w": np.array([[0.3, -1.0], [2.0, 0.5]]), "b": np.array([0.1, -0.2])}


def three_steps(server):
    """The states before and after."""
    first = state = server.init(jax.tree.map(jnp.asarray, MODEL), Sizes(1, 1, 1, 6))
    for k in (1.0, -0.4, 0.7):
        state = server.descend(state, jax.tree.map(lambda leaf, k=k: jnp.asarray(k * leaf), MODEL))
    return first, state


@pytest.mark.parametrize("name", OPTAX)
def test_numbers_of_an_optax_optimizer_may_be_traced(x64, name):
    """Traced it does what optax does with plain numbers; other numbers are served by the same program."""
    known = hyperparameters(SERVERS[name])
    plain = {"learning_rate": 0.01} | {k: h.default for k, h in known.items() if k != "learning_rate"}
    numbers = {k: float(v) for k, v in plain.items() if known[k].traced and v is not None}
    static = {k: v for k, v in plain.items() if k not in numbers}
    program = jax.jit(lambda numbers: three_steps(SERVERS[name](**numbers, **static)))
    first, last = program(numbers)
    assert jax.tree.map(jnp.shape, first) == jax.tree.map(jnp.shape, last)
    assert jax.tree.map(jnp.result_type, first) == jax.tree.map(jnp.result_type, last)
    close((first, last), jax.jit(lambda: three_steps(descent(getattr(optax, name)(**plain))))(), 1e-12)
    program({k: 0.9 * v for k, v in numbers.items()})
    assert program._cache_size() == 1


@pytest.mark.parametrize("name", OPTAX)
def test_an_optax_optimizer_keeps_its_names(name):
    offered, theirs = hyperparameters(SERVERS[name]), inspect.signature(getattr(optax, name)).parameters
    assert [k for k in theirs if k in offered] == list(offered)
    assert all(h.default == theirs[k].default for k, h in offered.items() if k != "learning_rate")
    assert calls.write(SERVERS, calls.parse(SERVERS, f"{name}(0.5)", "--server")) == f"{name}(0.5)"


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
    task = resolve("mnist_mlp", {"server": text})
    assert task.server == written
    found, rest = traced(task)
    assert (found["server"], rest["server"].arguments) == (numbers, static)


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
    name, values = points.parse_axis("server=adam(0.01),adam(0.1, b1=0.8),adam(0.1, nesterov=true),varp(1),varp(0.5)")
    made = points.make(
        ["fedavg"], points.grid([(name, values)]), task_name=MINI, task=resolve(MINI, {}), seeds=(0,),
        seeds_of=lambda s: Seeds(s, s, s), validation=0.1,
    )  # fmt: skip
    assert [len(group) for group in points.grouped(made)] == [2, 1, 2]


@pytest.mark.parametrize("server", ["adam(0.01, b1=0.8)", "varp(1.0)"])
def test_a_run_with_a_server_by_name(server, tmp_path):
    """Two chunks of a round: the server's state goes from one to the next."""
    result = run.train(settings("fedavg", server=server), tmp_path / "run", plot=False)
    assert not result.diverged
    assert np.isfinite(result.last["global"]["mean"]).all()


# FedVARP by hand.

LOCAL = LocalTraining(objective=None, learning_rate=1.0, steps=1)  # type: ignore[arg-type]


def heard(server, state, ids, deltas, weights=None, local=LOCAL, round_=0):
    """v and the next state."""
    ids, deltas = jnp.asarray(ids), jnp.asarray(deltas, jnp.result_type(float))
    weights = jnp.full((len(ids),), 1 / len(ids)) if weights is None else jnp.asarray(weights)
    examples = jnp.asarray(COUNTS)[ids]
    cohort = types.SimpleNamespace(id=ids, size=len(ids), round=round_, num_examples=examples, sum=tree.weighted_sum)
    state, v = server.receive(state, deltas, weights, cohort, local)
    return v, server.descend(state, v)


def four_clients(server=None, y=((1, 0), (0, 1), (2, 2), (0, 0))):
    """A server that heard y from everybody."""
    server = server or varp(1.0)
    _, state = heard(server, server.init(jnp.zeros(2), Sizes(4, 2, 1, 2)), range(4), y)
    return server, state


def test_varp_vectors():
    server, state = four_clients()
    close(state.memory, Memory(jnp.array([[1.0, 0], [0, 1], [2, 2], [0, 0]]), jnp.array([0.75, 0.75])), 1e-6)
    v, later = heard(server, state, [0, 2], [[3, 1], [2, 4]])
    close(v, jnp.array([1.75, 2.25]), 1e-6)
    close(later.params - state.params, v, 1e-6)
    close(later.memory, Memory(jnp.array([[3.0, 1], [0, 1], [2, 4], [0, 0]]), jnp.array([1.25, 1.5])), 1e-6)
    v, _ = heard(server, state, range(4), [[3, 1], [1, 1], [2, 4], [5, 0]])
    close(v, jnp.array([2.75, 1.5]), 1e-6)


def test_the_first_round_is_the_weighted_sum_itself():
    server, weights = varp(0.5), jnp.array([0.7, 0.3])
    deltas = jnp.array([[3.0, 1.0], [2.0, 4.0]])
    v, state = heard(server, server.init(jnp.zeros(2), Sizes(4, 2, 1, 2)), [3, 1], deltas, weights)
    np.testing.assert_array_equal(v, tree.weighted_sum(deltas, weights))
    close(state.params, 0.5 * v, 1e-7)


@pytest.mark.parametrize("weights", [(0.5, 0.5), (0.9, 0.1), (0.25, 0.15), (2, -1)])
def test_nothing_new_gives_the_mean_of_everybody(weights):
    """Delta_i = y_i: v = ybar, whatever the weights."""
    server, state = four_clients()
    v, later = heard(server, state, [0, 2], [[1, 0], [2, 2]], weights)
    close(v, jnp.array([0.75, 0.75]), 1e-6)
    close(later.memory, state.memory, 1e-6)


def test_one_client_alone():
    """M = n = 1: ybar is y, so FedVARP is gradient descent; Delta = 0 stays."""
    server = varp(1.0)
    state = server.init(jnp.zeros(2), Sizes(1, 1, 1, 2))
    for delta in ([1.0, 2.0], [0.5, 0.0], [0.0, 0.0]):
        v, state = heard(server, state, [0], [delta])
        close(v, jnp.array(delta), 1e-6)
    close(state.params, jnp.array([1.5, 2.0]), 1e-6)


def test_what_is_remembered_is_a_step_of_rate_one():
    """y = Delta / (eta_L K): at half the rate, or for twice the steps, the same gradient is nothing new."""
    for local, scale in [
        (LocalTraining(None, lambda t: 0.2 / (1 + t), steps=3), 0.5),
        (LocalTraining(None, lambda t: jnp.where(t == 0, 0.1, 0.3), steps=5), 3.0),
    ]:
        server, reach = varp(1.0), float(local.rate(0)) * local.steps
        state = server.init(jnp.zeros(2), Sizes(4, 2, 1, 2))
        _, state = heard(server, state, range(4), [[1, 0], [0, 1], [2, 2], [0, 0]], local=local)
        close(state.memory.last[2], jnp.array([2.0, 2.0]) / reach, 1e-5)
        v, _ = heard(server, state, [0, 2], scale * np.array([[1, 0], [2, 2]]), local=local, round_=jnp.asarray(1))
        close(v, scale * jnp.array([0.75, 0.75]), 1e-5)


def test_with_local_epochs_clients_count_by_their_own_steps():
    """COUNTS 7 and 12 in batches of 4 are 2 and 3 steps; y is a step of each."""
    local, server = LocalTraining(None, 0.5, epochs=1, batch_size=4), varp(1.0)
    _, state = heard(server, server.init(jnp.zeros(1), Sizes(4, 2, 1, 1)), [0, 2], [[1.0], [3.0]], local=local)
    close(state.memory, Memory(jnp.array([[1.0], [0], [2.0], [0]]), jnp.array([0.75])), 1e-6)
    v, _ = heard(server, state, [0, 2], [[1.0], [3.0]], [0.5, 0.5], local=local)
    close(v, jnp.array([0.5 * (0.5 * 2 + 0.5 * 3) * 0.75]), 1e-6)


def test_a_rate_of_zero_leaves_numbers():
    server, state = four_clients()
    v, state = heard(server, state, [0, 2], [[0, 0], [0, 0]], local=LocalTraining(None, 0.0, steps=3))
    close(v, jnp.zeros(2), 0)
    assert np.isfinite(np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(state)])).all()


def test_varp_composes_with_any_optimizer():
    server, state = four_clients(variance_reduced(optax.sgd(1.0, momentum=0.5)))
    v, later = heard(server, state, [0, 2], [[3, 1], [2, 4]])
    close(v, jnp.array([1.75, 2.25]), 1e-6)
    close(later.params - state.params, v + 0.5 * jnp.array([0.75, 0.75]), 1e-6)


def test_a_step_without_the_clients_updates_refuses_varp():
    server, state = four_clients()
    with pytest.raises(ValueError, match=r"server=varp needs the update of each client.*choose another server"):
        server.descend(state, jnp.zeros(2))
    with pytest.raises(ValueError, match="server=varp"):
        jax.vmap(server.descend)(jax.tree.map(lambda leaf: jnp.stack([leaf, leaf]), state), jnp.zeros((2, 2)))


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
    """(state, info), without evaluations."""
    key = jax.random.key(3)
    state = algorithm.init(key, problem.model.init, problem.sizes)
    return fedeba_jax.run_rounds(
        algorithm, problem.federation, state, key, 0, rounds=rounds, sizes=problem.sizes, client_map=client_map
    )


@functools.cache
def program(name, server, static=(), cohort_size=4, epochs=None, **changes):
    """Traced hyper-parameters -> (state, info); the server as text."""
    problem, call = tiny(cohort_size, epochs=epochs), calls.parse(SERVERS, server, "server")
    made = SERVERS[call.name](**call.arguments)

    def run(numbers):
        return trained(problem, problem.algorithm(name, server=made, **numbers, **dict(static)), **changes)

    return jax.jit(run)


def simulated(name, server, hparams=types.MappingProxyType({}), **changes):
    known = hyperparameters(fedeba_jax.ALGORITHMS[name])
    static = tuple((k, v) for k, v in hparams.items() if not known[k].traced)
    return program(name, server, static, **changes)({k: v for k, v in hparams.items() if known[k].traced})


def assert_varp_equals_twin(name, hparams, epochs=None):
    state, info = simulated(name, "varp(0.8)", hparams, epochs=epochs)
    slow = as_twin_problem(tiny(), jax.random.key(3), np.asarray(info["cohort"]), epochs)
    slow.server_rate, slow.aggregate = 0.8, varp_twin(slow, steps=1 if name == "fedsgd" else None)
    twin = practical if name == "prac_fedeba_plus" else TWINS[name]
    close(state.server.params, twin(slow, **hparams).params[-1], 1e-8)


@pytest.mark.parametrize(("name", "hparams"), VARP_CASES, ids=lambda v: v if isinstance(v, str) else None)
def test_varp_equals_its_twin(x64, name, hparams):
    assert_varp_equals_twin(name, hparams)


@pytest.mark.parametrize("name", ["fedavg", "prac_fedeba_plus"])
def test_varp_equals_its_twin_with_unequal_steps(x64, name):
    hparams = {} if name == "fedavg" else {"tau": 0.5, "alpha": 0.6, "theta": 20.0}
    assert_varp_equals_twin(name, hparams, epochs=2)


def test_varp_equals_its_twin_under_any_weights(x64):
    """Weights of any sum and sign, rates that change, five cohorts of four out of six."""
    rng, local, server = np.random.default_rng(0), LocalTraining(None, lambda t: 0.3 * 0.9**t, steps=3), varp(1.0)
    state = server.init(jnp.zeros(5), Sizes(6, 4, 1, 5))
    slow = types.SimpleNamespace(
        params=[(np.zeros(5),)], data=range(6), learning_rate=lambda t: 0.3 * 0.9**t, batches=None
    )
    aggregate = varp_twin(slow, steps=3)
    for t in range(5):
        ids, weights, deltas = rng.permutation(6)[:4], rng.normal(0.3, 1, 4), rng.normal(1, 1, (4, 5))
        v, state = heard(server, state, ids, deltas, weights, local, round_=t)
        close(v, aggregate(t, ids, weights, [[(delta,)] for delta in deltas])[0][0], 1e-10)


def test_full_participation_with_uniform_weights_is_the_plain_server(x64):
    uniform = {"weighting": "uniform"}
    varp, sgd = (simulated("fedavg", server, uniform, cohort_size=6)[0] for server in ("varp(1.0)", "sgd(1.0)"))
    close(varp.server.params, sgd.server.params, 1e-10)


def test_varp_reduces_the_variance_of_the_step():
    """Clients with constant, different updates: once all were heard, every cohort gives the mean of all."""
    deltas = np.random.default_rng(1).normal(size=(6, 3))
    server = varp(1.0)
    _, state = heard(server, server.init(jnp.zeros(3), Sizes(6, 2, 1, 3)), range(6), deltas)
    for ids in ([0, 1], [5, 2], [3, 4]):
        v, state = heard(server, state, ids, deltas[ids])
        close(v, jnp.asarray(deltas.mean(0), v.dtype), 1e-6)


@pytest.mark.parametrize("name", ["fedavg", "fedeba_plus"])
def test_the_running_mean_does_not_drift(name):
    """200 rounds in float32."""
    state, info = simulated(name, "varp(1.0)", rounds=200)
    last, mean = getattr(state.server, "server", state.server).memory  # a method with a memory keeps both
    assert info["finite"].all()
    close(mean, jax.tree.map(lambda leaf: np.asarray(leaf, np.float64).mean(0), last), 1e-6)


# Laws under a server with a state.

pairs = pytest.mark.parametrize(("name", "server"), itertools.product(("fedavg", "fedeba_plus"), ("varp", "adam")))


@pairs
def test_client_maps_agree(x64, name, server):
    expected = simulated(name, f"{server}(0.1)", cohort_size=5)
    for client_map in (maps.chunked(3), maps.sharded(maps.device_mesh())):
        close(simulated(name, f"{server}(0.1)", cohort_size=5, client_map=client_map), expected, 1e-8)


@pairs
def test_swept_equals_single(x64, name, server):
    """Over the numbers of the server and the local rate: bit-equal under map, one trace."""
    problem, traces, rates = tiny(cohort_size=5), [], (jnp.array([0.5, 1.0, 0.1]), jnp.array([0.1, 0.2, 0.3]))

    def make_run(learning_rate, rate):
        traces.append(name)
        algorithm = problem.algorithm(name, rate=rate, server=SERVERS[server](learning_rate=learning_rate))
        return trained(problem, algorithm, rounds=2)

    program = jax.jit(make_run)
    single = [program(*point) for point in zip(*rates, strict=True)]
    single = jax.tree.map(lambda *leaves: jnp.stack(leaves), *single)
    for run_map, tolerance in [(maps.mapped, 0), (jax.vmap, 1e-8)]:
        traces.clear()
        close(jax.jit(lambda *p, m=run_map: fedeba_jax.sweep(make_run, p, run_map=m))(*rates), single, tolerance)
        assert len(traces) == 1


# MimeLite.


def mime_round(beta, m, x=1.0, steps=3):
    """One round on F = (z - 3)^2 / 2 with a single client: the next x and m."""
    federation = federate(np.zeros((2, 1), np.uint8), np.zeros(2, np.int32), [np.arange(2)])
    local = LocalTraining(lambda z, *_: 0.5 * (z - 3) ** 2, 0.1, steps=steps, batch_size=1)
    algorithm = fedeba_jax.ALGORITHMS["mime_lite"](local, sgd(1.0), beta=beta)
    sizes = fedeba_jax.sizes_of(federation, lambda key: jnp.asarray(x), 1)
    state = algorithm.init(jax.random.key(0), lambda key: jnp.asarray(x), sizes)
    state = state._replace(server=state.server._replace(memory=jnp.asarray(m)))
    state, _ = fedeba_jax.run_round(
        algorithm, federation, state, jax.random.key(0), jnp.asarray(0), sizes=sizes, client_map=jax.vmap
    )
    return state.server.params, state.server.memory


def test_mime_lite_vector():
    x, m = mime_round(0.9, 0.2)
    assert x == pytest.approx(1.0059402, abs=1e-6)
    assert m == pytest.approx(-0.02, abs=1e-7)


def test_mime_lite_without_gradients_coasts():
    """beta = 1: K steps of -eta_L m, and m stays."""
    x, m = mime_round(1.0, 0.2, steps=4)
    assert (float(x), float(m)) == pytest.approx((1 - 4 * 0.1 * 0.2, 0.2))


def test_mime_lite_without_momentum_is_fedavg(x64):
    mime, plain = simulated("mime_lite", "sgd(1.0)", {"beta": 0.0})[0], simulated("fedavg", "sgd(1.0)")[0]
    close(mime.server.params, plain.server.params, 1e-12)


def test_mime_lite_s_momentum_is_the_mean_of_full_gradients(x64):
    """With one full-batch step of rate eta, Delta = -eta m_next: what is sent twice is the same there."""
    problem = tiny(cohort_size=6, steps=1, batch_size=12)
    state, _ = jax.jit(lambda: trained(problem, problem.algorithm("mime_lite", beta=0.5), rounds=1))()
    start = problem.model.init(jax.random.key(3))
    close(state.server.memory, tree.scale(-1 / 0.3, tree.subtract(state.server.params, start)), 1e-10)
