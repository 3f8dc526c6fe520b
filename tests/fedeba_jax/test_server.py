"""How an update becomes the next model: optimizers, FedVARP and noise, by hand."""

import inspect
import types

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from fedeba_jax import privacy, tree
from fedeba_jax.hyperparameters import hyperparameters
from fedeba_jax.local import LocalTraining
from fedeba_jax.server import SERVERS, Memory, descent, momentum, sgd, variance_reduced, varp
from fedeba_jax.types import ByClient, Sizes
from fedeba_jax.weights import by_examples, uniform
from tests.support.marks import slow_but
from tests.support.problems import COUNTS
from tests.twins.varp import varp as varp_twin

OURS = ("sgd", "momentum", "varp")
OPTAX = [name for name in SERVERS if name not in OURS]
LOCAL = LocalTraining(objective=None, learning_rate=1.0, steps=1)  # type: ignore[arg-type]


def close(a, b, tolerance):
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, atol=tolerance, rtol=0), a, b)


# One step.

X = {"w": jnp.array([1.0, 2.0])}
UPDATES = {"w": jnp.array([[-0.1, 0.2], [0.3, 0.0], [-0.2, -0.4]])}


def states(optimizer, *deltas):
    server = descent(optimizer)
    state = server.init(X, Sizes(3, 3, 1, 2))
    for delta in deltas:
        state = server.descend(state, {"w": jnp.asarray(delta)})
        yield state


@pytest.mark.parametrize(
    ("weights", "expected"),
    [(uniform(3), (1.0, 1.93333333)), (by_examples(jnp.array([10, 30, 60])), (0.96, 1.78))],
    ids=["uniform", "examples"],
)
def test_a_rate_of_one_adds_the_weighted_updates(weights, expected):
    (state,) = states(optax.sgd(1.0), tree.weighted_sum(UPDATES, weights)["w"])
    np.testing.assert_allclose(state.params["w"], expected, rtol=1e-6)


def test_the_server_rate_scales_the_step():
    (state,) = states(optax.sgd(0.5), [1.0, -2.0])
    np.testing.assert_allclose(state.params["w"], [1.5, 1.0])


def test_server_momentum_by_hand():
    """v = 0.5 v + delta: 1, then 1.5; x = 1 + 1 + 1.5."""
    _, state = states(optax.sgd(1.0, momentum=0.5), [1.0, 0.0], [1.0, 0.0])
    np.testing.assert_allclose(state.params["w"], [3.5, 2.0])


def test_an_update_of_zero_is_a_fixed_point():
    (state,) = states(optax.sgd(1.0), [0.0, 0.0])
    np.testing.assert_array_equal(state.params["w"], X["w"])


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


@pytest.mark.parametrize(
    ("name", "arguments", "message"),
    [
        ("sgd", {"learning_rate": -1}, "sgd: learning_rate=-1 is not valid; give a finite number > 0"),
        (
            "varp",
            {"learning_rate": np.inf},
            "varp: learning_rate=inf (not finite in programs) is not valid; give a finite number > 0",
        ),
        ("momentum", {"beta": 2.0}, "momentum: beta=2.0 is not valid; give a finite number in [0, 1]"),
        ("adam", {"learning_rate": 0.0}, "adam: learning_rate=0.0 is not valid; give a finite number > 0"),
        ("adam", {"learning_rate": 0.1, "b1": np.nan}, "adam: b1=nan is not valid; give a finite number"),
    ],
)
def test_numbers_that_no_server_takes_are_refused(name, arguments, message):
    with pytest.raises(ValueError) as error:
        SERVERS[name](**arguments)
    assert str(error.value) == message


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


@pytest.mark.parametrize("name", slow_but(["adam", "momentum", "yogi", "adamw", "rmsprop"], OPTAX))
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


# FedVARP by hand.


def with_rows(ids, clients):
    """What a cohort of these clients does with rows that a server keeps, on one device."""
    return {
        "num_clients": clients,
        "rows": lambda kept: kept.rows[ids],
        "set_rows": lambda kept, values: ByClient(kept.rows.at[ids].set(values)),
    }


def heard(server, state, ids, deltas, weights=None, local=LOCAL, round_=0):
    """v and the next state."""
    ids, deltas = jnp.asarray(ids), jnp.asarray(deltas, jnp.result_type(float))
    weights = jnp.full((len(ids),), 1 / len(ids)) if weights is None else jnp.asarray(weights)
    examples = jnp.asarray(COUNTS)[ids]
    cohort = types.SimpleNamespace(
        id=ids, size=len(ids), round=round_, num_examples=examples, sum=tree.weighted_sum,
        weigh=lambda weights: None, **with_rows(ids, len(state.memory.last.rows)),
    )  # fmt: skip
    state, v = server.receive(state, deltas, weights, cohort, local)
    return v, server.descend(state, v)


def four_clients(server=None, y=((1, 0), (0, 1), (2, 2), (0, 0))):
    """A server that heard y from everybody."""
    server = server or varp(1.0)
    _, state = heard(server, server.init(jnp.zeros(2), Sizes(4, 2, 1, 2)), range(4), y)
    return server, state


def test_varp_vectors():
    server, state = four_clients()
    close(state.memory, Memory(ByClient(jnp.array([[1.0, 0], [0, 1], [2, 2], [0, 0]])), jnp.array([0.75, 0.75])), 1e-6)
    v, later = heard(server, state, [0, 2], [[3, 1], [2, 4]])
    close(v, jnp.array([1.75, 2.25]), 1e-6)
    close(later.params - state.params, v, 1e-6)
    close(later.memory, Memory(ByClient(jnp.array([[3.0, 1], [0, 1], [2, 4], [0, 0]])), jnp.array([1.25, 1.5])), 1e-6)
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


def test_what_is_remembered_is_an_update_at_rate_one():
    """y = Delta / eta_L: at half the rate, half the update is nothing new."""
    for local, scale in [
        (LocalTraining(None, lambda t: 0.2 / (1 + t), steps=3), 0.5),
        (LocalTraining(None, lambda t: jnp.where(t == 0, 0.1, 0.3), steps=5), 3.0),
    ]:
        server = varp(1.0)
        state = server.init(jnp.zeros(2), Sizes(4, 2, 1, 2))
        _, state = heard(server, state, range(4), [[1, 0], [0, 1], [2, 2], [0, 0]], local=local)
        close(state.memory.last.rows[2], jnp.array([2.0, 2.0]) / float(local.rate(0)), 1e-5)
        v, _ = heard(server, state, [0, 2], scale * np.array([[1, 0], [2, 2]]), local=local, round_=jnp.asarray(1))
        close(v, scale * jnp.array([0.75, 0.75]), 1e-5)


def test_with_local_epochs_an_update_is_remembered_whole():
    """COUNTS 7 and 12 in batches of 4 are 2 and 3 steps, in every round: y is an update of each, whatever its steps."""
    local, server = LocalTraining(None, 0.5, epochs=1, batch_size=4), varp(1.0)
    _, state = heard(server, server.init(jnp.zeros(1), Sizes(4, 2, 1, 1)), [0, 2], [[1.0], [3.0]], local=local)
    close(state.memory, Memory(ByClient(jnp.array([[2.0], [0], [6.0], [0]])), jnp.array([2.0])), 1e-6)
    v, _ = heard(server, state, [0, 2], [[1.0], [3.0]], [0.5, 0.5], local=local)
    close(v, jnp.array([1.0]), 1e-6)  # nothing new: the mean of 1, 0, 3, 0


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


def test_varp_equals_its_twin_under_any_weights(x64):
    """Weights of any sum and sign, rates that change, five cohorts of four out of six."""
    rng, local, server = np.random.default_rng(0), LocalTraining(None, lambda t: 0.3 * 0.9**t, steps=3), varp(1.0)
    state = server.init(jnp.zeros(5), Sizes(6, 4, 1, 5))
    slow = types.SimpleNamespace(params=[(np.zeros(5),)], data=range(6), learning_rate=lambda t: 0.3 * 0.9**t)
    aggregate = varp_twin(slow)
    for t in range(5):
        ids, weights, deltas = rng.permutation(6)[:4], rng.normal(0.3, 1, 4), rng.normal(1, 1, (4, 5))
        v, state = heard(server, state, ids, deltas, weights, local, round_=t)
        close(v, aggregate(t, ids, weights, [[(delta,)] for delta in deltas])[0][0], 1e-10)


def test_varp_reduces_the_variance_of_the_step():
    """Clients with constant, different updates: once all were heard, every cohort gives the mean of all."""
    deltas = np.random.default_rng(1).normal(size=(6, 3))
    server = varp(1.0)
    _, state = heard(server, server.init(jnp.zeros(3), Sizes(6, 2, 1, 3)), range(6), deltas)
    for ids in ([0, 1], [5, 2], [3, 4]):
        v, state = heard(server, state, ids, deltas[ids])
        close(v, jnp.asarray(deltas.mean(0), v.dtype), 1e-6)


# Under privacy.

WEIGHTS = jnp.array([0.5, 0.5])


def private_cohort():
    examples = jnp.ones(2, int)
    return types.SimpleNamespace(
        id=jnp.arange(2), size=2, round=0, num_examples=examples, key=jax.random.key(9),
        sum=tree.weighted_sum, weigh=lambda weights: None, is_attacked=False, **with_rows(jnp.arange(2), 2),
    )  # fmt: skip


def test_a_client_private_server_refuses_weights_without_a_known_bound():
    """What one client could weigh is what the noise must hide."""
    server = privacy.client(1.0).server(sgd(1.0))
    state = server.init(jnp.zeros(2), Sizes(2, 2, 1, 2))
    for call in (server.receive, server.step):
        with pytest.raises(ValueError, match=r"privacy=client is not possible here: .*weights without a known bound"):
            call(state, jnp.ones((2, 2)), WEIGHTS, private_cohort(), LOCAL)
    after = server.step(state, jnp.ones((2, 2)), WEIGHTS, private_cohort(), LOCAL, 0.5)
    assert np.isfinite(after.params).all()


@pytest.mark.parametrize("most", [0.5, 0.8])
def test_a_client_private_server_adds_noise_for_the_largest_weight(most):
    """x + sum p_i Delta_i + sigma 2 P C N(0, I)."""
    server = privacy.client(3.0, clip=0.1).server(sgd(1.0))
    state = server.init(jnp.zeros(2), Sizes(2, 2, 1, 2))
    cohort = private_cohort()
    after = server.step(state, jnp.array([[1.0, 0.0], [0.0, 2.0]]), WEIGHTS, cohort, LOCAL, most)
    noise = privacy.noise(jax.random.fold_in(cohort.key, privacy.KEY), jnp.zeros(2))
    close(after.params, jnp.array([0.5, 1.0]) + 3.0 * 2 * most * 0.1 * noise, 1e-6)


@pytest.mark.parametrize("make", [sgd, varp, momentum])
def test_servers_do_not_mind_the_largest_weight(make):
    server, deltas = make(learning_rate=0.5), jnp.array([[1.0, 0.0], [0.0, 2.0]])
    state = server.init(jnp.zeros(2), Sizes(2, 2, 1, 2))
    results = [server.step(state, deltas, WEIGHTS, private_cohort(), LOCAL, *most) for most in ((), (None,), (0.7,))]
    for other in results[1:]:
        jax.tree.map(np.testing.assert_array_equal, results[0], other)


def test_a_plain_server_publishes_as_it_is():
    vector = {"w": jnp.arange(3.0)}
    for server in (sgd(1.0), varp(1.0), SERVERS["adam"](0.1), privacy.client(1.0).server(sgd(1.0))):
        assert server.publish(vector, private_cohort(), LOCAL) is vector


def test_the_paper_s_mode_wraps_what_is_published_and_nothing_else():
    """z min(1, C / |z|) + N(0, (sigma C / B)^2)."""
    plain, vector, cohort = sgd(1.0), jnp.array([3.0, 4.0]), private_cohort()
    server = privacy.paper(2.0, clip=1.0).server(plain)
    assert (server.init, server.receive, server.descend) == (plain.init, plain.receive, plain.descend)
    noise = privacy.noise(jax.random.fold_in(cohort.key, privacy.KEY), vector)
    local = LocalTraining(None, 1.0, batch_size=8)
    close(server.publish(vector, cohort, local), jnp.array([0.6, 0.8]) + 2.0 / 8 * noise, 1e-6)
    with pytest.raises(ValueError, match="batch size"):
        server.publish(vector, cohort, LocalTraining(None, 1.0, batch_size=None))
