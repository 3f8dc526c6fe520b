"""Laws that every registered algorithm must pass; a new one is covered by being registered."""

import functools

import jax
import numpy as np
import pytest

import fedeba_jax
from fedeba_jax import checkpoint, tree
from fedeba_jax import client_map as maps
from fedeba_jax.evaluate import score
from fedeba_jax.hyperparameters import hyperparameters
from tests.support.one_round import COHORT, IDS, KEY, MAPS, SMALL, one_round, program
from tests.support.problems import tiny

every_algorithm = pytest.mark.parametrize("name", fedeba_jax.ALGORITHMS)

AS_USERS = (
    ("xla_cpu_use_fusion_emitters", True),
)  # the suite's way to emit code rounds by what is around an operation
BY_CLIENT = {  # what servers remember of each client: the first axis of these counts clients
    "afl": ("mixture",),
    "aaggff": ("p", "gradients"),
    "robust_fedeba_plus": ("history",),
}
FOLLOWS_LABELS = {"rank_core_fed": "a client's shares of the random mixtures are drawn by its id"}
BY_PLACE = {"fedfv": "its history lists updates by their place in the cohort; the rounds after show what it says"}


def with_maps(argument, always, for_a_few):
    """Every algorithm with each map; those `for_a_few` combine the others, and are slow beyond two algorithms."""

    def case(value, name):
        slow = value in for_a_few and name not in ("fedeba_plus", "ditto")
        return pytest.param(value, name, marks=pytest.mark.slow if slow else ())

    names = fedeba_jax.ALGORITHMS
    return pytest.mark.parametrize((argument, "name"), [case(m, name) for m in always + for_a_few for name in names])


def without_places(name, server):
    """The server's state but for a memory that is ordered by place in the cohort."""
    return server._replace(memory=None) if name in BY_PLACE else server


def made(problem, name, **changes):
    return problem.algorithm(name, **SMALL.get(name, {}), **changes)


def traced(name):
    """The traced hyper-parameters of an algorithm, at values other than their defaults."""
    found = hyperparameters(fedeba_jax.ALGORITHMS[name]).values()
    return {h.name: np.asarray(0.5 * (h.default or 0.4) + 0.1) for h in found if h.traced}


def close(a, b, tolerance):
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, atol=tolerance, rtol=tolerance), a, b)


def start(name, cohort_size=COHORT):
    return started(name, cohort_size, jax.config.jax_enable_x64)


@functools.cache
def started(name, cohort_size, x64):
    del x64  # a part of the cache's key
    problem = tiny(cohort_size)
    return made(problem, name).init(jax.random.key(0), problem.model.init, problem.sizes)


def rounds(run, name, count, ids=IDS, rate=0.3, between=lambda state: state):
    """`count` rounds of a one-round program; the cohort moves along by one client a round."""
    state, hparams, federation = start(name, len(ids)), traced(name), tiny(COHORT).federation
    for t in range(count):
        state, info = run(state, (ids + t) % 6, np.asarray(t), np.asarray(rate), hparams, federation)
        state = between(jax.device_get(state))  # a sharded state would need a program of its own
    return state, info


@with_maps("map_name", ["sharded"], ["map", "chunked", "sharded_vmap"])
def test_client_maps_agree(x64, map_name, name):
    """With vmap; that so does `map`, for every algorithm, is a part of the law of runs side by side."""
    close(rounds(program(name, map_name), name, 5), rounds(program(name), name, 5), 1e-8)


@pytest.mark.slow  # float64 says the same, to more digits
@every_algorithm
@pytest.mark.parametrize("map_name", [m for m in MAPS if m != "vmap"])
def test_client_maps_agree_in_float32(name, map_name):
    result = rounds(program(name, map_name, x64=False), name, 1)
    close(result[0], rounds(program(name, x64=False), name, 1)[0], 1e-5)


@every_algorithm
def test_jit_changes_nothing(x64, name):
    expected = rounds(program(name), name, 1)
    with jax.disable_jit():
        close(rounds(one_round(name, jax.vmap), name, 1), expected, 1e-10)


@every_algorithm
def test_runs_side_by_side_of_many_rounds_with_scheduled_numbers_are_the_same_rounds_alone(x64, name):
    """A sweep of scans over rounds, in two parts, is round after round of each run alone, with the numbers of each.

    The scans have their clients under `map`, the rounds have theirs under vmap. One trace serves all points and parts.
    """
    problem, traces, points = tiny(COHORT), [], 2
    rates = np.array([0.2, 0.3])
    hparams = {k: v * np.linspace(0.5, 1.1, points) for k, v in traced(name).items()}

    def grown(values):
        return {k: lambda t, v=v: v * (1 + 0.1 * t) for k, v in values.items()}

    def four_rounds(rate, values, state, first):
        traces.append(name)
        algorithm = fedeba_jax.scheduled(lambda **h: made(problem, name, rate=rate, **h), **grown(values))
        return fedeba_jax.run_rounds(
            algorithm, problem.federation, state, jax.random.key(KEY), first,
            rounds=4, sizes=problem.sizes, client_map=maps.mapped,
        )  # fmt: skip

    @jax.jit
    def sweep(state, first):
        return fedeba_jax.sweep(four_rounds, (rates, hparams, state), shared=(first,), run_map=jax.vmap)

    middle, first_info = sweep(jax.tree.map(lambda leaf: np.stack([leaf] * points), start(name)), 0)
    end, second_info = sweep(middle, 4)
    assert len(traces) == 1
    cohorts = np.concatenate([first_info["cohort"], second_info["cohort"]], axis=1)
    for i in range(points):
        state = start(name)
        for t, ids in enumerate(cohorts[i]):
            values = {k: schedule(t) for k, schedule in grown({k: v[i] for k, v in hparams.items()}).items()}
            state, _ = program(name)(state, ids, np.asarray(t), rates[i], values, problem.federation)
        close(jax.tree.map(lambda leaf, i=i: leaf[i], end), state, 1e-8)


@every_algorithm
def test_a_checkpoint_between_rounds_changes_no_bit(x64, name, tmp_path):
    def through_a_file(state):
        checkpoint.save(tmp_path / "checkpoint.bin", {}, state)
        return checkpoint.restore(checkpoint.load(tmp_path / "checkpoint.bin")[1], state)

    close(rounds(program(name), name, 3, between=through_a_file), rounds(program(name), name, 3), 0)


@every_algorithm
def test_order_of_the_cohort_does_not_matter(x64, name):
    one, other = rounds(program(name), name, 4)[0], rounds(program(name), name, 4, ids=IDS[::-1])[0]
    close(without_places(name, one.server), without_places(name, other.server), 1e-10)
    close(one.clients, other.clients, 1e-10)


@every_algorithm
def test_nothing_moves_at_rate_zero(x64, name):
    result = rounds(program(name), name, 2, rate=0.0)[0]
    models = made(tiny(), name).models
    close(models(result), models(start(name)), 1e-12)


@pytest.mark.parametrize("name", [name for name in fedeba_jax.ALGORITHMS if name not in FOLLOWS_LABELS])
def test_relabelled_clients_give_relabelled_results(x64, name):
    """Full batch and full participation: nothing random is left to follow the labels."""
    problem, order = tiny(cohort_size=6), np.array([4, 2, 0, 5, 1, 3])
    run = jax.jit(one_round(name, jax.vmap, cohort_size=6, batch_size=12))
    fixed = (np.arange(6), np.asarray(0), np.asarray(0.3), traced(name))
    results = []
    for federation in (problem.federation, problem.relabelled(order).federation):
        state = start(name, cohort_size=6)
        for _ in range(3):
            state, _ = run(state, *fixed, federation)
        results.append(state)
    server = results[0].server
    if name in BY_CLIENT:
        memory = server.memory
        relabelled = {field: tree.rows(getattr(memory, field), order) for field in BY_CLIENT[name]}
        server = server._replace(memory=memory._replace(**relabelled))
    close(without_places(name, results[1].server), without_places(name, server), 1e-10)
    close(results[1].clients, jax.tree.map(lambda leaf: leaf[order], results[0].clients), 1e-10)


@with_maps("run_map", [], ["vmap", "map", "sharded"])
def test_swept_equals_single(x64, run_map, name):
    """One round: bit-equal under map, 1e-8 under the other run maps; one trace serves every point."""
    traces, points = [], 3
    federation = tiny(COHORT).federation
    hparams = {k: v * np.linspace(0.5, 1.1, points) for k, v in traced(name).items()}
    rates = np.array([0.1, 0.2, 0.3])
    to_the_bit = run_map == "map"
    client_map, options = ("map", AS_USERS) if to_the_bit else ("vmap", None)

    state = start(name)
    run = one_round(name, MAPS[client_map]())

    def make_run(rate, hparams):
        traces.append(name)
        return run(state, IDS, np.asarray(0), rate, hparams, federation)

    alone = program(name, client_map, options=options)
    single = [
        alone(state, IDS, np.asarray(0), rates[i], {k: v[i] for k, v in hparams.items()}, federation)
        for i in range(points)
    ]
    single = jax.tree.map(lambda *leaves: np.stack(leaves), *single)
    sweep = jax.jit(
        lambda *points: fedeba_jax.sweep(make_run, points, run_map=MAPS[run_map]()),
        compiler_options=dict(options) if options else None,
    )
    close(sweep(rates, hparams), single, 0 if to_the_bit else 1e-8)
    assert len(traces) == 1


@every_algorithm
def test_state_is_a_fixed_point_of_shapes_and_dtypes(name):
    problem = tiny(COHORT)
    init = made(problem, name).init
    before = jax.eval_shape(lambda key: init(key, problem.model.init, problem.sizes), jax.random.key(0))
    arguments = (IDS, np.asarray(0), np.asarray(0.3), traced(name), problem.federation)
    after, info = jax.eval_shape(one_round(name, maps.mapped), before, *arguments)
    assert jax.tree.structure(before) == jax.tree.structure(after)
    assert jax.tree.leaves(before) == jax.tree.leaves(after)
    assert {"floats_down", "bytes_down", "floats_up", "bytes_up", "exchanges", "finite", "cohort"} <= set(info)


@every_algorithm
def test_every_client_is_scored_by_a_global_model_or_by_its_own(name):
    problem = tiny(COHORT)

    @jax.jit
    def scored(state, test):
        return score(made(problem, name), state, test, apply=problem.model.apply, client_map=maps.mapped)

    scores = scored(start(name), problem.test)
    assert {"global", "personal"} & set(scores)
    for found in scores.values():
        assert found.accuracy.shape == found.loss.shape == (6,)
        assert np.isfinite(found.loss).all()
