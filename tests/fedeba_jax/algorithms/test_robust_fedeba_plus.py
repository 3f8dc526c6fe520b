"""R-FedEBA+: vectors worked out from its definition, bounds of what liars get, and FedEBA+ without its guards."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedeba_jax import aggregation, trust
from fedeba_jax.weights import capped, entropy_based
from tests.support.dictated import play
from tests.support.problems import tiny
from tests.twins import robust as twin

LOSSES = np.array([0.4, 0.5, 0.6, 0.9, 50.0])
MOVES = np.array([[1, 0], [0.8, 0.2], [1.2, -0.2], [0.3, 0.9], [-8, 0]], float)
COSINES = (0.97469612, 0.9998091, 0.92468556, 0.52028899, -0.97469612)
WEIGHTS = (0.1953445, 0.24474168, 0.27646733, 0.28344648, 0)
ONES = np.ones(5, bool)
GUARDS = {"norm_clip": 2.0, "weight_cap": 2.0, "trust": "history", "level": "full"}
OFF = {"loss_clip": np.inf, "norm_clip": np.inf, "weight_cap": 100.0, "trust": "off"}


def as_models(rows):
    return [[(row,)] for row in rows]


@pytest.mark.parametrize(("outliers", "last"), [("clip", 0.89652), ("middle", 0.6)])
def test_losses_are_bounded_by_the_median_absolute_deviation(x64, outliers, last):
    losses = np.array([0.4, 0.5, 0.6, 0.7, 100])
    expected = [0.4, 0.5, 0.6, 0.7, last]
    np.testing.assert_allclose(trust.guard_losses(losses, 2.0, jnp.asarray(ONES), outliers), expected, atol=1e-12)
    np.testing.assert_allclose(twin.guard_losses(losses, 2.0, outliers), expected, atol=1e-12)
    np.testing.assert_array_equal(trust.guard_losses(losses, jnp.inf, jnp.asarray(ONES), outliers), losses)
    equal = np.array([1.0, 1, 1, 1, 7])
    np.testing.assert_array_equal(trust.guard_losses(equal, 2.0, jnp.asarray(ONES), outliers), np.ones(5))


def test_losses_that_are_negative_or_do_not_count(x64):
    three = jnp.array([True, True, True, False])
    found = trust.guard_losses(jnp.array([-3.0, 1, 2, jnp.nan]), jnp.inf, three, "middle")
    np.testing.assert_array_equal(found, [0, 1, 2, 1])
    nobody = trust.guard_losses(jnp.full(3, jnp.nan), 2.0, jnp.zeros(3, bool), "middle")
    np.testing.assert_array_equal(nobody, np.zeros(3))


@pytest.mark.parametrize(
    ("tau", "expected"),
    [
        (1.0, (0.12830293, 0.14179667, 0.15670956, 0.17319084, 0.4)),
        (0.1, (0.01923516, 0.05228659, 0.14212969, 0.38634856, 0.4)),
    ],
)
def test_weights_under_a_cap(x64, tau, expected):
    losses = np.array([0.4, 0.5, 0.6, 0.7, 100])
    np.testing.assert_allclose(entropy_based(losses, tau, cap=0.4), expected, atol=1e-8)
    np.testing.assert_allclose(twin.capped_softmax(losses / tau, np.ones(5), 0.4), expected, atol=1e-8)


def test_a_cap_of_one_nth_is_uniform_also_where_exponents_underflow(x64):
    logits = jnp.asarray(np.array([0.0, 10, 1e4, 1e5, 1e6]))
    np.testing.assert_allclose(capped(jax.nn.softmax(logits), logits, 0.2), np.full(5, 0.2), atol=1e-12)


@pytest.mark.parametrize(("steps", "expected"), [(8, (0.921306, 0.06622)), (200, (0.995885, 0.001973))])
def test_the_geometric_median_from_products_alone(x64, steps, expected):
    points = np.array([[1, 0], [0.9, 0.1], [1.1, -0.1], [-10, 5]])
    start, everybody = jnp.full(4, 0.25), jnp.ones(4, bool)
    b = aggregation.weiszfeld(jnp.asarray(points @ points.T), start, everybody, nu=1e-6, iterations=steps)
    np.testing.assert_allclose(b @ points, expected, atol=1e-6)


def test_a_whole_step(x64):
    own = trust.directions(jnp.asarray(MOVES @ MOVES.T), 2.0)
    np.testing.assert_allclose(own.cosines, COSINES, atol=1e-8)
    np.testing.assert_allclose(twin.directions(as_models(MOVES), {}), COSINES, atol=1e-8)
    _, weights = twin.guarded(
        as_models(MOVES), twin.guard_losses(LOSSES, 2.0, "clip") / 0.5, np.ones(5), {},
        norm_clip=2.0, weight_cap=2.0, trust="relu", level="full",
    )  # fmt: skip
    np.testing.assert_allclose(weights, WEIGHTS, atol=1e-8)
    moved, _ = play(
        "robust_fedeba_plus", LOSSES, moves=MOVES, tau=0.5, alpha=0.0, loss_clip=2.0, outliers="clip", trust="relu"
    )
    np.testing.assert_allclose(moved[0], (0.80793259, 0.2487567), atol=1e-8)
    lost, _ = play("fedeba_plus", LOSSES, moves=MOVES, tau=0.5, alpha=0.0)
    np.testing.assert_allclose(lost[0], (-8, 0), atol=1e-8)


def test_a_colluding_liar_gets_no_more_than_the_cap(x64):
    for level, most in (("full", 0.0), ("loss_only", 0.4)):
        weights, _ = play(
            "robust_fedeba_plus", [0.4, 0.5, 0.6, 0.9, 50.0], tau=0.01, alpha=0.0, level=level, outliers="clip"
        )
        assert weights[0].max() <= 0.4 + 1e-9
        assert weights[0, 4] >= most  # by losses alone the liar still gets the most


def test_a_liar_far_above_all_others_gets_no_more_than_one_in_the_middle(x64):
    weights, _ = play("robust_fedeba_plus", [0.4, 0.5, 0.6, 0.9, 50.0], tau=0.1, alpha=0.0, level="loss_only")
    np.testing.assert_allclose(weights[0, 4], weights[0, 2], rtol=1e-12)


def test_without_guards_it_is_fedeba_plus(x64):
    """The models, the weights and what was sent, gate open and closed."""
    problem, key = tiny(4), jax.random.key(3)

    @functools.partial(jax.jit, static_argnums=0)
    def run(name, theta):
        off = OFF if name == "robust_fedeba_plus" else {}
        return problem.train(problem.algorithm(name, tau=0.5, alpha=0.6, theta=theta, **off), key, rounds=2)

    for theta in (0.0, 180.0):
        (one, info), (other, more) = (run(name, theta) for name in ("fedeba_plus", "robust_fedeba_plus"))
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-13), one.server.server, other.server.server)
        for name in info:
            np.testing.assert_allclose(info[name], more[name], atol=1e-12)
        assert not more["excluded"].any()


@pytest.mark.parametrize(("past", "now"), [(1.0, -8.0), (-8.0, 1.0), (1.0, 1.0)])
def test_an_update_counts_if_it_agrees_and_those_before_did(x64, past, now):
    """The last client goes along with the others, or against them: both in the first round and in the second."""
    rounds, losses = np.stack([MOVES, MOVES]), np.array([0.4, 0.5, 0.6, 0.7, 0.8])
    rounds[:, -1, 0] = past, now
    moved, _ = play("robust_fedeba_plus", np.tile(losses, (2, 1)), moves=rounds, tau=0.5, alpha=0.0)
    known = {4: np.sign(past)}  # or near it
    expected, p = twin.guarded(as_models(rounds[1]), losses / 0.5, np.ones(5), known, updates=True, **GUARDS)
    np.testing.assert_allclose(moved[1], expected[0][0], atol=1e-12)
    assert (p[4] > 0) == (past > 0 and now > 0)


def test_an_update_must_agree_half_as_well_as_most_do():
    cosines = jnp.array([0.9, 0.8, 0.41, 0.39, -0.2, 0.8])  # the median is 0.605
    found = trust.earned("history", cosines, (), now=True)
    np.testing.assert_array_equal(found, [1, 1, 1, 1, 0, 1])
    np.testing.assert_array_equal(trust.earned("history", cosines.at[2].set(0.8), (), now=True), [1, 1, 1, 0, 0, 1])
    np.testing.assert_array_equal(trust.earned("history", -cosines, (), now=True), [0, 0, 0, 0, 1, 0])
    np.testing.assert_array_equal(trust.earned("history", cosines, ()), [1, 1, 1, 1, 0, 1])


def test_those_who_opposed_the_others_before_do_not_make_the_median(x64):
    """Three of the five in the last cohort: as long, and as many, as they are, they would be the median themselves."""
    moves = np.vstack([MOVES[:4], MOVES[:1], np.tile(MOVES[4], (3, 1))])
    cohorts = [[0, 1, 2, 3, 5], [0, 1, 2, 4, 6], [1, 2, 3, 4, 7], [0, 1, 5, 6, 7]]
    moved, _ = play("robust_fedeba_plus", np.ones((4, 8)), cohorts=cohorts, moves=moves, tau=0.5, alpha=0.0)
    np.testing.assert_allclose(moved[3], moves[:2].mean(0), atol=1e-12)
    last = as_models(moves[cohorts[3]])
    total, p = twin.guarded(last, np.ones(5), np.ones(5), {2: -1.0, 3: -1.0, 4: -1.0}, updates=True, **GUARDS)
    np.testing.assert_allclose(total[0][0], moved[3], atol=1e-12)
    np.testing.assert_allclose(p, [0.5, 0.5, 0, 0, 0])


def test_where_all_opposed_the_others_before_all_make_the_median():
    nobody, everybody = jnp.zeros(5, bool), jnp.ones(5, bool)
    found = [trust.directions(jnp.asarray(MOVES @ MOVES.T), 2.0, among=those) for those in (nobody, everybody)]
    jax.tree.map(np.testing.assert_array_equal, *found)


def test_a_gradient_that_opposes_the_others_counts_no_more_than_in_a_mean(x64):
    own = trust.directions(jnp.asarray(MOVES @ MOVES.T), 2.0, opposed=0.5)
    np.testing.assert_allclose(own.factors, [1, 1, 1, 1, 0.5 / 8], atol=1e-12)
    total, p = twin.guarded(as_models(MOVES), np.array([0, 0, 0, 0, 9.0]), np.ones(5), {4: 1.0}, **GUARDS)
    np.testing.assert_allclose(p, [0.15, 0.15, 0.15, 0.15, 0.4], atol=1e-9)
    np.testing.assert_allclose(total[0][0], own.factors * p @ MOVES, atol=1e-9)


def test_where_losses_are_equal_it_is_the_mean_of_what_agrees(x64):
    moved, _ = play("robust_fedeba_plus", np.ones(5), moves=MOVES, tau=0.5, alpha=0.0)
    np.testing.assert_allclose(moved[0], trust.agreeing(2.0)(jnp.asarray(MOVES), jnp.arange(5))[0], atol=1e-12)


def test_a_cap_of_one_is_uniform(x64):
    weights, _ = play("robust_fedeba_plus", [0.4, 0.5, 0.6, 0.9], tau=0.1, alpha=0.0, weight_cap=1.0, trust="off")
    np.testing.assert_allclose(weights[0], np.full(4, 0.25), atol=1e-12)


def test_what_is_not_finite_is_left_out(x64):
    moves = np.where(np.arange(5)[:, None] == 1, np.nan, MOVES)
    own = trust.directions(jnp.asarray(moves @ moves.T), 2.0)
    np.testing.assert_array_equal(own.finite, [True, False, True, True, True])
    assert own.factors[1] == 0
    assert np.isfinite(own.factors).all()
    assert own.cosines[1] == 0
    q = trust.prior(jnp.maximum(own.cosines, 0.0), own.finite)
    assert q[1] == 0
    np.testing.assert_allclose(q.sum(), 1)


def test_where_nobody_is_trusted_everybody_who_counts_is(x64):
    np.testing.assert_allclose(
        trust.prior(jnp.zeros(4), jnp.array([True, True, False, True])), [1 / 3, 1 / 3, 0, 1 / 3]
    )
    np.testing.assert_allclose(trust.prior(jnp.zeros(4), jnp.zeros(4, bool)), np.full(4, 0.25))
    np.testing.assert_allclose(trust.cap(jnp.array([1.0, 0, 0, 0, 0]), 2.0), 1.0)
    np.testing.assert_allclose(trust.cap(jnp.full(5, 0.2), 2.0), 0.4)


def test_a_cohort_with_most_clients_lying_moves_the_model_no_farther_than_usual(x64):
    """Nobody knows the liars yet; the median length is theirs."""
    moves = np.vstack([MOVES[:4], np.tile([[100.0, 1e6]], (3, 1))])
    cohorts = [[0, 1, 2, 3], [0, 1, 2, 3], [0, 4, 5, 6]]
    moved, _ = play("robust_fedeba_plus", np.ones((3, 7)), cohorts=cohorts, moves=moves, tau=0.5, alpha=0.0)
    usual = twin.middle_length(as_models(MOVES[:4]), {}, None)
    assert np.linalg.norm(moved[2]) <= 2 * 2 * usual + 1e-9
    total, _ = twin.guarded(as_models(moves[cohorts[2]]), np.ones(4), np.ones(4), {0: 1.0}, usual=usual, updates=True,
                            **GUARDS)  # fmt: skip
    np.testing.assert_allclose(total[0][0], moved[2], atol=1e-9)
    own = trust.directions(jnp.asarray(MOVES @ MOVES.T), 2.0, usual=0.25)
    np.testing.assert_allclose(own.usual, 0.9 * 0.25 + 0.1 * 0.5)
    np.testing.assert_allclose(trust.directions(jnp.zeros((3, 3)), 2.0, usual=0.25).usual, 0)


def test_a_closed_gate_is_bounded_the_same_way(x64):
    """First steps were never asked for before; updates were."""
    moves = np.vstack([MOVES[:4], np.tile([[100.0, 1e6]], (3, 1))])
    losses = np.array([[1.0, 2, 3, 4, 9, 9, 9]] * 2 + [[9.0] * 7])
    cohorts = [[0, 1, 2, 3], [0, 1, 2, 3], [0, 4, 5, 6]]
    moved, _ = play("robust_fedeba_plus", losses, cohorts=cohorts, moves=moves, tau=0.5, alpha=0.5)
    usual = twin.middle_length(as_models(MOVES[:4]), {}, None)
    assert 0 < np.linalg.norm(moved[2]) <= 2 * 2 * 2 * usual  # an update moves by the fair gradient, too


def test_it_goes_on_with_those_whose_replies_are_finite(x64):
    """However few; where nobody's are, the round is lost, and the run with it."""
    moves = np.vstack([MOVES[:2], np.full((3, 2), np.inf)])
    moved, _ = play("robust_fedeba_plus", np.ones(5), moves=moves, tau=0.5, alpha=0.0)
    np.testing.assert_allclose(moved[0], MOVES[:2].mean(0), atol=1e-12)
    nothing, _ = play("robust_fedeba_plus", np.ones(5), moves=np.full((5, 2), np.nan), tau=0.5, alpha=0.0)
    assert np.isnan(nothing).all()
