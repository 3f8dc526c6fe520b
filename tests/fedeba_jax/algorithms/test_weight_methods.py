"""TERM, PropFair, CoreFed, FedwAvg and FedDisco: published vectors, invariants, and input that tempts a NaN."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import fedeba_jax
from fedeba_jax import sampling
from fedeba_jax.algorithms.feddisco import disco_weights, label_counts
from fedeba_jax.algorithms.fedwavg import correct, forgetting_weights
from fedeba_jax.algorithms.propfair import chain_rule, proportional
from fedeba_jax.algorithms.term import tilted
from fedeba_jax.objectives import masked_mean
from fedeba_jax.types import Federation, Sizes
from fedeba_jax.weights import entropy_based, normalised
from tests.support import vectors
from tests.support.clients import (
    CENTRES,
    COUNTS,
    LABELS,
    LOCAL,
    STARTS,
    VALUES,
    client,
    drawn,
    examples,
    labelled,
    nearest,
)
from tests.support.dictated import play
from tests.support.marks import slow_but
from tests.support.problems import tiny
from tests.support.vectors import UNIFORM

LOSSES = np.array([0.5, 1.0, 2.0])


def close(actual, expected, atol=6e-9):
    np.testing.assert_allclose(actual, expected, rtol=0, atol=atol)


@functools.cache
def trained(name, rate=0.3, identical=False, **hparams):
    """The model after three rounds of the tiny problem; or of one where every client holds the same data."""
    problem, key = tiny(), jax.random.key(3)
    if identical:
        problem = dataclasses.replace(tiny(cohort_size=6), batch_size=12).relabelled(np.full(6, 2))
    algorithm = problem.algorithm(name, rate=rate, **hparams)
    state = algorithm.init(key, problem.model.init, problem.sizes)
    return jax.jit(
        lambda state: fedeba_jax.run_rounds(
            algorithm, problem.federation, state, key, 0, rounds=3, sizes=problem.sizes, client_map=jax.vmap
        )
    )(state)[0].server.params


def same(left, right, atol=1e-12):
    jax.tree.map(lambda a, b: close(a, b, atol), left, right)


# Degenerate input.

METHODS = ["term", "propfair", "corefed", "fedwavg", "feddisco", "afl", "aaggff"]


@pytest.mark.parametrize("losses", [[0.0] * 3, [0.7] * 3, [0.0, 0.0, 1.0], [1e-12, 1.0, 50.0]], ids=str)
@pytest.mark.parametrize("name", METHODS)
def test_equal_zero_and_far_losses(name, losses):
    weights, _ = play(name, [losses] * 2)
    assert np.isfinite(weights).all()
    if name != "propfair":
        close(weights.sum(1), 1, atol=1e-6)
        if len(set(losses)) == 1:
            close(weights, 1 / 3, atol=1e-6)


@pytest.mark.parametrize("name", [m for m in METHODS if m != "propfair"])
@pytest.mark.parametrize("clients", [1, 3])
def test_a_client_alone_is_followed(name, clients):
    cohorts = [[0], [clients - 1]]
    weights, _ = play(name, np.tile(LOSSES[:clients], (2, 1)), cohorts=cohorts)
    close(weights, np.eye(clients)[[0, clients - 1]], atol=1e-6)


@pytest.mark.parametrize("name", slow_but(["term", "feddisco"], [m for m in METHODS if m != "propfair"]))
def test_identical_clients_are_one(x64, name):
    same(trained(name, identical=True), trained("fedavg", identical=True), atol=1e-9)


@pytest.mark.parametrize(
    ("name", "hparams", "weighting"),
    [
        ("term", {"t": 0.0}, "uniform"),
        ("term", {"t": 0.0, "prior": "examples"}, "examples"),
        ("fedwavg", {"alpha": 0.0}, "uniform"),
        ("fedwavg", {"alpha": 0.0, "prior": "examples"}, "examples"),
        ("feddisco", {"a": 0.0, "b": 0.0}, "examples"),
        ("afl", {"gamma": 0.0}, "uniform"),
    ],
)
def test_what_is_left_without_the_idea_is_fedavg(x64, name, hparams, weighting):
    same(trained(name, **hparams), trained("fedavg", weighting=weighting))


# Rules.


def test_normalised_weights():
    close(normalised(jnp.array([1.0, 3.0]), jnp.array([0.5, 0.5])), [0.25, 0.75])
    close(normalised(jnp.zeros(2), jnp.array([0.2, 0.8])), [0.2, 0.8], atol=1e-7)


# TERM.


@pytest.mark.parametrize(
    ("t", "expected"),
    [
        (0.0, UNIFORM),
        (0.1, (0.31122540, 0.32718227, 0.36159233)),
        (1.0, (0.14024438, 0.23122390, 0.62853172)),
        (10.0, (3.06e-7, 4.54e-5, 0.99995430)),
    ],
)
def test_term_vector(x64, t, expected):
    close(play("term", LOSSES, t=t)[0][0], expected)


def test_term_as_published_in_code(x64):
    losses = [LOSSES, [1.0, 0.8, 0.6], *[LOSSES] * 40]
    weights, states = play("term", losses, t=1.0, normalised=False)
    close([np.exp(states[t].server.memory) for t in (0, 1)], [0.26516827, 0.54742593])
    close(3 * weights[0], (0.28048877, 0.46244780, 1.25706344), atol=2e-8)
    close(3 * weights[1], (0.60891038, 0.49853365, 0.40816483), atol=2e-8)
    close(weights[1], (0.20297013, 0.16617788, 0.13605494))
    close(weights[-1], np.asarray(tilted(LOSSES, 1.0)) / 3)  # a steady Z: an extra 1/n


def test_term_as_published_in_code_takes_the_largest_loss_for_a_negative_tilt_too(x64):
    """F = 2, 1: e = (1, 2) for t = -log 2, Z = 3/4, a = e / 3; then F = 1, 1: e = 1, Z = 7/8, a = 2/7."""
    weights, states = play("term", [[2.0, 1.0], [1.0, 1.0]], t=-np.log(2), normalised=False)
    close(weights, [(1 / 3, 2 / 3), (2 / 7, 2 / 7)])
    close([np.exp(state.server.memory) for state in states], [3 / 4, 7 / 8])


def test_tilted_weights(x64):
    close(tilted(LOSSES + 7, 2.0), tilted(LOSSES, 2.0), atol=1e-12)
    close(tilted(LOSSES, 4.0), entropy_based(LOSSES, 0.25), atol=1e-12)
    close(tilted(LOSSES, 1e-12), UNIFORM, atol=1e-11)
    prior = np.array([0.1, 0.3, 0.6])
    close(tilted(LOSSES, 0.0, prior), prior, atol=1e-12)
    close(tilted(LOSSES, 1.0, prior), prior * np.exp(LOSSES) / (prior @ np.exp(LOSSES)), atol=1e-12)


@pytest.mark.parametrize(("t", "losses"), [(1e3, [1.0, 3.0, 3.0]), (-1e3, [900.0, 3.0, 3.0])])
@pytest.mark.parametrize("normalised", [True, False])
def test_an_extreme_tilt_takes_the_extreme_clients(t, losses, normalised):
    weights, _ = play("term", losses, t=t, normalised=normalised)
    close(weights[0] / weights[0].sum(), [0, 0.5, 0.5], atol=1e-6)


def test_term_by_share_of_examples(x64):
    e = np.array([1, 3, 6]) * np.exp(LOSSES)
    close(play("term", LOSSES, counts=[1, 3, 6], t=1.0, prior="examples")[0][0], e / e.sum())
    with pytest.raises(ValueError, match="normalised"):
        play("term", LOSSES, normalised=False, prior="examples")


def test_term_is_fedeba_of_the_inverse_temperature_on_the_sent_model_s_losses(x64):
    """Losses that no model changes are the same before and after training."""
    close(play("term", LOSSES, t=4.0)[0], play("fedeba", LOSSES, tau=0.25)[0], atol=1e-12)


# PropFair.


@pytest.mark.parametrize(("M", "loss", "code", "huber"), vectors.PROPFAIR)
def test_propfair_vector(x64, M, loss, code, huber):
    for expected, flag in ((code, False), (huber, True)):
        close(jax.value_and_grad(proportional)(loss, M, 0.2, huber=flag), expected)


@pytest.mark.parametrize("huber", [False, True])
def test_propfair_s_slope_is_finite_and_rises_where_it_is_the_log(huber):
    losses = jnp.concatenate([jnp.linspace(0, 8, 801), jnp.array([2.0, 5.0, 1e6])])
    for M in (0.2, 2.0, 5.0):
        values, slopes = jax.vmap(jax.value_and_grad(lambda loss, M=M: proportional(loss, M, 0.2, huber=huber)))(losses)
        assert np.isfinite(values).all()
        assert np.isfinite(slopes).all()
        assert (np.diff(slopes[: int(100 * (M - 0.2))]) > 0).all()
    close(jax.grad(proportional)(jnp.float32(1e-3), 0.2, 0.2, huber=huber), 5, atol=1e-6)


def test_propfair_steps_by_the_slope(x64):
    close(play("propfair", LOSSES, M=5.0)[0][0], 1 / (5 - LOSSES) / 3, atol=1e-12)
    close(play("propfair", LOSSES, M=2.0, counts=[1, 3, 6])[0][0], np.array([1 / 1.5, 3 / 1, 6 / 2]) / 10, atol=1e-12)


@pytest.mark.parametrize(("huber", "weighting"), [(False, "uniform"), (True, "examples")])
def test_propfair_of_the_headline_row_is_fedavg_at_five_times_the_rate(x64, huber, weighting):
    found = trained("propfair", rate=0.1, M=0.2, eps=0.2, huber=huber, weighting=weighting)
    same(found, trained("fedavg", rate=0.5, weighting=weighting), atol=1e-12)


def test_propfair_of_large_m_is_fedavg(x64):
    same(trained("propfair", rate=0.3 * 1e9, M=1e9), trained("fedavg"), atol=1e-6)


@pytest.mark.parametrize("batch_size", [4, None])
def test_the_chain_rule_takes_the_loss_of_the_whole_batch(x64, batch_size):
    """Steps along 2 F grad F, F the batch's loss: exact where blocks of 5 make up the batch, too."""
    local = dataclasses.replace(LOCAL, batch_size=batch_size)
    z = path = np.array([0.3, 0.4])
    for positions in drawn(local, client(0)) if batch_size else [range(7)] * 7:
        batch = examples(0)[positions]
        path = path - 0.1 * 2 * (0.5 * ((path - batch) ** 2).sum(-1).mean()) * (path - batch.mean(0))
    delta = jax.jit(local.with_gradient(chain_rule(jnp.square)).train)(client(0), z).delta
    np.testing.assert_allclose(delta, path - z, rtol=1e-12)


# CoreFed.


@pytest.mark.parametrize(
    ("M", "expected"),
    [
        (2.0, (0.13698630, 0.16438356, 0.49315068, 0.20547945)),
        (5.0, (0.21829522, 0.23284823, 0.29937630, 0.24948025)),
    ],
)
def test_corefed_vector(x64, M, expected):
    close(play("corefed", [0.2, 0.5, 1.5, 0.8], M=M)[0][0], expected)


def test_corefed_limits(x64):
    close(play("corefed", LOSSES, M=1e12)[0][0], UNIFORM, atol=1e-11)
    close(play("corefed", [9.0, 99.0, 1.0], M=2.0)[0][0], np.array([5, 5, 1]) / 11, atol=1e-12)  # 1/eps beyond M


# FedwAvg.


def test_fedwavg_vector(x64):
    forgotten = jnp.array([10, 40, 50])
    close(forgetting_weights(forgotten, 0.3, None), (0.26333333, 0.35333333, 0.38333333))
    close(forgetting_weights(forgotten, 0.3, jnp.array([0.2, 0.3, 0.5])), (0.17, 0.33, 0.5), atol=1e-12)


def test_forgetting_weights(x64):
    close(forgetting_weights(jnp.array([1, 5, 0]), 0.0, None), UNIFORM, atol=1e-12)
    close(forgetting_weights(jnp.array([4, 4, 4]), 0.3, None), UNIFORM, atol=1e-12)
    close(forgetting_weights(jnp.zeros(3, int), 0.3, None), UNIFORM, atol=1e-12)
    close(forgetting_weights(jnp.zeros(3, int), 0.3, jnp.array([0.2, 0.3, 0.5])), [0.2, 0.3, 0.5], atol=1e-12)
    assert (np.asarray(forgetting_weights(jnp.array([0, 0, 9]), 0.3, None)) >= 0.7 / 3 - 1e-15).all()


def knowing(cohorts, **hparams):
    """A model v; client i's examples are the numbers x, known (label 1) where v >= x; its step goes to x[0] + 3."""
    x = jnp.array([1.0, 2, 3, 4, 5, 9, -9, -8, -7])[:, None]
    federation = Federation(x, jnp.ones(9, int), jnp.arange(9).reshape(3, 3), jnp.full(3, 3))

    def objective(params, batch, key, round_, train):  # the first example alone counts
        first = batch.mask * (batch.x[:, 0] == batch.x[0, 0])
        return masked_mean(0.5 * (params - batch.x[:, 0] - 3) ** 2, first)

    local = fedeba_jax.LocalTraining(
        objective, learning_rate=1.0, steps=1, batch_size=3,
        apply=lambda v, x: jnp.where((v >= x).astype(int) == jnp.arange(2)[None], 1.0, 0.0),
    )  # fmt: skip
    sizes, key = Sizes(3, len(cohorts[0]), 3, 1), jax.random.key(0)
    algorithm = fedeba_jax.ALGORITHMS["fedwavg"](local, fedeba_jax.descent(optax.sgd(1.0)), **hparams)
    state = algorithm.init(key, lambda key: jnp.asarray(0.0), sizes)

    sample = sampling.listed(jnp.array(cohorts))

    @jax.jit
    def step(state, t):
        return fedeba_jax.run_round(
            algorithm, federation, state, key, t, sizes=sizes, client_map=jax.vmap, sample=sample
        )[0]

    for t in range(len(cohorts)):
        state = step(state, jnp.asarray(t))
        yield state


def test_fedwavg_forgetting_by_hand(x64):
    """Local models are 4, 7 and -6: they know 3, 2 and 3 examples of their own."""
    first, second, third = knowing([[0, 1, 2]] * 3)
    np.testing.assert_array_equal(first.clients.forgotten, [0, 0, 0])
    np.testing.assert_array_equal(first.clients.known.sum(1), [3, 2, 3])
    close(first.server.params, 5 / 3, atol=1e-12)  # knows 1 of the first's, none of the second's, all the third's
    np.testing.assert_array_equal(second.clients.forgotten, [2, 2, 0])
    x = np.array([0.7 / 3 + 0.15, 0.7 / 3 + 0.15, 0.7 / 3]) @ [4, 7, -6]
    close(second.server.params, x, atol=1e-12)
    np.testing.assert_array_equal(third.clients.forgotten, [np.sum(np.array([1, 2, 3]) > x), 2, 0])


def test_fedwavg_reuses_what_was_forgotten():
    states = list(knowing([[0, 1, 2]] * 4, forget_every=2))
    counts = np.array([state.clients.forgotten for state in states])
    np.testing.assert_array_equal(counts[[0, 1]], 0)
    np.testing.assert_array_equal(counts[2], counts[3])
    assert counts[2].sum() > 0
    with pytest.raises(ValueError, match="forget_every=0"):
        list(knowing([[0, 1, 2]], forget_every=0))


def test_fedwavg_counts_a_newcomer_as_forgetting_nothing_and_leaves_the_absent_alone():
    first, second = knowing([[1, 2], [1, 0]])
    close(first.server.params, 0.5, atol=1e-6)
    np.testing.assert_array_equal(first.clients.known[0], [False] * 3)
    np.testing.assert_array_equal(second.clients.forgotten, [0, 2, 0])
    np.testing.assert_array_equal(second.clients.known[2], first.clients.known[2])
    close(second.server.params, 0.65 * 7 + 0.35 * 4, atol=1e-6)


@pytest.mark.parametrize("block", [1, 5, 12, 200])
def test_correct_examples_block_by_block(block):
    local = dataclasses.replace(LOCAL, apply=nearest, block=block)
    found = jax.jit(jax.vmap(lambda i: correct(local, labelled(i), CENTRES)))(jnp.arange(len(COUNTS)))
    assert found.shape == (6, 12)
    assert found.dtype == bool
    for i, count in enumerate(COUNTS):
        own = slice(STARTS[i], STARTS[i] + count)
        expected = np.argmax(nearest(CENTRES, VALUES[own]), -1) == LABELS[own]
        np.testing.assert_array_equal(found[i], np.append(expected, np.zeros(12 - count, bool)))


# FedDisco.

SHARDS = [np.arange(10) // 5, np.full(10, 3), np.arange(10), np.arange(10) // 2]


@pytest.mark.parametrize(
    ("a", "expected"),
    [
        (0.1, (0.23693558, 0.21080674, 0.28919326, 0.26306442)),
        (0.5, (0.05866715, 0, 0.60799952, 0.33333333)),
    ],
)
def test_feddisco_vector(x64, a, expected):
    close(play("feddisco", np.ones(4), counts=[10] * 4, labels=SHARDS, a=a, b=0.1)[0][0], expected)


def counts_of(*labels):
    return jnp.asarray([np.bincount(one, minlength=10) for one in labels])


def test_feddisco_s_divergence_is_shared_by_the_cohort(x64):
    share = np.log([5, 10, 1, 2]) / np.log(100)
    terms = np.maximum(0.25 - 0.5 * share + 0.1, 0)
    close(disco_weights(counts_of(*SHARDS), 0.5, 0.1, "kl"), terms / terms.sum())
    close(disco_weights(counts_of(np.arange(10), np.arange(10)), 0.5, 0.1, "kl"), [0.5, 0.5], atol=1e-12)


@pytest.mark.parametrize("metric", ["l2", "kl"])
def test_feddisco_limits(x64, metric):
    several = counts_of(*SHARDS)
    close(disco_weights(several, 0.0, 0.1, metric), 0.25, atol=1e-12)  # equal shares
    ragged = several * jnp.array([1, 2, 3, 4])[:, None]
    close(disco_weights(ragged, 0.5, 1e12, metric), 0.25, atol=1e-11)
    close(disco_weights(ragged, 1e3, 0.0, metric), [0, 0, 1, 0], atol=1e-12)  # uniform labels alone are left
    close(disco_weights(ragged[:2], 1e3, 0.1, metric), [1 / 3, 2 / 3], atol=1e-12)  # nothing is positive


def test_two_shards_of_different_labels_are_fedavg(x64):
    labels = [np.repeat([0, 1], 5), np.repeat([3, 7], 5), np.repeat([9, 2], 5)]
    close(play("feddisco", LOSSES, counts=[10] * 3, labels=labels)[0][0], UNIFORM, atol=1e-12)


def test_label_counts_leave_padding_out():
    local = dataclasses.replace(LOCAL, apply=nearest)
    for i, count in enumerate(COUNTS):
        expected = np.bincount(LABELS[STARTS[i] : STARTS[i] + count], minlength=3)
        np.testing.assert_array_equal(label_counts(local, labelled(i), CENTRES), expected)


# What looks at predictions.


@pytest.mark.parametrize("look", [correct, label_counts])
def test_predictions_need_the_model(look):
    with pytest.raises(ValueError, match=r"apply=model\.apply"):
        look(LOCAL, labelled(0), CENTRES)
