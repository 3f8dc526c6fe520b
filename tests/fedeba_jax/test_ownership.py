"""Rows of clients on the devices that own them: places, reading and writing, rounds and evaluations."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fedeba_jax
from fedeba_jax import client_map as maps
from fedeba_jax import ownership, tree
from fedeba_jax.evaluate import score
from fedeba_jax.server import SERVERS
from tests.support.problems import COUNTS, tiny
from tests.support.runs import binary

SIZES = [(10, 4, 2), (9, 5, 2), (5, 5, 4), (100, 10, 8), (1000, 64, 8), (3, 2, 8)]


@functools.cache
def seats_of(clients, devices):
    return jax.jit(lambda ids: ownership.seated(ownership.ordered(ids, clients, devices), clients, devices))


@pytest.mark.parametrize(("clients", "n", "devices"), SIZES)
def test_devices_have_their_own_clients_first(clients, n, devices):
    """Everybody has one place, nobody is away whose device has another's client, and the drawn order is forgotten."""
    rng, share, block = np.random.default_rng(n), -(-clients // devices), -(-n // devices)
    for _ in range(5):
        ids = rng.permutation(clients)[:n]
        seats, again = (seats_of(clients, devices)(drawn) for drawn in (ids, ids[::-1]))
        np.testing.assert_array_equal(seats.id, again.id)
        np.testing.assert_array_equal(np.sort(seats.id), np.sort(ids))
        owner, device = np.asarray(seats.id) // share, np.arange(n) // block
        np.testing.assert_array_equal(np.asarray(seats.turn) >= 0, owner != device)
        room = np.bincount(device, minlength=devices)
        assert absent(seats) == np.maximum(np.bincount(owner, minlength=devices) - room, 0).sum()
        check_turns(seats, owner, device, devices)


def absent(seats):
    """How many clients are away from home."""
    return int((np.asarray(seats.turn) >= 0).sum())


def check_turns(seats, owner, device, devices):
    """In a turn all go equally many devices further, no device sends two rows or gets two, and no turn is idle."""
    turn = np.asarray(seats.turn)
    assert set(turn[turn >= 0]) == set(range(int(seats.turns[-1])))
    for k in range(int(seats.turns[-1])):
        (further,) = set(((device - owner) % devices)[turn == k])
        assert seats.turns[further - 1] <= k < seats.turns[further]
        assert len(set(owner[turn == k])) == len(set(device[turn == k])) == (turn == k).sum()


def test_few_turns_bring_all_rows_to_their_places():
    """As many as the fullest device must send, and a few; on 64 devices hardly more than on 8."""
    rng = np.random.default_rng(0)
    for devices, most in ((8, 6.5), (64, 8.0)):
        drawn = jnp.array([rng.permutation(1024)[:64] for _ in range(200)])
        seats = jax.jit(jax.vmap(seats_of(1024, devices)))(drawn)
        assert 3 < seats.turns[:, -1].mean() < most


def test_full_participation_moves_nobody():
    seats = seats_of(10, 4)(np.arange(10)[::-1])
    np.testing.assert_array_equal(seats.id, np.arange(10))
    assert absent(seats) == 0


def kept(clients):
    rng = np.random.default_rng(0)
    return {
        "model": rng.normal(size=(clients, 3, 2)).astype(np.float32),
        "half": jnp.asarray(rng.normal(size=(clients, 2)), jnp.bfloat16),
        "seen": rng.integers(0, 2, (clients, 4)).astype(bool),
        "number": np.arange(clients, dtype=np.int32),
    }


@functools.cache
def exchange(clients, n):
    """The rows of a cohort as it reads them, and what is kept after it wrote others, on two devices."""
    client_map = maps.sharded(maps.device_mesh())

    @jax.jit
    def run(kept, ids, values):
        state = fedeba_jax.types.State((), kept)
        held, seats = ownership.padded(client_map, state).clients, seats_of(clients, 2)(ids)
        found = ownership.rows(client_map, seats, held)
        place = jnp.searchsorted(jnp.sort(ids), seats.id)  # rank of the client at each place
        written = ownership.set_rows(client_map, seats, held, tree.rows(values, place))
        return seats, found, ownership.cropped(written, kept)

    return run


@pytest.mark.parametrize(("clients", "n"), [(12, 6), (11, 5), (40, 20)])
def test_rows_are_read_and_written_wherever_they_live(clients, n):
    """Clients of both devices; of one alone, so that half of all rows travel, in several turns; and of the other."""
    before, run = kept(clients), exchange(clients, n)
    values = jax.tree.map(lambda leaf: 1 - leaf[:n].astype(leaf.dtype) if leaf.dtype != bool else ~leaf[:n], before)
    cohorts = [np.random.default_rng(1).permutation(clients)[:n], np.arange(n), np.arange(clients - n, clients)]
    for ids in cohorts:
        seats, found, after = run(before, ids, values)
        jax.tree.map(np.testing.assert_array_equal, found, tree.rows(before, np.asarray(seats.id)))
        expected = tree.set_rows(jax.tree.map(jnp.asarray, before), np.sort(ids), values)
        jax.tree.map(np.testing.assert_array_equal, after, expected)
    assert absent(seats) == seats.turns[-1] == -(-n // 2)


def test_rows_find_their_way_among_eight_devices():
    done = binary("tests.support.on_eight_devices")
    assert done.returncode == 0, done.stderr


STATEFUL = {
    "ditto": ("ditto", "sgd", {}),
    "fedavg, varp": ("fedavg", "varp", {}),
    "fedfv": ("fedfv", "sgd", {"window": 2}),
    "fedfv, current": ("fedfv", "sgd", {"window": 2, "fv_window": "current"}),
}


@pytest.mark.parametrize("setting", STATEFUL)
def test_clients_that_do_not_divide_stay_where_they_are(x64, setting):
    """5 clients, 3 of a cohort, 2 devices: as under vmap, also with clients of one device alone in a cohort."""
    name, server, hparams = STATEFUL[setting]
    problem = tiny(cohort_size=3, counts=COUNTS[:5])
    algorithm = problem.algorithm(name, server=SERVERS[server](1.0), **hparams)
    client_map = maps.sharded(maps.device_mesh())
    cohorts = fedeba_jax.sampling.listed(jnp.array([[0, 1, 2], [4, 3, 0], [2, 1, 0], [3, 4, 1]]))
    start = problem.start(algorithm, jax.random.key(0))

    def run(client_map, state):
        return fedeba_jax.run_rounds(
            algorithm, problem.federation, state, jax.random.key(1), 0,
            rounds=4, sizes=problem.sizes, client_map=client_map, sample=cohorts,
        )  # fmt: skip

    expected, info = jax.jit(functools.partial(run, jax.vmap))(start)
    held = ownership.padded(client_map, start)
    place = ownership.placement(client_map, held)
    placed = jax.device_put(held, place)
    after, divided_info = jax.jit(functools.partial(run, client_map), out_shardings=(place, None))(placed)
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, atol=1e-8, rtol=1e-8),
        (ownership.cropped(after, start), divided_info), (expected, info),
    )  # fmt: skip
    for leaf, where in zip(jax.tree.leaves(after), jax.tree.leaves(place), strict=True):
        rows = {shard.data.shape[:1] for shard in leaf.addressable_shards}
        assert where.is_fully_replicated or rows == {(leaf.shape[0] // 2,)}


def test_padding_is_not_evaluated():
    problem = tiny(cohort_size=3, counts=COUNTS[:5])
    client_map = maps.sharded(maps.device_mesh())
    algorithm = problem.algorithm("lp_proj", dim=4, outer=1, inner=1)
    state = problem.start(algorithm, jax.random.key(0))
    models = jax.vmap(problem.model.init)(jax.random.split(jax.random.key(1), 5))

    def judge(client_map):
        judged = functools.partial(score, algorithm, apply=problem.model.apply, client_map=client_map)
        return jax.jit(lambda state: judged(state, problem.test))

    state = state._replace(clients=models)
    expected = judge(jax.vmap)(state)
    for given in (state, ownership.padded(client_map, state)):
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5), judge(client_map)(given), expected)
