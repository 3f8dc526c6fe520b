"""LSR: the specification's numbers, its limits, a NumPy twin of value and gradient, and what trains with it."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import fedeba_jax
from fedeba_jax import augment
from fedeba_jax.data.federation import federate
from fedeba_jax.examples import take
from fedeba_jax.objectives import cross_entropy, jensen_shannon, lsr, robust_losses
from fedeba_jax.rounds import round_keys
from fedeba_jax.types import Batch, Client, LocalData, Model
from tests.support.marks import slow_but
from tests.support.problems import tiny
from tests.twins import lsr as twin
from tests.twins import network

Z = np.array([[2, 0.5, -1], [0, 1, 0.2]])
Z_VIEW = np.array([[1.5, 0.7, -0.5], [0.3, 0.4, 0.1]])
Y = np.array([0, 2])
TERMS = {"gamma": 0.4, "sharpening": 0.5, "distillation": 1 / 3, "entropy": None, "mode": "paper"}
ROUNDS = 50
SIDE, CLASSES = 6, 4


jitted_losses = jax.jit(robust_losses, static_argnames="mode")


def losses(mix=0.7, z=Z, z_view=Z_VIEW, y=Y, **changes):
    return jitted_losses(z, z_view, y, mix, **(TERMS | changes))


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, 0.93286590),
        ({"gamma": 0.0}, 0.90749068),
        ({"gamma": 1.0}, 0.90749068 + 0.06343806),
        ({"mode": "reference", "gamma": 0.0}, 0.94338437),
        ({"mode": "reference", "gamma": 1.0}, 0.94338437 + 0.02114602),
        ({"mode": "reference"}, 0.95184278),
        ({"mode": "reference", "entropy": 0.6}, 1.55066045),
        ({"entropy": 0.6}, 0.93286590 + 0.6 * 0.99802946),
    ],
)
def test_the_numbers_of_the_specification(x64, changes, expected):
    np.testing.assert_allclose(losses(**changes).mean(), expected, atol=1.5e-8)


def test_the_sharpened_prediction_and_the_divergence_by_example(x64):
    p_s = np.exp([-losses(gamma=0.0, y=np.array([c, c])) for c in range(3)]).T
    expected = [[0.92239494, 0.07286371, 0.00474135], [0.15943077, 0.66402777, 0.17654146]]
    np.testing.assert_allclose(p_s, expected, atol=1e-8)
    np.testing.assert_allclose(losses(gamma=1.0) - losses(gamma=0.0), [0.01692863, 0.10994749], atol=1e-8)


@pytest.mark.parametrize("mode", ["paper", "reference"])
@pytest.mark.parametrize("mix", [0.0, 0.3, 0.5, 1 - 1e-7])
def test_a_view_that_is_the_example_itself_costs_nothing_and_mixes_to_it(x64, mode, mix):
    same = losses(mix, z_view=Z, mode=mode)
    np.testing.assert_allclose(same, losses(0.5, z_view=Z, mode=mode, gamma=0.0), atol=1e-12)


def test_without_its_parts_it_is_the_cross_entropy(x64):
    plain = optax.softmax_cross_entropy_with_integer_labels(jnp.asarray(Z), jnp.asarray(Y))
    np.testing.assert_allclose(losses(0.2, z_view=Z, gamma=0.0, sharpening=1.0), plain, atol=1e-12)


@pytest.mark.parametrize("scale", [0.1, 3.0, 100.0, 1e4])
def test_the_divergence_lies_between_0_and_ln_2(scale):
    z = scale * np.random.default_rng(0).normal(size=(2, 500, 10)).astype(np.float32)
    p, q = jax.jit(jax.nn.log_softmax)(z)
    divergence = jax.jit(jensen_shannon)
    values = np.asarray(divergence(p, q))
    assert values.min() >= -1e-6
    assert values.max() <= np.log(2) + 1e-6
    np.testing.assert_allclose(divergence(p, p), 0, atol=1e-6)
    np.testing.assert_allclose(values, divergence(q, p), atol=1e-6)
    if scale >= 1e4:
        assert values.max() > np.log(2) - 1e-3


def test_the_reference_s_classification_loss_is_bounded(x64):
    z = 50 * np.random.default_rng(0).normal(size=(500, 10))
    values = losses(0.5, z, z, np.zeros(500, int), gamma=0.0, mode="reference")
    assert values.min() >= 1.46115
    assert values.max() <= 2.46116
    np.testing.assert_allclose([values.min(), values.max()], [1.46115, 2.46115], atol=1e-5)


@pytest.mark.parametrize("mode", ["paper", "reference"])
def test_extreme_logits_give_finite_losses_and_gradients(mode):
    @jax.jit
    @jax.vmap
    def value_and_grad(mix, z, view):
        def mean(z, view):
            return robust_losses(z, view, jnp.array([1, 2]), mix, **(TERMS | {"mode": mode, "entropy": 0.6})).mean()

        return jax.value_and_grad(mean, argnums=(0, 1))(z, view)

    extreme = [[1e4, -1e4, 0], [-1e4, 1e4, 1e4], [0, 0, 0], [1e30, 0, -1e30]]
    cases = [(mix, [logits, [1, 2, 3]], [[1, 0, -1], logits]) for mix in (0.0, 0.5, 1 - 1e-7) for logits in extreme]
    results = value_and_grad(*(np.array(part, np.float32) for part in zip(*cases, strict=True)))
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(results))


def image_mlp():
    """A small network over images, flattened: params as the twins have them."""
    sizes = [(SIDE * SIDE, 5), (5,), (5, CLASSES), (CLASSES,)]

    def init(key):
        keys = jax.random.split(key, 4)
        w1, b1, w2, b2 = (jax.random.normal(k, s) / s[0] ** 0.5 for k, s in zip(keys, sizes, strict=True))
        return [(w1, b1), (w2, b2)]

    def apply(params, x):
        (w1, b1), (w2, b2) = params
        return jax.nn.relu(x.reshape(x.shape[0], -1) @ w1 + b1[None]) @ w2 + b2[None]

    return Model(init, apply)


def evaluated(objective):
    """Value and gradient, compiled."""
    return jax.jit(jax.value_and_grad(objective), static_argnums=4)


def images(count, seed=0, dtype=float):
    rng = np.random.default_rng(seed)
    x, y = rng.uniform(0, 1, (count, SIDE, SIDE, 1)).astype(dtype), rng.integers(0, CLASSES, count)
    return Batch(jnp.asarray(x), jnp.asarray(y, jnp.int32), jnp.ones(count, dtype))


def twin_objective(params, batch, key, t, train, gamma=0.3, warmup=0.2, **terms):
    """The mean over unmasked examples, of the views and the lambda that the fast code draws."""
    mix_key, view_key = jax.random.split(key if train else jax.random.key(0))
    mix = float(jax.random.uniform(mix_key)) if train else 0.5
    views = jax.jit(augment.batch_view)(view_key, batch.x)
    z, z_view = (network.logits(params, np.asarray(x).reshape(len(x), -1)) for x in (batch.x, views))
    weight = twin.weight(gamma, t, ROUNDS, warmup)
    rows = np.flatnonzero(np.asarray(batch.mask))
    return np.mean([twin.loss(z[i], z_view[i], int(batch.y[i]), mix, weight, **terms) for i in rows])


CASES = [
    ({}, {}),
    ({"warmup": 0.0}, {"warmup": 0.0}),
    ({"sharpening": 0.8, "distillation": 0.9}, {"sharpening": 0.8, "distillation": 0.9}),
    ({"mode": "reference"}, {"reference": True, "entropy": 0.6}),
    ({"mode": "reference", "entropy": 0.0}, {"reference": True}),
    ({"entropy": 0.2}, {"entropy": 0.2}),
]


@pytest.mark.parametrize(("hparams", "terms"), CASES)
@pytest.mark.parametrize("train", slow_but([True], [True, False]))
def test_value_and_gradient_are_the_twin_s(x64, hparams, terms, train):
    """Gradients by central differences: both branches are differentiated, neither is a fixed target."""
    model, batch, key, t = image_mlp(), images(5), jax.random.key(7), 4
    batch = batch._replace(mask=batch.mask.at[3].set(0))
    objective = lsr(model, ROUNDS, gamma=0.3, **hparams)
    params = model.init(jax.random.key(1))
    value, gradient = evaluated(objective)(params, batch, key, t, train)
    numpy = jax.tree.map(np.array, params)
    np.testing.assert_allclose(value, twin_objective(numpy, batch, key, t, train, **terms), atol=1e-10)
    rng = np.random.default_rng(0)
    for layer, gradients in zip(numpy, gradient, strict=True):
        for leaf, slope in zip(layer, gradients, strict=True):
            place = tuple(rng.integers(0, size) for size in leaf.shape)
            ends = []
            for step in (1e-5, -1e-5):
                leaf[place] += step
                ends.append(twin_objective(numpy, batch, key, t, train, **terms))
                leaf[place] -= step
            np.testing.assert_allclose(slope[place], (ends[0] - ends[1]) / 2e-5, atol=1e-8)


def test_the_weight_grows_over_the_warm_up(x64):
    model, batch, key = image_mlp(), images(5), jax.random.key(7)
    params = model.init(jax.random.key(1))

    @jax.jit
    def value(gamma, t):
        return lsr(model, ROUNDS, gamma=gamma)(params, batch, key, t, True)

    whole = value(0.5, 30) - value(0.0, 30)
    assert whole > 0.01
    for t, share in [(0, 0.0), (4, 0.4), (10, 1.0), (49, 1.0)]:
        np.testing.assert_allclose(value(0.5, t) - value(0.0, t), share * whole, atol=1e-12)


@pytest.mark.parametrize("train", [True, False])
def test_padding_counts_for_nothing(x64, train):
    """Whatever stands in masked rows, and however many there are."""
    model, key = image_mlp(), jax.random.key(7)
    params, objective = model.init(jax.random.key(1)), evaluated(lsr(model, ROUNDS))
    batch = images(6)
    masked = batch._replace(mask=jnp.asarray([1.0, 1, 1, 1, 0, 0]))
    garbage = masked._replace(x=masked.x.at[4:].set(9.0), y=masked.y.at[4:].set(0))
    short = Batch(*(leaf[:4] for leaf in batch))
    results = [objective(params, b, key, 20, train) for b in (masked, garbage, short)]
    for other in results[1:]:
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-12), results[0], other)
    value, gradient = objective(params, batch._replace(mask=jnp.zeros(6)), key, 20, train)
    assert not any(leaf.any() for leaf in jax.tree.leaves((value, gradient)))


def test_training_draws_and_evaluation_does_not():
    model, batch = image_mlp(), images(5, dtype=np.float32)
    params, objective = model.init(jax.random.key(1)), jax.jit(lsr(model, ROUNDS), static_argnums=4)
    values = {
        train: {float(objective(params, batch, jax.random.key(k), 20, train)) for k in range(4)}
        for train in (True, False)
    }
    assert (len(values[True]), len(values[False])) == (4, 1)


def test_a_batch_shares_one_lambda(x64):
    """The same example twice, with the same view, has the same loss."""
    model, one = image_mlp(), images(1)
    params = model.init(jax.random.key(1))
    pair = Batch(*(jnp.concatenate([leaf, leaf]) for leaf in one))
    objective = jax.jit(lsr(model, ROUNDS, per_batch=True), static_argnums=4)
    halves = [pair._replace(mask=jnp.asarray(mask)) for mask in ([1.0, 0.0], [0.0, 1.0])]
    first, second = (objective(params, half, jax.random.key(3), 20, True) for half in halves)
    np.testing.assert_allclose(first, second, atol=1e-14)


def test_the_same_views_work_without_images_and_give_the_sharpened_cross_entropy(x64):
    problem = tiny()
    params = problem.model.init(jax.random.key(0))
    batch = Batch(problem.federation.x[:7] / 255, problem.federation.y[:7], jnp.ones(7))
    arguments = (params, batch, jax.random.key(0), jnp.asarray(3), True)
    plain = lsr(problem.model, ROUNDS, views="same", sharpening=1.0)
    values = [jax.jit(one, static_argnums=4)(*arguments) for one in (plain, cross_entropy(problem.model))]
    np.testing.assert_allclose(*values, atol=1e-12)
    with pytest.raises(ValueError, match="there is no auto view"):
        lsr(problem.model, ROUNDS)(*arguments)


@pytest.mark.parametrize(("name", "value"), [("mode", "code"), ("views", "mirrored")])
def test_a_wrong_word_is_told(name, value):
    with pytest.raises(ValueError, match=f"{name}='{value}' is not one of"):
        lsr(image_mlp(), ROUNDS, **{name: value})


COUNTS = (7, 3, 12, 1)


@pytest.fixture(scope="module")
def federation():
    """Ragged clients with images."""
    batch = images(sum(COUNTS), seed=5)
    owned = np.split(np.arange(sum(COUNTS)), np.cumsum(COUNTS)[:-1])
    return federate((255 * np.asarray(batch.x)).astype(np.uint8), np.asarray(batch.y), owned)


def robust_training():
    objective = lsr(image_mlp(), ROUNDS, gamma=0.3)
    return fedeba_jax.LocalTraining(objective=objective, learning_rate=0.2, steps=3, batch_size=4, block=5)


def clients_of(federation, key, t):
    """All clients as the round t of a run with this key meets them, stacked."""
    keys = round_keys(key, t)[1]
    ids = np.arange(len(COUNTS))
    data = LocalData(federation.x, federation.y, federation.rows, federation.num_examples)
    own = Client(ids, jax.vmap(jax.random.fold_in, in_axes=(None, 0))(keys, ids), data, (), jnp.asarray(t))
    return own, Client(0, 0, LocalData(None, None, 0, 0), (), None)


def test_the_loss_that_weighs_clients_is_the_robust_loss_of_all_their_data(x64, federation):
    """At lambda = 1/2, block by block with the same views, whatever the client's key."""
    params = image_mlp().init(jax.random.key(1))
    numpy = jax.tree.map(np.array, params)
    clients, axes = clients_of(federation, jax.random.key(0), 20)
    fast = jax.jit(jax.vmap(robust_training().loss, in_axes=(axes, None)))(clients, params)
    for i, count in enumerate(COUNTS):
        rows = np.asarray(federation.rows[i])[:count]
        slow = 0.0
        for block in np.split(rows, np.arange(4, count, 4)):  # the capacity of 12 in equal blocks of at most 5
            batch = Batch(take(federation.x, block), federation.y[block], jnp.ones(len(block)))
            slow += len(block) / count * twin_objective(numpy, batch, jax.random.key(0), 20, False)
        np.testing.assert_allclose(fast[i], slow, atol=1e-10)


def test_entropy_based_weights_are_those_of_the_robust_losses(x64, federation):
    local, model, key, tau = robust_training(), image_mlp(), jax.random.key(2), 0.1
    algorithm = fedeba_jax.ALGORITHMS["fedeba"](local, fedeba_jax.descent(optax.sgd(1.0)), tau=tau)
    sizes = fedeba_jax.sizes_of(federation, model.init, len(COUNTS))
    state = algorithm.init(key, model.init, sizes)
    results = [
        jax.jit(
            lambda state, client_map=client_map: fedeba_jax.run_round(
                algorithm, federation, state, key, jnp.asarray(20), sizes=sizes, client_map=client_map
            )
        )(state)
        for client_map in (jax.vmap, fedeba_jax.client_map.mapped)
    ]
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-12), *results)

    def trained_loss(client, params):
        return local.loss(client, jax.tree.map(jnp.add, params, local.train(client, params).delta))

    clients, axes = clients_of(federation, key, 20)
    losses = jax.jit(jax.vmap(trained_loss, in_axes=(axes, None)))(clients, state.server.params)
    np.testing.assert_allclose(results[0][1]["weight_max"], jax.nn.softmax(losses / tau).max(), atol=1e-12)


def test_many_numbers_share_a_compilation():
    model, batch = image_mlp(), images(5, dtype=np.float32)
    params, traces = model.init(jax.random.key(1)), []

    @jax.jit
    def value(gamma, sharpening, distillation, warmup):
        traces.append(1)
        objective = lsr(model, ROUNDS, gamma=gamma, sharpening=sharpening, distillation=distillation, warmup=warmup)
        return objective(params, batch, jax.random.key(0), jnp.asarray(5), True)

    base = (0.4, 0.5, 0.3, 0.2)
    others = [(*base[:i], number, *base[i + 1 :]) for i, number in enumerate((0.0, 1.0, 1.0, 0.0))]
    results = {float(value(*numbers)) for numbers in [base, *others]}
    assert (len(traces), len(results)) == (1, 5)
