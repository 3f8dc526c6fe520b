"""Ditto, FOCUS and lp-proj: published vectors, limits where they meet other methods, and degenerate input.

`bowls` are clients with one example c each and F(v) = |v - c|^2 / 2; `rounds` runs three rounds of the tiny
classification problem, with a program for each combination of static values.
"""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import fedeba_jax
from fedeba_jax import client_map as maps
from fedeba_jax import tree
from fedeba_jax.algorithms.focus import assignments, shares
from fedeba_jax.algorithms.lp_proj import LpProjState, random_projection
from fedeba_jax.data.federation import federate
from fedeba_jax.evaluate import score
from fedeba_jax.hyperparameters import hyperparameters
from fedeba_jax.objectives import masked_mean
from fedeba_jax.types import State
from tests.support import vectors
from tests.support.marks import slow_but
from tests.support.problems import tiny

LP = {"dim": 4, "outer": 2, "inner": 2}  # small

ROUNDING = 1e-6  # of x_0, which two programs of the suite may draw with other last bits; a step is far larger


def close(actual, expected, atol=6e-9):
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=0, atol=atol), actual, expected)


def equal(actual, expected):
    jax.tree.map(np.testing.assert_array_equal, actual, expected)


def bowls(name, centres, *, rate, steps, state, rounds=1, **hparams):
    """The state after some rounds with everybody, from the given one (a function of the server)."""
    centres = np.asarray(centres, float)
    federation = federate(centres, np.zeros(len(centres), int), list(np.arange(len(centres))[:, None]))

    def distance(params, batch, key, round_, train):
        return masked_mean(0.5 * ((params[None] - batch.x) ** 2).sum(-1), batch.mask)

    local = fedeba_jax.LocalTraining(objective=distance, learning_rate=rate, steps=steps)
    server = fedeba_jax.descent(optax.sgd(1.0))
    sizes = fedeba_jax.sizes_of(federation, lambda key: jnp.zeros(centres.shape[1]), len(centres))
    algorithm = fedeba_jax.ALGORITHMS[name](local, server, **hparams)
    return jax.jit(
        lambda state: fedeba_jax.run_rounds(
            algorithm, federation, state, jax.random.key(0), 0, rounds=rounds, sizes=sizes, client_map=jax.vmap
        )
    )(state(lambda params: server.init(params, sizes)))[0]


def rounds(name, *, cohort_size=4, batch_size=4, rate=0.3, server=1.0, federation=None, dtype=None, **hparams):
    """(state, info) after three rounds of the tiny problem."""
    known = hyperparameters(fedeba_jax.ALGORITHMS[name])
    traced = {k: float(v) for k, v in hparams.items() if known[k].traced}
    static = tuple((k, v) for k, v in hparams.items() if k not in traced)
    problem, key = tiny(cohort_size, batch_size=batch_size), jax.random.key(3)
    start = problem.start(problem.algorithm(name, **hparams), key, dtype)
    run = program(name, static, cohort_size, batch_size, jax.config.jax_enable_x64)
    return run(start, key, rate, server, traced, federation or problem.federation)


@functools.cache
def program(name, static, cohort_size, batch_size, x64):
    problem = tiny(cohort_size, batch_size=batch_size)

    @jax.jit
    def run(state, key, rate, server, traced, federation):
        optimizer = fedeba_jax.descent(optax.sgd(server))
        algorithm = problem.algorithm(name, rate=rate, server=optimizer, **dict(static), **traced)
        with_data = dataclasses.replace(problem, federation=federation)
        return with_data.train(algorithm, key, state=state, rounds=3)

    return run


def scored(name, state, **static):
    """Scores of a state; values of hyper-parameters that do not matter here need not be given."""
    return scoring(name, tuple(static.items()), jax.config.jax_enable_x64)(state)


@functools.cache
def scoring(name, static, x64):
    problem = tiny()
    algorithm = problem.algorithm(name, **dict(static))
    return jax.jit(
        lambda state: score(algorithm, state, problem.test, apply=problem.model.apply, client_map=maps.mapped)
    )


def identical_clients(federation):
    index = jnp.broadcast_to(federation.rows[0], federation.rows.shape)
    return federation._replace(
        rows=index, num_examples=jnp.full_like(federation.num_examples, federation.num_examples[0])
    )


# Ditto.


@pytest.mark.parametrize(("lam", "steps", "expected"), vectors.DITTO)
def test_ditto_vector(x64, lam, steps, expected):
    def start(init):
        return State(init(jnp.array([1.0, 1.0])), jnp.array([[0.5, -1.0]]))

    state = bowls("ditto", [(3, 0)], rate=0.1, steps=steps, state=start, lam=lam)
    close(state.clients[0], expected)


def test_ditto_rounds_by_hand(x64):
    """w = (1, 1), (1, .9); v = (1, 1), (1.2, .9) and then a step along (-1.8, .9) + (v - w) / 2."""
    x = jnp.array([1.0, 1.0])
    state = bowls("ditto", [(3, 0), (-1, 0)], rate=0.1, steps=1, rounds=2, lam=0.5,
                  state=lambda init: State(init(x), jnp.stack([x, x])))  # fmt: skip
    close(state.clients[0], (1.37, 0.81))


@pytest.mark.parametrize("lam", [0.0, 0.5, 7.0])
@pytest.mark.parametrize("weighting", slow_but(["examples"], ["uniform", "examples"]))
def test_ditto_s_global_model_is_fedavg_s_to_the_bit(lam, weighting):
    state, info = rounds("ditto", lam=lam, weighting=weighting)
    expected, fedavg_info = rounds("fedavg", weighting=weighting)
    equal(state.server, expected.server)
    equal(scored("ditto", state)["global"], scored("fedavg", expected)["global"])
    equal({k: info[k] for k in fedavg_info}, fedavg_info)


def test_ditto_without_a_tie_trains_alone_whatever_the_server_does(x64):
    close(rounds("ditto", lam=0.0)[0].clients, rounds("ditto", lam=0.0, server=0.1)[0].clients, 1e-12)


def test_ditto_with_a_strong_tie_is_the_model_that_was_sent(x64):
    def start(init):
        return State(init(jnp.array([1.0, 1.0])), jnp.array([[0.5, -1.0]]))

    state = bowls("ditto", [(3, 0)], rate=1e-7, steps=3, state=start, lam=1e7)
    close(state.clients[0], (1.0, 1.0), 1e-6)


def test_a_client_that_was_never_sampled_keeps_the_first_model():
    state, info = rounds("ditto", cohort_size=1)
    absent = np.setdiff1d(np.arange(6), info["cohort"])
    close(tree.rows(state.clients, absent), tree.repeat(tiny().model.init(jax.random.key(3)), len(absent)), ROUNDING)


# FOCUS.

PI = jnp.array([[0.5, 0.5], [0.5, 0.5], [0.2, 0.8]])
LOSSES = jnp.array([[0.3, 1.3], [1.0, 0.4], [0.7, 0.7]])


def test_focus_vector():
    pi = assignments(PI, LOSSES)
    close(pi, np.array([[0.73105858, 0.26894142], [0.35434369, 0.64565631], [0.2, 0.8]]), 1e-7)
    theta = jnp.array([[1.0, 10], [2, 20], [4, 40]])
    close((shares(pi) * theta).sum(0), np.array([1.74244749, 27.76309543]), 1e-5)


def test_focus_assignments(x64):
    damped = assignments(PI, LOSSES, 0.5)
    close(damped, 0.5 * PI + 0.5 * assignments(PI, LOSSES))
    close(assignments(PI, jnp.full((3, 2), 1.7)), PI, 1e-15)
    close(assignments(PI, LOSSES, 1.0), PI, 1e-15)
    sure = assignments(PI, jnp.array([[0.0, 5e3], [5e3, 0.0], [0.0, 0.0]]))
    close(sure.sum(1), np.ones(3), 1e-15)
    assert sure.min() == pytest.approx(1e-8)
    back = assignments(sure, jnp.array([[50.0, 0.0], [0.0, 50.0], [0.0, 0.0]]))
    assert back[0, 1] > 0.99  # the floor lets a client return


def test_focus_keeps_a_cluster_that_nobody_is_in():
    equal(shares(jnp.array([[1.0, 0.0], [1.0, 0.0]])), np.array([[0.5, 0.0], [0.5, 0.0]]))


def test_focus_of_one_cluster_is_uniform_fedavg(x64):
    state, _ = rounds("focus", clusters=1)
    expected, _ = rounds("fedavg", weighting="uniform")
    scores, fedavg_scores = scored("focus", state, clusters=1), scored("fedavg", expected)
    close(tree.rows(state.server.params, 0), expected.server.params, 1e-12)
    close(scores["personal"], fedavg_scores["global"], 1e-9)
    close(scores["cluster_0"], fedavg_scores["global"], 1e-9)


def test_focus_of_identical_clusters_stays_identical(x64):
    """The same initial models, which independent keys would not give, and the same batches."""
    problem, x = tiny(), tiny().model.init(jax.random.key(3))
    alike = dataclasses.replace(problem, model=problem.model._replace(init=lambda key: x))
    state, info = jax.jit(lambda key: alike.train(alike.algorithm("focus", clusters=3), key, rounds=3))(
        jax.random.key(3)
    )
    close(state.clients, np.full((6, 3), 1 / 3), 1e-12)
    close(info["pi_entropy"], np.full(3, np.log(3)), 1e-12)
    first = tree.rows(state.server.params, 0)
    close(state.server.params, tree.repeat(first, 3), 1e-12)
    close(first, rounds("fedavg", weighting="uniform")[0].server.params, 1e-12)


def test_focus_clusters_start_apart_and_the_first_where_other_methods_do():
    problem = tiny()
    init = problem.algorithm("focus", clusters=3).init
    params = init(jax.random.key(3), problem.model.init, problem.sizes).server.params
    equal(tree.rows(params, 0), problem.model.init(jax.random.key(3)))
    weights = params[0][0]
    assert all(abs(weights[i] - weights[j]).min() > 1e-4 for i, j in ((0, 1), (0, 2), (1, 2)))


def test_focus_finds_the_clusters(x64):
    """Two groups of bowls around +-1, models that start on either side."""

    def start(init):
        return State(jax.vmap(init)(jnp.array([[0.1], [-0.1]])), jnp.full((4, 2), 0.5))

    state = bowls("focus", [(1.0,), (1.2,), (-1.0,), (-1.2,)], rate=0.5, steps=3, rounds=20, state=start)
    close(state.clients.round(6), np.array([[1, 0], [1, 0], [0, 1], [0, 1]]))
    close(state.server.params, np.array([[1.1], [-1.1]]), 1e-4)


def test_focus_predicts_with_the_mixture_and_has_no_global_model():
    state, _ = rounds("focus")
    assert set(scored("focus", state)) == {"cluster_0", "cluster_1", "personal"}
    mixture = tiny().algorithm("focus").personalize(state.server, state.clients[2])
    equal(mixture.params, state.server.params)
    close(mixture.weights, state.clients[2], 1e-6)
    close(state.clients.sum(1), np.ones(6), 1e-6)


# lp-proj.

P = np.array([[0.6, 0.8, 0.0], [0.0, 0.6, -0.8]])
THETA, W = np.array([1.0, 2.0, -1.0]), np.array([0.5, 3.0])


def tied(theta, w, *, projection=P, centre, **hparams):
    """(theta, w) of one client after a round at rate 0.1."""
    theta, w, projection = (jnp.asarray(array) for array in (theta, w, projection))
    state = bowls("lp_proj", [centre], rate=0.1, steps=1,
                  state=lambda init: State(LpProjState(init(w), projection), theta[None]), **hparams)  # fmt: skip
    return state.clients[0], state.server.shared.params


def test_lp_proj_vector(x64):
    one = {"dim": 2, "outer": 1, "inner": 1, "centre": THETA - np.array([0.1, -0.2, 0.3])}
    theta, w = tied(THETA, W, **one)
    close(theta, np.array([0.09, 1.72, -2.23]), 1e-12)
    close(W - tree.products(P, theta), np.array([-0.93, 0.184]), 1e-12)
    close(w, np.array([2.0, 1.5]), 1e-12)
    theta, w = tied(THETA, W, **one, lam=0.0)
    close(theta, np.array([0.99, 2.02, -1.03]), 1e-12)
    close(w, W, 0)


def test_lp_proj_damped_steps_stop_at_zero(x64):
    """theta stays: its gradient is clipped to next to nothing, and P = 0 lets no tie reach it."""
    one = {"dim": 2, "outer": 1, "inner": 1, "clip": 1e-12, "centre": THETA, "projection": jnp.zeros((2, 3))}
    _, w = tied(THETA, jnp.array([-1.7, 1.0]), **one, damped=True)
    close(w, np.array([-0.2, 0.0]), 1e-12)  # |c| = 1.7 and 1, lam eta = 1.5
    _, w = tied(THETA, jnp.array([-1.7, 1.0]), **one)
    close(w, np.array([-0.2, -0.5]), 1e-12)
    _, w = tied(THETA, jnp.zeros(2), **one)
    close(w, np.zeros(2), 0)  # sign(0) = 0


@pytest.mark.parametrize(("clip", "theta", "w"), [(60.0, 0.37, 0.4), (1.0, 0.4, 0.4)])
def test_lp_proj_by_hand(x64, clip, theta, w):
    """F = (theta - 3)^2 / 2, P = 1, lam eta = .2: (theta, w) = (0, 0), (.3, .2), (.3 + .27 - .2, .4).

    With gradients of at most 1: (.1, .2), (.1 + .1 + .2, .4).
    """
    one = {"dim": 1, "outer": 2, "inner": 1, "lam": 2.0, "centre": (3.0,), "projection": jnp.eye(1)}
    close(tied(jnp.zeros(1), jnp.zeros(1), **one, clip=clip), (np.array([theta]), np.array([w])), 1e-12)


def test_lp_proj_of_the_identity_is_pfedme(x64):
    """P = I, p = 2: theta is the proximal point (c + lam w) / (1 + lam), and w <- w - eta lam (w - theta)."""
    centres, w = np.array([(3.0, 0.0), (1.0, 2.0)]), np.zeros(2)
    state = bowls("lp_proj", centres, rate=0.1, steps=1, rounds=2, dim=2, lam=2.0, p=2, outer=1, inner=300,
                  state=lambda init: State(LpProjState(init(jnp.zeros(2)), jnp.eye(2)), jnp.zeros((2, 2))))  # fmt: skip
    for _ in range(2):
        w = np.mean(w - 0.1 * 2.0 * (w - (centres + 2.0 * w) / 3.0), axis=0)
    close(state.server.shared.params, w, 1e-12)


def test_lp_proj_without_a_tie_is_local_training(x64):
    """outer x inner = 3 visits are K steps; so is one repeat of 3. w stays where it was."""
    alone = rounds("ditto", lam=0.0)[0].clients
    for outer, inner in ((1, 3), (3, 1)):
        state, _ = rounds("lp_proj", dim=4, lam=0.0, outer=outer, inner=inner, clip=1e6)
        close(state.clients, alone, 1e-12)
        close(state.server.shared.params, np.zeros(4), 0)


def test_lp_proj_projects_with_random_rows_of_length_one():
    like = tiny().model.init(jax.random.key(0))
    drawn = random_projection(jax.random.key(1), like, 50)
    rows = np.hstack([np.asarray(leaf).reshape(50, -1) for leaf in jax.tree.leaves(drawn)])
    close((rows**2).sum(1), np.ones(50), 1e-6)
    assert abs(rows.mean()) < 0.02
    assert abs(rows.std() - 39**-0.5) < 0.01


@pytest.mark.parametrize("train_all", [False, True])
def test_lp_proj_can_train_those_outside_the_cohort(train_all):
    state, info = rounds("lp_proj", cohort_size=1, **LP, train_all=train_all)
    assert info["cohort"].shape == (3, 1)
    start = tiny().model.init(jax.random.key(3))
    moved = abs(state.clients[0][0] - start[0][0][None]).max((1, 2)) > ROUNDING
    assert set(np.flatnonzero(moved)) == (set(range(6)) if train_all else set(info["cohort"].ravel().tolist()))


def test_lp_proj_is_scored_by_its_personal_models_and_their_mean():
    state, _ = rounds("lp_proj", **LP)
    assert set(scored("lp_proj", state, **LP)) == {"mean_theta", "personal"}
    mean = jax.tree.map(lambda leaf: leaf.mean(0), state.clients)
    close(tiny().algorithm("lp_proj", **LP).models(state), {"mean_theta": mean}, 1e-6)


def test_lp_proj_knows_two_norms():
    with pytest.raises(ValueError, match="p=3 is not one of 1, 2"):
        tiny().algorithm("lp_proj", p=3)


# What is sent, kept and checked.


@pytest.mark.parametrize(
    ("name", "hparams", "floats"),
    [
        ("ditto", {}, (39, 39, 1)),  # personal models stay
        ("focus", {}, (2 * 39, 2 * (39 + 1), 1)),  # models down; updates and losses up
        ("lp_proj", LP, (4, 4, 0)),  # w; P comes from the seed
        ("lp_proj", LP | {"cohort_size": 1, "train_all": True}, (4, 4, 0)),
    ],
)
def test_traffic_of_a_client(name, hparams, floats):
    _, info = rounds(name, **hparams)
    assert tuple(int(info[k][0]) for k in ("floats_down", "floats_up", "exchanges")) == floats


@pytest.mark.parametrize("name", ["ditto", "focus", "lp_proj"])
def test_client_state_in_bfloat16_takes_half_and_computes_in_float32(name):
    static = LP if name == "lp_proj" else {}
    full, _ = rounds(name, **static)
    half, info = rounds(name, dtype="bfloat16", **static)
    scores, rounded_scores = scored(name, full, **static), scored(name, half, **static)
    assert {leaf.dtype for leaf in jax.tree.leaves(half.clients)} == {jnp.dtype("bfloat16")}
    assert 2 * tree.num_bytes(half.clients) == tree.num_bytes(full.clients)
    assert {leaf.dtype for leaf in jax.tree.leaves((half.server, rounded_scores))} == {jnp.dtype("float32")}
    assert info["finite"].all()
    if name != "lp_proj":  # whose signs are chaotic
        close(tree.cast(half.clients, jnp.float32), full.clients, 0.05)
        close(rounded_scores["personal"].loss, scores["personal"].loss, 0.05)


def test_client_state_in_float32_is_what_the_algorithm_makes():
    (kept, info), (usual, usual_info) = rounds("ditto", dtype="float32"), rounds("ditto")
    equal((kept, info, scored("ditto", kept)), (usual, usual_info, scored("ditto", usual)))


def test_a_personal_model_that_diverges_is_told():
    """v leaves w_t by a factor of 1e9 a step, from the second on; the global model is fine."""
    state, info = rounds("ditto", lam=3e9)
    assert info["finite"].tolist() == [True, False, False]
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(state.server))


# Degenerate input.


@pytest.mark.parametrize(("name", "hparams"), [("ditto", {}), ("focus", {}), ("lp_proj", LP)])
@pytest.mark.parametrize("cohort_size", slow_but([1], [1, 6]))
def test_one_client_and_all_clients(name, hparams, cohort_size):
    state, info = rounds(name, cohort_size=cohort_size, **hparams)
    scores = scored(name, state, **hparams)
    assert info["finite"].all()
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves((state, info, scores)))


@pytest.mark.parametrize(("name", "hparams"), [("ditto", {}), ("focus", {}), ("lp_proj", LP)])
def test_identical_clients_have_identical_models(x64, name, hparams):
    """The whole set in every step: keys do not matter."""
    alike = identical_clients(tiny().federation)
    state, info = rounds(name, cohort_size=6, batch_size=12, federation=alike, **hparams)
    close(state.clients, tree.repeat(tree.rows(state.clients, 0), 6), 1e-12)
    close(info["weight_max"], np.full(3, 1 / 6), 1e-12)


@pytest.mark.parametrize("damped", [False, True])
def test_lp_proj_stays_put_at_rate_zero(damped):
    state, _ = rounds("lp_proj", rate=0.0, **LP, damped=damped)
    close(state.clients, tree.repeat(tiny().model.init(jax.random.key(3)), 6), ROUNDING)
    equal(state.server.shared.params, np.zeros(4))


def test_evaluation_has_personal_scores_only_where_there_are_personal_models():
    problem = tiny()
    for name, personal in (("fedavg", False), ("ditto", True)):
        algorithm = problem.algorithm(name)
        state = algorithm.init(jax.random.key(0), problem.model.init, problem.sizes)
        scores = score(algorithm, state, problem.test, apply=problem.model.apply, client_map=maps.mapped)
        assert ("personal" in scores) == personal
        if personal:  # before the first round every personal model is the global one
            close(scores["personal"], scores["global"], 1e-5)
