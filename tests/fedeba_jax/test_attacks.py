"""Attacks by hand: who attacks, what they send, what they say of their losses, and what stays honest."""

import functools
import inspect

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fedeba_jax
from fedeba_jax import aggregation, attacks, lies, trust
from fedeba_jax.attacks import ATTACKS, Attackers
from fedeba_jax.cohort import Judged
from fedeba_jax.local import LocalUpdate
from fedeba_jax.method import declared
from fedeba_jax.types import Private, Sizes
from tests.support import byzfl_vectors
from tests.support.attacked import rounds_under
from tests.support.exchanges import X, cohort, scaled
from tests.support.problems import CLASSES, tiny

N = 6
MASK = np.array([False, True, False, False, True, False])
HONEST = ~MASK
IDS = np.array([7, 3, 5, 2, 9, 8])  # the honest client with the lowest id is at place 3
UPDATES = np.random.default_rng(0).normal(size=(N, 4))
LOSSES = np.array([0.4, 0.5, 0.6, 0.9, 0.3, 0.2])


def made(name, **changes):
    """An attack on half of the clients; of those that need the task, with its classes and its rule."""
    supplied = {"num_classes": CLASSES, "aggregator": None, "share": 0.5}
    known = inspect.signature(ATTACKS[name]).parameters
    return ATTACKS[name](**{key: value for key, value in supplied.items() if key in known} | changes)


def forging(attack, sent=None, mask=MASK):
    attackers = Attackers(attack, jnp.asarray(IDS), jnp.asarray(mask), jax.random.key(0))
    model = jnp.zeros(UPDATES.shape[1]) if sent is None else sent
    return jax.jit(lambda replies: attackers.forged(replies, model, jax.vmap))


def forged(attack, replies, sent=None, mask=MASK):
    return forging(attack, sent, mask)(replies)


MEAN, STD = UPDATES[HONEST].mean(0), UPDATES[HONEST].std(0, ddof=1)
SENT = {  # what the attackers send
    "label_flipping": lambda: UPDATES[MASK],
    "sign_flipping": lambda: -UPDATES[MASK],
    "scaling": lambda: -10 * UPDATES[MASK],
    "inner_product_manipulation": lambda: np.tile(-2 * MEAN, (2, 1)),
    "a_little_is_enough": lambda: np.tile(MEAN + 1.5 * STD, (2, 1)),
    "mimic": lambda: UPDATES[[3, 3]],
    "inf": lambda: np.full((2, 4), np.inf),
}


@pytest.mark.parametrize("name", SENT)
def test_what_attackers_send_and_what_honest_clients_send(x64, name):
    found = forged(made(name), UPDATES)
    np.testing.assert_array_equal(found[HONEST], UPDATES[HONEST])
    np.testing.assert_allclose(found[MASK], SENT[name](), atol=1e-12)


def test_noise_has_its_mean_and_deviation_and_is_the_same_from_all(x64):
    updates = np.zeros((N, 4000))
    found = forged(made("gaussian", mu=3.0, sigma=0.5), updates, jnp.zeros(4000))
    np.testing.assert_array_equal(found[1], found[4])
    np.testing.assert_allclose([found[1].mean(), found[1].std()], [3.0, 0.5], atol=0.05)
    assert not found[HONEST].any()


def searched(function, evaluations=20, delta=10.0):
    """ByzFL's search, as its code has it."""
    best, value = 0.0, function(0.0)
    expands = True
    for _ in range(evaluations - 1):
        proposed = function(best + delta)
        better = proposed > value
        if better:
            best, value = best + delta, proposed
        expands = expands and better
        delta *= 2 if expands else 0.8
    return best


@pytest.mark.parametrize(("name", "direction"), [("opt_ipm", -MEAN), ("opt_alie", STD)])
def test_the_factor_is_searched_against_the_rule_in_use(x64, name, direction):
    middle = np.zeros(4) if name == "opt_ipm" else MEAN

    def distance(x):
        sent = np.where(MASK[:, None], middle + x * direction, UPDATES)
        return np.linalg.norm(np.median(sent, axis=0) - MEAN)

    found = forged(made(name, aggregator=aggregation.median()), UPDATES)
    expected = middle + searched(distance) * direction
    np.testing.assert_allclose(found[MASK], np.tile(expected, (2, 1)), rtol=1e-9)
    against_a_mean = forged(made(name), UPDATES)
    assert np.linalg.norm(against_a_mean[1]) > 1e4 * np.linalg.norm(found[1]), "a mean follows any factor"


def test_a_search_against_guards_gets_more_through_them(x64):
    """Far along the deviation, which is positive, nothing agrees with updates that are negative in the mean."""
    updates, guards = UPDATES - 1.0, trust.agreeing(2.0)
    middle = updates[HONEST].mean(0)

    def moved(rule):
        sent = forged(made("opt_alie", aggregator=rule), updates)
        return np.linalg.norm(guards(jnp.asarray(sent), jnp.arange(N))[0] - middle)

    assert moved(guards) > 1.2 * moved(None)


@pytest.mark.parametrize("rule", ["median()", "trimmed_mean(2)", "meamed(2)", "trimmed_mean(2, first=nnm(2))"])
@pytest.mark.parametrize("name", ["opt_ipm", "opt_alie"])
def test_a_search_by_some_coordinates_of_a_large_model_goes_as_far(x64, monkeypatch, name, rule):
    """Coordinates with scales from e^-3 to e^3 or so, of which one in fifteen is looked at."""
    rng = np.random.default_rng(0)
    updates = rng.normal(1.0, 1.0, (N, 60_000)) * np.exp(rng.normal(size=60_000))
    made_rule = eval(rule, aggregation.AGGREGATORS | aggregation.FIRSTS)
    middle = updates[HONEST].mean(0)

    def distance():
        sent = forged(made(name, aggregator=made_rule), updates, jnp.zeros(60_000))
        np.testing.assert_array_equal(sent[HONEST], updates[HONEST])
        return np.linalg.norm(made_rule(jnp.asarray(sent), jnp.arange(N))[0] - middle)

    by_some = distance()
    monkeypatch.setattr(attacks, "SEARCHED", 60_000)
    assert by_some > 0.9 * distance()  # a search ends in one of several peaks, so it may also come farther


VECTORS = {key: vector for key, vector in byzfl_vectors.vectors().items() if vector.kind == "attack"}
OF_BYZFL = ("inner_product_manipulation", "a_little_is_enough", "mimic", "inf", "opt_ipm", "opt_alie")


def test_vectors_are_of_every_attack_that_byzfl_has_and_does_not_draw():
    assert {vector.name for vector in VECTORS.values()} == set(OF_BYZFL)


@pytest.mark.parametrize("name", OF_BYZFL)
def test_vectors_of_byzfl(x64, name):
    """Each attacker sends what ByzFL's would, which sees the honest updates alone: here in the order of their ids."""
    known = {**{other: functools.partial(made, other) for other in ATTACKS}, **aggregation.AGGREGATORS}
    send = functools.cache(lambda call: forging(eval(call, known)))
    places = [place for place in np.argsort(IDS) if HONEST[place]]
    for key, vector in VECTORS.items():
        if vector.name == name:
            updates = np.zeros(UPDATES.shape)
            updates[places] = vector.updates
            found = send(vector.call)(updates)[MASK]
            np.testing.assert_allclose(found, [vector.expected] * 2, rtol=1e-9, atol=1e-9, err_msg=key)


@pytest.mark.parametrize(
    ("lie", "said"),
    [
        (lies.honest(), LOSSES[MASK]),
        (lies.inflate(), LOSSES[MASK] + 100),
        (lies.inflate(add=1.0, factor=3.0), 3 * LOSSES[MASK] + 1),
        (lies.max_plus(), [1.9, 1.9]),
        (lies.zero(), [0.0, 0.0]),
    ],
)
def test_what_attackers_say_of_their_losses(x64, lie, said):
    found = forged(made("mimic", loss=lie), LOSSES)
    np.testing.assert_allclose(found[MASK], said, atol=1e-12)
    np.testing.assert_array_equal(found[HONEST], LOSSES[HONEST])
    several = forged(made("mimic", loss=lie), np.stack([LOSSES, LOSSES], axis=1))  # losses of two models
    np.testing.assert_array_equal(several, np.stack([found, found], axis=1))


@pytest.mark.parametrize("name", fedeba_jax.ALGORITHMS)
def test_a_method_declares_whether_it_hears_losses(name):
    heard = []
    lie = lies.Lie("overheard", lambda losses, attackers: heard.append(losses.shape) or losses)
    problem, key = tiny(5), jax.random.key(0)
    algorithm = problem.algorithm(name)

    def one_round():
        return fedeba_jax.run_round(
            algorithm, problem.federation, problem.start(algorithm, key), key, jnp.asarray(0),
            sizes=problem.sizes, client_map=jax.vmap, attack=attacks.mimic(0.4, loss=lie),
        )  # fmt: skip

    jax.eval_shape(one_round)
    assert bool(heard) == declared(fedeba_jax.ALGORITHMS[name]).hears_losses


def test_parts_of_a_reply_are_told_apart_by_their_structure(x64):
    model = {"w": jnp.zeros((2, 2)), "b": jnp.zeros(3)}
    update = {"w": jnp.ones((N, 2, 2)), "b": jnp.ones((N, 3))}
    own = Private({"w": jnp.ones((N, 2, 2)), "b": jnp.ones((N, 3))})
    replies = (LocalUpdate(delta=update, loss=jnp.asarray(LOSSES)), own, jnp.arange(N), jnp.ones((N, 3)))
    reply, private, counts, losses = forged(made("sign_flipping", loss=lies.zero()), replies, model)
    for leaf in jax.tree.leaves(reply.delta):
        assert (leaf[MASK] == -1).all()
        assert (leaf[HONEST] == 1).all()
    assert not reply.loss[MASK].any()
    assert reply.initial_loss is None
    assert all((leaf == 1).all() for leaf in jax.tree.leaves(private))
    np.testing.assert_array_equal(counts, np.arange(N))
    np.testing.assert_array_equal(losses, np.where(MASK, 0, 1)[:, None] * np.ones((1, 3)))


def test_attackers_alone_have_nobody_to_look_at_but_themselves(x64):
    everybody = np.ones(N, bool)
    found = forged(made("inner_product_manipulation", loss=lies.max_plus()), (UPDATES, LOSSES), mask=everybody)
    np.testing.assert_allclose(found[0], np.tile(-2 * UPDATES.mean(0), (N, 1)), atol=1e-12)
    np.testing.assert_allclose(found[1], np.full(N, 1.9))


def test_a_share_of_the_clients_attacks_and_stays_the_same():
    sizes, ids, attack = Sizes(50, 5, 1, 1), jnp.array([3, 14, 15, 20, 21]), made("mimic", share=0.2)
    fixed = np.asarray(attacks.fixed(jax.random.key(4), 0.2, 50))
    assert fixed.sum() == 10
    for t in (0, 1, 7):
        mask, _ = attack.draw(0.2, jax.random.key(4), jnp.asarray(t), ids, sizes)
        np.testing.assert_array_equal(mask, fixed[np.asarray(ids)])
    assert (np.asarray(attacks.fixed(jax.random.key(5), 0.2, 50)) != fixed).any()


def test_attackers_that_are_drawn_are_that_share_of_each_cohort_in_whatever_order():
    attack, ids = made("mimic", drawn=True), jnp.arange(10, 20)
    sets = []
    for t in range(6):
        mask, _ = attack.draw(0.3, jax.random.key(4), jnp.asarray(t), ids, Sizes(50, 10, 1, 1))
        turned, _ = attack.draw(0.3, jax.random.key(4), jnp.asarray(t), ids[::-1], Sizes(50, 10, 1, 1))
        np.testing.assert_array_equal(mask, turned[::-1])
        assert mask.sum() == 3
        sets.append(tuple(np.asarray(mask)))
    assert len(set(sets)) > 1


# In a round.


def one_round(problem, attack):
    key = jax.random.key(3)
    algorithm = problem.algorithm("fedeba", tau=0.5)
    return fedeba_jax.run_round(
        algorithm, problem.federation, problem.start(algorithm, key), key, jnp.asarray(0),
        sizes=problem.sizes, client_map=jax.vmap, attack=attack,
    )  # fmt: skip


def test_nobody_attacks_at_share_zero_and_one_program_serves_all_shares(x64):
    problem = tiny(6)
    without, _ = jax.jit(lambda: one_round(problem, None))()
    run = jax.jit(lambda share: one_round(problem, made("sign_flipping", share=share, loss=lies.max_plus())))
    state, info = run(0.0)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-12), state, without)
    assert info["attacker_weight"] == 0
    other, info = run(0.34)
    assert run._cache_size() == 1
    assert not np.allclose(jax.tree.leaves(other.server.params)[0], jax.tree.leaves(state.server.params)[0])
    assert info["attacker_weight"] > 2 / 6, "who lies about losses weighs more than a uniform share"


def test_flipped_labels_are_those_of_attackers_alone(x64):
    """The same as honest clients of a federation in which the attackers' labels are flipped."""
    problem = tiny(6)
    federation = problem.federation
    attackers = np.asarray(attacks.fixed(jax.random.key(3), 0.34, 6))
    labels = np.array(federation.y)
    for i in np.flatnonzero(attackers):
        own = np.asarray(federation.rows)[i, : federation.num_examples[i]]
        labels[own] = CLASSES - 1 - labels[own]
    algorithm, key = problem.algorithm("fedavg"), jax.random.key(3)

    @jax.jit
    def run(federation, share):
        attack = made("label_flipping", share=share)
        state = problem.start(algorithm, key)
        return fedeba_jax.run_rounds(
            algorithm, federation, state, key, 0, rounds=2, sizes=problem.sizes, client_map=jax.vmap, attack=attack
        )[0].server.params

    expected = run(federation._replace(y=jnp.asarray(labels)), 0.0)
    jax.tree.map(np.testing.assert_array_equal, run(federation, 0.34), expected)


@pytest.mark.parametrize("likely", [True, False])
def test_sums_and_guesses_meet_the_same_attack(likely):
    """`ask_sum` and both ways of `ask_then_sum` bring the sum of what the attackers send."""
    attack = made("scaling", factor=-3.0, loss=lies.inflate(add=7.0))
    of = cohort()
    of._attackers = Attackers(attack, of.id, jnp.array([False, True, False]), jax.random.key(0))
    weights = jnp.array([0.2, 0.5, 0.3])
    signs = jnp.array([1.0, -3.0, 1.0])
    sizes = of.num_examples.astype(float)
    expected = jax.tree.map(lambda leaf: jnp.vdot(weights * signs, sizes) * leaf, X)

    def judge(numbers):
        return Judged(weights, jnp.asarray(True))

    def loss(client, x):
        return client.id.astype(float)

    def both(client, x):
        return loss(client, x), scaled(client, x)

    numbers, _, total = of.ask_then_sum(loss, both, judge, X, likely=likely)
    np.testing.assert_allclose(numbers, [4, 7, 2])
    for found in (total, of.ask_sum(scaled, weights, X)):
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-6), found, expected)


@pytest.mark.parametrize("method", ["qffl", "fedmgda_plus", "term", "afl"])
def test_weights_have_no_part_in_a_robust_rule(method):
    """Attackers who send inf, or say that they are badly off, do not even change the length of the step."""
    problem, key, attack = tiny(5), jax.random.key(0), made("inf", share=0.4, loss=lies.inflate())

    def model_after(name):
        server = fedeba_jax.robust(fedeba_jax.server.sgd(1.0), aggregation.median())
        algorithm = problem.algorithm(name, server=server)
        state, _ = jax.jit(
            lambda: fedeba_jax.run_round(
                algorithm, problem.federation, problem.start(algorithm, key), key, jnp.asarray(0),
                sizes=problem.sizes, client_map=jax.vmap, attack=attack,
            )
        )()  # fmt: skip
        return algorithm.models(state)["global"]

    close = functools.partial(np.testing.assert_allclose, rtol=1e-5, atol=1e-7)
    jax.tree.map(close, model_after(method), model_after("fedavg"))


def test_personal_models_of_label_flippers_are_those_of_their_true_labels(x64):
    """In the first round, which begins with the same model for all."""
    (honest, _), (poisoned, _) = (
        rounds_under(functools.partial(attacks.label_flipping, CLASSES), "ditto", cohort_size=6)(share)
        for share in (0.0, 0.34)
    )
    close = functools.partial(np.testing.assert_allclose, rtol=1e-12)
    jax.tree.map(close, poisoned.clients, honest.clients)
    first = [jax.tree.leaves(state.server.params)[0] for state in (honest, poisoned)]
    assert not np.allclose(*first)


def test_what_is_no_label_is_not_flipped():
    np.testing.assert_array_equal(made("label_flipping").poison(jnp.array([-1, 0, 2])), [-1, 2, 0])


def test_privacy_of_clients_goes_with_no_attack():
    run = rounds_under(attacks.sign_flipping, "fedavg", privacy=fedeba_jax.privacy.client(1.0))
    with pytest.raises(ValueError, match="privacy=client with an attack is not possible: a client clips"):
        run(0.34)


@pytest.mark.parametrize("method", ["fedavg", "fedeba"])
def test_at_share_zero_every_bit_is_that_of_no_attack(method):
    without = rounds_under(lambda _: None, method)(0.0)[0]
    attack = functools.partial(attacks.sign_flipping, loss=lies.max_plus())
    jax.tree.map(np.testing.assert_array_equal, rounds_under(attack, method)(0.0)[0], without)
