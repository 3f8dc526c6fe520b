"""Rounds and runs: where they compile, how often, what their keys do, and where two methods meet.

One-round programs of the tiny problem, one an algorithm, take everything else as arguments: keys,
rate, hyper-parameters and data. Rates and gates of later rounds are the laws' and the twins' matter.
"""

import functools
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fedeba_jax
from fedeba_jax import client_map as maps
from fedeba_jax.data.federation import held_out
from fedeba_jax.evaluate import score
from fedeba_jax.local import LocalUpdate
from fedeba_jax.rounds import is_finite, round_keys
from fedeba_jax.types import Client, LocalData, Sizes
from fedeba_jax.weights import entropy_based
from tests.support.marks import slow_but
from tests.support.problems import tiny

PROBLEM = tiny()
OPEN, CLOSED = 0.0, 180.0
DEFAULTS = {
    "fedavg": {},
    "fedprox": {"mu": 0.1},
    "fedeba": {"tau": 0.5},
    "fedeba_plus": {"tau": 0.5, "alpha": 0.6, "theta": OPEN, "fair_scale": 1 / 3},
    "prac_fedeba_plus": {"tau": 0.5, "alpha": 0.6, "theta": OPEN},
    "fedavg_align": {"tau": 0.5, "alpha": 0.6, "theta": OPEN, "fair_scale": 1 / 3},
}
GATED = [name for name in DEFAULTS if "theta" in DEFAULTS[name]]
SEEDS = (0, 1, 2)


@functools.cache
def program(name):
    static = {"weighting": "uniform"} if name in ("fedavg", "fedprox") else {}

    @jax.jit
    def run(seed, init_seed, rate, hparams, federation):
        algorithm = PROBLEM.algorithm(name, rate=rate, **hparams, **static)
        state = fedeba_jax.start(algorithm, PROBLEM.model.init, jax.random.key(init_seed), sizes=PROBLEM.sizes)
        return fedeba_jax.run_round(
            algorithm, federation, state, jax.random.key(seed), jnp.asarray(0),
            sizes=PROBLEM.sizes, client_map=maps.mapped,
        )  # fmt: skip

    return run


def one_round(name, *, seed=0, init_seed=0, rate=0.3, federation=PROBLEM.federation, **changes):
    """(x_1, diagnostics of round 0)."""
    state, info = program(name)(seed, init_seed, rate, DEFAULTS[name] | changes, federation)
    return state.server.params, info


def close(a, b, tolerance=1e-6):
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, atol=tolerance, rtol=0), a, b)


def equal(a, b):
    return all(np.array_equal(x, y) for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True))


# Where two methods meet.


@pytest.mark.parametrize("seed", SEEDS)
def test_fedeba_at_a_huge_temperature_is_fedavg(seed):
    close(one_round("fedeba", tau=1e30, seed=seed)[0], one_round("fedavg", seed=seed)[0])


@pytest.mark.parametrize("name", ["fedeba_plus", "prac_fedeba_plus"])
@pytest.mark.parametrize("theta", slow_but([OPEN], [OPEN, CLOSED]))
def test_without_alignment_it_is_fedeba(name, theta):
    close(one_round(name, alpha=0.0, theta=theta)[0], one_round("fedeba")[0])


@pytest.mark.parametrize("theta", [OPEN, CLOSED])
def test_fedavg_align_without_alignment_is_fedavg(theta):
    close(one_round("fedavg_align", alpha=0.0, theta=theta)[0], one_round("fedavg")[0])


@pytest.mark.parametrize("seed", SEEDS)
def test_alignment_to_nothing_is_fedeba_at_a_smaller_rate(seed):
    close(
        one_round("fedeba_plus", fair_scale=0.0, alpha=0.75, rate=0.4, seed=seed)[0],
        one_round("fedeba", rate=0.1, seed=seed)[0],
    )


def test_fedprox_without_its_term_is_fedavg_and_with_it_not():
    assert equal(one_round("fedprox", mu=0.0)[0], one_round("fedavg")[0])
    assert not equal(one_round("fedprox", mu=0.5)[0], one_round("fedavg")[0])


@pytest.mark.parametrize("alpha", [0.3, 1.0])
def test_prac_reweights_the_updates_it_has(alpha):
    """x_1 - x_0 = (1 - alpha) sum p_i Delta_i + alpha sum p~_i Delta_i, with the clients trained apart from it."""
    x, info = one_round("prac_fedeba_plus", alpha=alpha)
    start = PROBLEM.model.init(jax.random.key(0))
    before, update = trained_apart(info["cohort"], start)
    p, p_fair = entropy_based(update.loss, 0.5), entropy_based(before, 0.5)
    weights = (1 - alpha) * p + alpha * p_fair
    expected = jax.tree.map(lambda x, d: x + jnp.tensordot(weights, d, 1), start, update.delta)
    close(x, expected)


@jax.jit
def trained_apart(ids, params) -> tuple[jax.Array, LocalUpdate]:
    local = fedeba_jax.LocalTraining(
        objective=fedeba_jax.cross_entropy(PROBLEM.model), learning_rate=0.3, steps=3, batch_size=4, block=5,
        reports=("delta", "loss"),
    )  # fmt: skip
    _, key, _ = round_keys(jax.random.key(0), 0)
    x, y, index, count, _ = PROBLEM.federation

    def one(i):
        client = Client(i, jax.random.fold_in(key, i), LocalData(x, y, index[i], count[i]), (), jnp.asarray(0))
        return local.loss(client, params), local.train(client, params)

    return jax.lax.map(one, ids)


# The gate.


@pytest.mark.parametrize("name", GATED)
@pytest.mark.parametrize("seed", SEEDS)
def test_theta_0_opens_the_gate_and_180_never_does(name, seed):
    assert one_round(name, theta=OPEN, seed=seed, init_seed=seed)[1]["gate"]
    assert not one_round(name, theta=CLOSED, seed=seed, init_seed=seed)[1]["gate"]


@pytest.mark.parametrize("name", GATED)
def test_the_gate_opens_above_the_angle_of_the_losses(name):
    angle = float(one_round(name)[1]["angle"])
    assert 1 < angle < 90
    assert one_round(name, theta=angle - 0.01)[1]["gate"]
    assert not one_round(name, theta=angle + 0.01)[1]["gate"]


@pytest.mark.parametrize("name", GATED)
def test_identical_clients_keep_the_gate_closed_at_theta_0(name):
    index, count = PROBLEM.federation.rows, PROBLEM.federation.num_examples
    index, count = jnp.broadcast_to(index[0], index.shape), jnp.full_like(count, count[0])
    _, info = one_round(name, federation=PROBLEM.federation._replace(rows=index, num_examples=count))
    assert (float(info["angle"]), bool(info["gate"])) == (0.0, False)


@pytest.mark.parametrize("name", [name for name in DEFAULTS if "tau" in DEFAULTS[name]])
@pytest.mark.parametrize("theta", [OPEN, CLOSED])
def test_a_temperature_near_zero_gives_no_nan(name, theta):
    changes = {"theta": theta} if name in GATED else {}
    x, info = one_round(name, tau=1e-3, **changes)
    assert info["finite"]
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves((x, info)))
    if name != "fedavg_align":
        assert info["weight_max"] > 0.999


def test_divergence_is_told():
    assert one_round("fedavg")[1]["finite"]
    assert not one_round("fedavg", rate=1e38)[1]["finite"]


# Keys.


def test_the_same_keys_give_bit_identical_runs():
    assert equal(one_round("fedeba_plus"), one_round("fedeba_plus"))


def test_separate_keys_start_and_sample():
    x, info = one_round("fedavg", rate=0.0)
    other_start, same_cohort = one_round("fedavg", rate=0.0, init_seed=1)
    same_start, other_cohort = one_round("fedavg", rate=0.0, seed=1)
    close(x, PROBLEM.model.init(jax.random.key(0)))  # two programs may round the making of x_0 differently
    close(other_start, PROBLEM.model.init(jax.random.key(1)))
    assert equal(same_start, x)
    assert equal(same_cohort["cohort"], info["cohort"])
    assert not equal(other_cohort["cohort"], info["cohort"])


# Runs.


def test_a_run_evaluates_after_every_chunk_of_rounds():
    """4 rounds: scores after 2 and 4 are those of a run that is evaluated after every round."""
    algorithm, key = PROBLEM.algorithm("fedavg"), jax.random.key(0)
    state, info, scores = PROBLEM.run(algorithm, key, rounds=4, eval_every=2)
    again, often_info, often = PROBLEM.run(algorithm, key, rounds=4, eval_every=1)
    assert info["cohort"].shape == (4, 4)
    assert scores["global"].accuracy.shape == (2, 6)
    np.testing.assert_array_equal(info["cohort"], often_info["cohort"])
    close((state, scores), (again, jax.tree.map(lambda leaf: leaf[1::2], often)), 1e-5)
    last = score(algorithm, state, PROBLEM.test, apply=PROBLEM.model.apply, client_map=maps.mapped)
    close(jax.tree.map(lambda leaf: leaf[-1], scores), last, 1e-5)


def test_rounds_that_are_no_multiple_of_the_evaluations_are_refused():
    with pytest.raises(ValueError, match="rounds=5 is not a multiple of eval_every=2"):
        PROBLEM.run(PROBLEM.algorithm("fedavg"), jax.random.key(0), rounds=5, eval_every=2)


@pytest.mark.parametrize(("rounds", "eval_every"), [(0, 1), (4, 0), (4.0, 2), (-2, 2)])
def test_rounds_that_are_no_numbers_of_rounds_are_refused(rounds, eval_every):
    with pytest.raises(ValueError, match=rf"rounds={rounds} .* eval_every={eval_every}; give whole numbers >= 1"):
        PROBLEM.run(PROBLEM.algorithm("fedavg"), jax.random.key(0), rounds=rounds, eval_every=eval_every)


OTHER = tiny(counts=(2, 3, 4, 5))


def test_sizes_of_another_federation_are_refused():
    algorithm, key = PROBLEM.algorithm("fedavg"), jax.random.key(0)
    message = "sizes are those of 4 clients with up to 5 examples, but the federation has 6 with up to 12; make them by"
    with pytest.raises(ValueError, match=message):
        PROBLEM.run(algorithm, key, rounds=1, sizes=OTHER.sizes)
    state = fedeba_jax.start(algorithm, PROBLEM.model.init, key, sizes=PROBLEM.sizes)
    with pytest.raises(ValueError, match=message):
        fedeba_jax.run_round(algorithm, PROBLEM.federation, state, key, 0, sizes=OTHER.sizes, client_map=maps.mapped)


@pytest.mark.parametrize(
    ("test", "message"),
    [
        (OTHER.test, "test has 4 clients, but sizes are those of 6; hold out for each"),
        ({"own": PROBLEM.test, "late": OTHER.test}, "late has 4 clients"),
        (PROBLEM.federation, r"test is a Federation; give held_out\(federation\), or several by name"),
    ],
)
def test_held_out_data_of_other_clients_are_refused(test, message):
    with pytest.raises(ValueError, match=message):
        PROBLEM.run(PROBLEM.algorithm("fedavg"), jax.random.key(0), rounds=1, test=test)


@pytest.mark.parametrize("cohort_size", [0, 7, -1, 2.5])
def test_a_cohort_outside_the_federation_is_refused(cohort_size):
    with pytest.raises(ValueError, match=f"cohort_size={cohort_size} is not between 1 and num_clients=6"):
        fedeba_jax.sizes_of(PROBLEM.federation, PROBLEM.model.init, cohort_size)


def test_sizes_are_read_off_the_federation_and_the_model():
    assert fedeba_jax.sizes_of(PROBLEM.federation, PROBLEM.model.init, 4) == Sizes(6, 4, 12, 39)


# Runs in parts.


@pytest.mark.parametrize("name", slow_but(["ditto"], ["fedeba_plus", "ditto"]))
def test_a_run_in_parts_is_the_whole_run_bit_for_bit(name):
    """6 rounds, evaluated after every other one: at once, and as three parts that share a program."""
    algorithm, key = PROBLEM.algorithm(name), jax.random.key(0)

    @jax.jit
    def part(state, first_round):
        return PROBLEM.run(algorithm, key, rounds=2, eval_every=2, state=state, first_round=first_round)

    state = fedeba_jax.start(algorithm, PROBLEM.model.init, key, sizes=PROBLEM.sizes)
    whole = jax.jit(lambda state: PROBLEM.run(algorithm, key, rounds=6, eval_every=2, state=state))(state)
    infos, scores = [], []
    for first in (0, 2, 4):
        state, info, found = part(state, first)
        infos, scores = [*infos, info], [*scores, found]
    joined = [jax.tree.map(lambda *leaves: np.concatenate(leaves), *parts) for parts in (infos, scores)]
    assert equal((state, *joined), whole)


def test_without_a_state_a_run_starts_anew_and_its_rounds_may_count_from_anywhere():
    algorithm, key = PROBLEM.algorithm("fedavg"), jax.random.key(0)
    first, third = (PROBLEM.run(algorithm, key, rounds=1, first_round=t)[1] for t in (0, 3))
    whole = PROBLEM.run(algorithm, key, rounds=4)[1]
    assert equal(first["cohort"][0], whole["cohort"][0])
    assert equal(third["cohort"][0], whole["cohort"][3])


def test_the_state_before_the_first_round_is_the_algorithm_s():
    key = jax.random.key(7)
    for name in ("fedavg", "ditto", "fedwavg"):
        algorithm = PROBLEM.algorithm(name)
        state = fedeba_jax.start(algorithm, PROBLEM.model.init, key, sizes=PROBLEM.sizes)
        assert equal(state, algorithm.init(key, PROBLEM.model.init, PROBLEM.sizes))
        half = fedeba_jax.start(algorithm, PROBLEM.model.init, key, sizes=PROBLEM.sizes, state_dtype=jnp.bfloat16)
        assert equal(half.server, state.server)
        for leaf, kept in zip(jax.tree.leaves(half.clients), jax.tree.leaves(state.clients), strict=True):
            floating = jnp.issubdtype(kept.dtype, jnp.floating)
            assert leaf.dtype == (jnp.bfloat16 if floating else kept.dtype)


def test_the_key_of_the_start_follows_from_that_of_the_run():
    runs = [
        PROBLEM.run(PROBLEM.algorithm("fedavg", rate=0.0), jax.random.key(s), rounds=1, init_key=None) for s in (0, 1)
    ]
    models = [state.server.params for state, _, _ in runs]
    assert not equal(*models)
    assert equal(models[0], PROBLEM.model.init(jax.random.fold_in(jax.random.key(0), 2**32 - 1)))


# Several held-out sets.


@pytest.mark.parametrize("name", slow_but(["ditto"], ["fedavg", "ditto"]))
def test_several_held_out_sets_are_scored_by_name(name):
    """Each as if it were alone; "few" has half of every client's examples."""
    few = held_out(PROBLEM.federation._replace(num_examples=(PROBLEM.federation.num_examples + 1) // 2))
    algorithm, key = PROBLEM.algorithm(name), jax.random.key(0)
    state, info, scores = PROBLEM.run(algorithm, key, rounds=2, eval_every=1, test={"all": PROBLEM.test, "few": few})
    assert set(scores) == {"all", "few"}
    for split, test in (("all", PROBLEM.test), ("few", few)):
        alone_state, alone_info, alone = PROBLEM.run(algorithm, key, rounds=2, eval_every=1, test=test)
        assert set(scores[split]) == set(alone) == ({"global", "personal"} if name == "ditto" else {"global"})
        close(scores[split], alone, 1e-5)
        assert equal((state, info), (alone_state, alone_info))
    assert not equal(scores["all"], scores["few"])


# Divergence.


DIVERGING = PROBLEM.algorithm("fedavg", rate=1e38)  # its first round takes it beyond all numbers


@functools.cache
def diverged(rounds=2):
    """From one x_0, made outside: two programs may round its making differently."""
    key = jax.random.key(0)
    state = fedeba_jax.start(DIVERGING, PROBLEM.model.init, key, sizes=PROBLEM.sizes)
    return jax.jit(lambda state: PROBLEM.run(DIVERGING, key, rounds=rounds, eval_every=2, state=state))(state)


def test_a_run_that_is_no_longer_finite_stays_as_it_is():
    """Chunks of 2 rounds: the first is told as it is, the others have no scores, and the state moves no more."""
    state, info, scores = diverged(rounds=6)
    after_two, first, first_scores = diverged()
    assert not is_finite(DIVERGING, state)
    assert equal_with_nans(state, after_two)
    assert equal_with_nans(jax.tree.map(lambda leaf: leaf[:2], info), first)
    assert equal_with_nans(jax.tree.map(lambda leaf: leaf[:1], scores), first_scores)
    assert not info["finite"].any()
    assert not any(np.any(leaf[2:]) for leaf in jax.tree.leaves(info))
    assert all(np.isnan(leaf).all() for leaf in jax.tree.leaves(scores))


def test_a_diverged_run_that_is_resumed_stays_too():
    state, *_ = diverged()
    again, info, scores = PROBLEM.run(DIVERGING, jax.random.key(0), rounds=2, eval_every=2, state=state, first_round=2)
    assert equal_with_nans(again, state)
    assert not any(np.any(leaf) for leaf in jax.tree.leaves(info))
    assert all(np.isnan(leaf).all() for leaf in jax.tree.leaves(scores))


def test_the_same_run_side_by_side_with_a_finite_one_does_not_hold_it_up():
    """Swept by vmap, where both sides of the gate are computed."""

    def make_run(rate):
        return PROBLEM.run(PROBLEM.algorithm("fedavg", rate=rate), jax.random.key(0), rounds=4, eval_every=2)

    rates = jnp.array([0.3, 1e38])
    for run_map in (maps.mapped, jax.vmap):
        _, info, scores = jax.jit(lambda rates, m=run_map: fedeba_jax.sweep(make_run, (rates,), run_map=m))(rates)
        np.testing.assert_array_equal(info["finite"], [[True] * 4, [False] * 4])
        for leaf in jax.tree.leaves(scores):
            np.testing.assert_array_equal(np.isnan(leaf).all((1, 2)), [False, True])
            assert np.isfinite(leaf[0]).all()


def equal_with_nans(a, b):
    pairs = zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True)
    return all(np.array_equal(x, y, equal_nan=jnp.issubdtype(x.dtype, jnp.floating)) for x, y in pairs)


# Sweeps.


@pytest.mark.parametrize("run_map", [maps.mapped, jax.vmap], ids=["mapped", "vmap"])
def test_what_runs_share_is_passed_as_data(run_map):
    def make_run(numbers, key, shared, factor):
        return {"sum": factor * (numbers["a"] + shared["x"].sum()), "draw": jax.random.normal(key)}

    points = ({"a": jnp.arange(3.0)}, jax.random.split(jax.random.key(0), 3))
    found = jax.jit(lambda *s: fedeba_jax.sweep(make_run, points, shared=s, run_map=run_map))({"x": jnp.ones(4)}, 2.0)
    np.testing.assert_allclose(found["sum"], [8, 10, 12])
    np.testing.assert_allclose(found["draw"], jax.vmap(jax.random.normal)(points[1]), rtol=1e-6)


# Compilation.


@pytest.mark.parametrize("name", ["fedeba_plus", "prac_fedeba_plus"])
def test_one_compilation_serves_all_numbers_and_seeds(name):
    """Requests are counted: a program found in the cache on disk is one too."""
    compiled, traced = [], []

    def listener(event, duration, **context):
        if event == "/jax/core/compile/backend_compile_duration":
            compiled.append(context.get("fun_name"))

    @jax.jit
    def chunk_of_rounds(seed, rate, hparams, state, first):
        traced.append(name)
        algorithm = PROBLEM.algorithm(name, rate=rate, **hparams)
        return fedeba_jax.run_rounds(
            algorithm, PROBLEM.federation, state, jax.random.key(seed), first,
            rounds=2, sizes=PROBLEM.sizes, client_map=jax.vmap,
        )  # fmt: skip

    state = PROBLEM.algorithm(name).init(jax.random.key(0), PROBLEM.model.init, PROBLEM.sizes)
    jax.monitoring.register_event_duration_secs_listener(listener)
    try:
        points = [(0.1, 0.0, 0.0, 0.1), (1.0, 0.5, 30.0, 0.2), (20.0, 1.0, 180.0, 0.3)]
        for seed, (tau, alpha, theta, rate) in enumerate(points):
            hparams = {"tau": tau, "alpha": alpha, "theta": theta}
            state, _ = chunk_of_rounds(seed, rate, hparams, state, 2 * seed)  # its own state, as a run resumed
    finally:
        jax.monitoring.unregister_event_duration_listener(listener)
    assert (traced, compiled.count("jit(chunk_of_rounds)")) == ([name], 1)


A_FEW = ("fedavg", "fedeba_plus", "ditto", "fedmgda_plus", "rank_core_fed", "lp_proj")  # every kind of operation


@pytest.mark.parametrize("name", slow_but(A_FEW, fedeba_jax.ALGORITHMS))
def test_a_round_lowers_for_every_platform_and_never_calls_the_host(name):
    algorithm = PROBLEM.algorithm(name)

    def round_(seed, state, federation):
        key = jax.random.key(seed)
        return fedeba_jax.run_round(algorithm, federation, state, key, seed, sizes=PROBLEM.sizes, client_map=jax.vmap)

    state = jax.eval_shape(lambda key: algorithm.init(key, PROBLEM.model.init, PROBLEM.sizes), jax.random.key(0))
    exported = jax.export.export(jax.jit(round_), platforms=["cuda", "tpu", "cpu"])(
        jax.ShapeDtypeStruct((), jnp.int32), state, PROBLEM.federation
    )
    assert set(exported.platforms) == {"cuda", "tpu", "cpu"}
    assert not any("callback" in call for call in custom_calls(exported.mlir_module()))


def test_a_call_of_the_host_would_be_seen():
    text = jax.jit(lambda x: jax.pure_callback(np.sin, x, x)).lower(1.0).as_text()
    assert any("callback" in call for call in custom_calls(text))


def custom_calls(text):
    return re.findall(r"custom_call @(\S+?)\(", text)
