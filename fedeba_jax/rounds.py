"""Rounds, runs and sweeps of runs, each a pure function that compiles to one program."""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from fedeba_jax import client_map as client_maps
from fedeba_jax import ownership, tree
from fedeba_jax.attacks import Attack, Attackers
from fedeba_jax.cohort import Cohort
from fedeba_jax.evaluate import all_finite, score
from fedeba_jax.hyperparameters import is_whole
from fedeba_jax.ownership import Seats
from fedeba_jax.sampling import Sampler, uniform
from fedeba_jax.tracing import traced_once
from fedeba_jax.types import (
    Algorithm,
    Apply,
    ByClient,
    ByPlace,
    ClientMap,
    Divided,
    Federation,
    HeldOut,
    Info,
    InitParams,
    Key,
    Sizes,
    State,
)

INIT = 2**32 - 1
"""Folded into a run's key for x_0; its rounds fold in 0, 1, ..."""


def sizes_of(federation: Federation, init_params: InitParams, cohort_size: int) -> Sizes:
    """The static sizes of a simulation."""
    num_clients, capacity = federation.rows.shape
    return sizes_from(init_params, num_clients, cohort_size, capacity)


def sizes_from(init_params: InitParams, num_clients: int, cohort_size: int, capacity: int) -> Sizes:
    """The static sizes of a simulation whose federation is yet to be made."""
    if not is_whole(cohort_size) or not 1 <= cohort_size <= num_clients:
        raise ValueError(f"cohort_size={cohort_size} is not between 1 and num_clients={num_clients}")
    model = jax.eval_shape(init_params, jax.random.key(0))
    return Sizes(num_clients, cohort_size, capacity, tree.size(model))


def start(algorithm: Algorithm, init_params: InitParams, key: Key, *, sizes: Sizes, state_dtype: Any = None) -> State:
    """The state before the first round.

    Args:
      algorithm: from a factory of `fedeba_jax.ALGORITHMS`.
      init_params: key -> x_0.
      key: randomness of x_0.
      sizes: from `sizes_of`.
      state_dtype: the type in which the clients' floats are kept between rounds; None is the usual one. bfloat16
        halves the memory of personal models. Rounds and evaluations compute in the usual type, on copies of the rows
        they need.
    """
    state = algorithm.init(key, init_params, sizes)
    return state._replace(
        clients=tree.cast(state.clients, jnp.result_type(float) if state_dtype is None else state_dtype)
    )


def round_keys(key: Key, round_: jax.Array) -> Key:
    """Keys of a round: of the draw of its cohort, of its clients, and of the server."""
    return jax.random.split(jax.random.fold_in(key, round_), 3)


def cohorts(key: Key, first_round: jax.Array | int, rounds: int, sizes: Sizes, sample: Sampler = uniform) -> jax.Array:
    """Who is sampled in each of these rounds, [rounds, n]: known before they run."""

    def cohort(round_: jax.Array) -> jax.Array:
        return sample(round_keys(key, round_)[0], round_, sizes)

    return jax.lax.map(cohort, first_round + jnp.arange(rounds))


def asked(algorithm: Algorithm, sampled: jax.Array, sizes: Sizes, devices: int) -> jax.Array:
    """Who is asked in a round in which these are sampled, in the order in which the client map gets them.

    Where several devices own the rows of clients (`ownership.owners`), each comes first to its own.
    """
    ids = jnp.arange(sizes.num_clients) if algorithm.everyone else sampled
    return ownership.ordered(ids, sizes.num_clients, devices) if devices > 1 else ids


def participations(key: Key, rounds: int, sizes: Sizes, sample: Sampler = uniform) -> jax.Array:
    """How many of a run's first rounds each client takes part in, [M]."""
    drawn = cohorts(key, 0, rounds, sizes, sample)
    return jnp.zeros((sizes.num_clients,), jnp.int32).at[drawn].add(1)


def run_round(
    algorithm: Algorithm,
    federation: Federation | Divided,
    state: State,
    key: Key,
    round_: jax.Array,
    *,
    sizes: Sizes,
    client_map: ClientMap,
    sample: Sampler = uniform,
    attack: Attack | None = None,
) -> tuple[State, Info]:
    """One round: sample a cohort, let the algorithm update, write the cohort's state back.

    Of the diagnostics, `finite` is false if the state is not (`is_finite`), or if a client told a number that is not
    and that the algorithm does not leave out; `offenders`, as `cohort` is ordered, are then those who are known to have
    sent something that is not finite.

    All randomness comes from `fold_in(key, round)`, a client's from a further `fold_in` of its id,
    so results do not depend on chunks of rounds, on the order of the cohort or on the client map.
    """
    _check_sizes(sizes, federation)
    held = ownership.padded(client_map, state)
    common: Any = {"sizes": sizes, "client_map": client_map, "sample": sample, "attack": attack}
    held, info = _round(algorithm, federation, held, key, round_, **common)
    return ownership.cropped(held, state), info


def _round(
    algorithm: Algorithm,
    federation: Federation | Divided,
    state: State,
    key: Key,
    round_: jax.Array,
    *,
    sizes: Sizes,
    client_map: ClientMap,
    sample: Sampler,
    attack: Attack | None,
) -> tuple[State, Info]:
    """A round of a padded state."""
    devices = ownership.owners(client_map, state)

    def draw(key: Key, round_: jax.Array) -> tuple[jax.Array, Seats, Key, Key]:
        sampling, clients, server = round_keys(key, round_)
        sampled = sample(sampling, round_, sizes)
        ids = asked(algorithm, sampled, sizes, devices)
        seats = ownership.seated(ids, sizes.num_clients, devices)
        return sampled, seats, jax.vmap(jax.random.fold_in, in_axes=(None, 0))(clients, seats.id), server

    sampled, seats, client_keys, server = client_maps.everywhere(client_map, draw)(key, round_)
    attackers = None
    if attack is not None:
        draw_attackers = client_maps.everywhere(client_map, functools.partial(attack.draw, sizes=sizes))
        attackers = Attackers(attack, seats.id, *draw_attackers(jnp.asarray(attack.share), key, round_, seats.id))
    cohort = Cohort(
        seats=seats,
        key=server,
        client_keys=client_keys,
        state=tree.cast(ownership.rows(client_map, seats, state.clients), jnp.result_type(float)),
        round=round_,
        federation=federation,
        client_map=client_map,
        num_clients=sizes.num_clients,
        model_size=sizes.model_size,
        sampled=jnp.isin(seats.id, sampled) if algorithm.everyone else None,
        attackers=attackers,
    )
    server_state, cohort_state, info = algorithm.update(state.server, cohort)
    finite = is_finite(algorithm, State(server_state, cohort_state))  # other clients are as they were
    finite = finite & cohort.numbers_are_finite

    def offenders() -> jax.Array:
        return jnp.isin(sampled, jnp.where(cohort.offenders(), seats.id, -1))

    odd = jax.lax.cond(finite, lambda: jnp.zeros(sampled.shape, bool), offenders)
    state = State(server_state, ownership.set_rows(client_map, seats, state.clients, cohort_state))
    told = {"cohort": sampled, "finite": finite, "offenders": odd}
    return state, {**cohort.findings, **info, **cohort.traffic, **told}


def _check_sizes(sizes: Sizes, federation: Federation | Divided) -> None:
    """An error for sizes of another federation: its clients would be sampled here."""
    num_clients = federation.num_examples.shape[0] if federation.ids is None else sizes.num_clients  # a part has fewer
    if (sizes.num_clients, sizes.capacity) != (num_clients, federation.capacity):
        raise ValueError(
            f"sizes are those of {sizes.num_clients} clients with up to {sizes.capacity} examples, but the federation "
            f"has {num_clients} with up to {federation.capacity}; make them by sizes_of(federation, init_params, "
            "cohort_size)"
        )


def _check_held_out(test: Any, sizes: Sizes) -> None:
    """An error for held-out data that are not of the same clients."""
    for name, held in test.items() if isinstance(test, dict) else [("test", test)]:
        if not isinstance(held, HeldOut):
            raise ValueError(f"{name} is a {type(held).__name__}; give held_out(federation), or several by name")
        if (found := held.federation.num_examples.shape[0]) != sizes.num_clients:
            raise ValueError(
                f"{name} has {found} clients, but sizes are those of {sizes.num_clients}; hold out for each"
            )


def is_finite(algorithm: Algorithm, state: State) -> jax.Array:
    """Whether the models of a state, global and the clients' own, are finite, and so is what the server remembers.

    A run that diverged has others. What the server keeps of each client's updates is not looked at: it shows in the
    model of the same round.
    """

    def is_kept(part: Any) -> bool:
        return isinstance(part, ByClient | ByPlace)

    memory = [part for part in jax.tree.leaves(state.server, is_leaf=is_kept) if not is_kept(part)]
    return all_finite((algorithm.models(state), state.clients, memory))


def run_rounds(
    algorithm: Algorithm,
    federation: Federation | Divided,
    state: State,
    key: Key,
    first_round: jax.Array | int,
    *,
    rounds: int,
    sizes: Sizes,
    client_map: ClientMap,
    sample: Sampler = uniform,
    attack: Attack | None = None,
) -> tuple[State, Info]:
    """The next rounds as one scan; info is stacked [rounds, ...]."""

    _check_sizes(sizes, federation)

    common: Any = {"sizes": sizes, "client_map": client_map, "sample": sample, "attack": attack}

    def body(state: State, round_: jax.Array) -> tuple[State, Info]:
        return _round(algorithm, federation, state, key, round_, **common)

    held, info = jax.lax.scan(body, ownership.padded(client_map, state), first_round + jnp.arange(rounds))
    return ownership.cropped(held, state), info


def simulate(
    algorithm: Algorithm,
    federation: Federation | Divided,
    init_params: InitParams,
    key: Key,
    *,
    sizes: Sizes,
    rounds: int,
    eval_every: int,
    test: Any,
    apply: Apply,
    client_map: ClientMap = client_maps.mapped,
    sample: Sampler = uniform,
    attack: Attack | None = None,
    init_key: Key | None = None,
    state_dtype: Any = None,
    state: State | None = None,
    first_round: jax.Array | int = 0,
) -> tuple[State, Info, Any]:
    """A run, or the next part of one: rounds / eval_every chunks of rounds, each followed by an evaluation.

    A run with a round that is not finite (`run_round`) has no scores: they are NaN. From the next chunk on it stays as
    it is and costs nothing more; its diagnostics are then zeros, `finite` among them.

    Args:
      algorithm: from a factory of `fedeba_jax.ALGORITHMS`.
      federation: the training data.
      init_params: key -> x_0.
      key: randomness of sampling and training.
      sizes: from `sizes_of`.
      rounds: how many; a multiple of eval_every.
      eval_every: rounds between evaluations.
      test: the held-out data, a `HeldOut`; or several of them by name.
      apply: the model's logits.
      client_map: how the client axis runs.
      sample: who takes part in a round.
      attack: who lies, and how (`fedeba_jax.attacks`); None: nobody.
      init_key: randomness of x_0; derived from `key` if None.
      state_dtype: as in `start`.
      state: what an earlier part of the run returned; None starts a new one.
      first_round: how many rounds the earlier parts had.

    Returns:
      The final state, diagnostics [rounds, ...], and scores [evaluations, M] by model name (by name of `test` first,
      if that has several).
    """
    if not (is_whole(rounds) and is_whole(eval_every)) or rounds < 1 or eval_every < 1 or rounds % eval_every:
        raise ValueError(f"rounds={rounds} is not a multiple of eval_every={eval_every}; give whole numbers >= 1")
    _check_sizes(sizes, federation)
    _check_held_out(test, sizes)
    init_key = jax.random.fold_in(key, INIT) if init_key is None else init_key
    given = start(algorithm, init_params, init_key, sizes=sizes, state_dtype=state_dtype) if state is None else state

    @traced_once
    def advance(state: State, first: jax.Array) -> tuple[State, tuple[Info, Any]]:
        state, info = run_rounds(
            algorithm,
            federation,
            state,
            key,
            first,
            rounds=eval_every,
            sizes=sizes,
            client_map=client_map,
            sample=sample,
            attack=attack,
        )
        scores = score(algorithm, state, test, apply=apply, client_map=client_map)
        return state, (info, jax.tree.map(lambda s: jnp.where(info["finite"].all(), s, jnp.nan), scores))

    def stay(state: State, first: jax.Array) -> tuple[State, tuple[Info, Any]]:
        info, scores = jax.eval_shape(advance, state, first)[1]
        return state, (tree.zeros_like(info), jax.tree.map(lambda s: jnp.full(s.shape, jnp.nan, s.dtype), scores))

    def chunk(carry: tuple[State, jax.Array], first: jax.Array) -> tuple[tuple[State, jax.Array], tuple[Info, Any]]:
        state, goes_on = carry
        state, (info, scores) = jax.lax.cond(goes_on, advance, stay, state, first)
        return (state, info["finite"].all()), (info, scores)

    firsts = first_round + jnp.arange(0, rounds, eval_every)
    begin = ownership.padded(client_map, given)
    (end, _), (info, scores) = jax.lax.scan(chunk, (begin, is_finite(algorithm, begin)), firsts)
    end = ownership.cropped(end, given)
    return end, jax.tree.map(lambda leaf: leaf.reshape(rounds, *leaf.shape[2:]), info), scores


def sweep(
    make_run: Callable[..., Any], points: Any, *, shared: Any = (), run_map: ClientMap = client_maps.mapped
) -> Any:
    """`make_run(*points_i, *shared)` for every row i of the stacked points: hyper-parameters, keys, ...

    `make_run` builds its algorithm from traced numbers, so one compilation serves all points.

    Args:
      make_run: one run.
      points: a tuple of trees, every leaf stacked over the runs.
      shared: what all runs have in common, as data.
      run_map: how the run axis runs.
    """
    return run_map(make_run, in_axes=(0,) * len(points) + (None,) * len(shared))(*points, *shared)
