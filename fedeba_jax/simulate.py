"""Rounds, runs and sweeps of runs, each a pure function that compiles to one program."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from fedeba_jax import client_map as client_maps
from fedeba_jax import tree
from fedeba_jax.cohort import Cohort
from fedeba_jax.evaluate import Scores, score_model, score_personal
from fedeba_jax.types import Algorithm, Apply, ClientMap, Federation, HeldOut, Info, Key, Params, Sizes, State

INIT = 2**32 - 1
"""Folded into a run's key for x_0; its rounds fold in 0, 1, ..."""
MANY = 2048
"""Clients beyond which a cohort is not drawn by a permutation of all."""


def sizes_of(federation: Federation, init_params: Callable[[Key], Params], cohort_size: int) -> Sizes:
    """The static sizes of a simulation."""
    num_clients, capacity = federation.index.shape
    return sizes_from(init_params, num_clients, cohort_size, capacity)


def sizes_from(init_params: Callable[[Key], Params], num_clients: int, cohort_size: int, capacity: int) -> Sizes:
    """The static sizes of a simulation whose federation is yet to be made."""
    if not 1 <= cohort_size <= num_clients:
        raise ValueError(f"cohort_size={cohort_size} is not between 1 and num_clients={num_clients}")
    model = jax.eval_shape(init_params, jax.random.key(0))
    return Sizes(num_clients, cohort_size, capacity, tree.size(model))


def sample(key: Key, sizes: Sizes) -> jax.Array:
    """Ids of a cohort: uniform without replacement; everybody, in order, at full participation.

    The head of a permutation, or among many clients, whose sorting would show in a round's time, those with the n
    largest of M random numbers.
    """
    if sizes.cohort_size == sizes.num_clients:
        return jnp.arange(sizes.num_clients)
    if sizes.num_clients <= MANY:
        return jax.random.permutation(key, sizes.num_clients)[: sizes.cohort_size]
    return jax.lax.top_k(jax.random.uniform(key, (sizes.num_clients,)), sizes.cohort_size)[1]


def stored(state: State, dtype: Any = None) -> State:
    """The state with its clients' floats kept in this type between rounds; None: in the usual one.

    bfloat16 halves the memory of personal models. Rounds and evaluations compute in the usual type, on copies of the
    rows they need.
    """
    return state._replace(clients=tree.cast(state.clients, jnp.result_type(float) if dtype is None else dtype))


def round_keys(key: Key, round_: jax.Array) -> Key:
    """Keys of a round: of the draw of its cohort, of its clients, and of the server."""
    return jax.random.split(jax.random.fold_in(key, round_), 3)


def participations(key: Key, rounds: int, sizes: Sizes) -> jax.Array:
    """How many of a run's first rounds each client takes part in, [M]."""
    cohorts = jax.lax.map(lambda round_: sample(round_keys(key, round_)[0], sizes), jnp.arange(rounds))
    return jnp.zeros((sizes.num_clients,), jnp.int32).at[cohorts].add(1)


def run_round(
    algorithm: Algorithm,
    federation: Federation,
    state: State,
    key: Key,
    round_: jax.Array,
    *,
    sizes: Sizes,
    client_map: ClientMap,
) -> tuple[State, Info]:
    """One round: sample a cohort, let the algorithm update, write the cohort's state back.

    All randomness comes from `fold_in(key, round)`, a client's from a further `fold_in` of its id,
    so results do not depend on chunks of rounds, on the order of the cohort or on the client map.
    """

    def draw(key: Key, round_: jax.Array) -> tuple[jax.Array, jax.Array, Key, Key]:
        sampling, clients, server = round_keys(key, round_)
        sampled = sample(sampling, sizes)
        ids = jnp.arange(sizes.num_clients) if algorithm.everyone else sampled
        return sampled, ids, jax.vmap(jax.random.fold_in, in_axes=(None, 0))(clients, ids), server

    sampled, ids, client_keys, server = client_maps.everywhere(client_map, draw)(key, round_)
    cohort = Cohort(
        id=ids,
        key=server,
        client_keys=client_keys,
        state=tree.cast(tree.rows(state.clients, ids), jnp.result_type(float)),
        round=round_,
        federation=federation,
        client_map=client_map,
        model_size=sizes.model_size,
        sampled=jnp.isin(ids, sampled) if algorithm.everyone else None,
    )
    server_state, cohort_state, info = algorithm.update(state.server, cohort)
    finite = is_finite(algorithm, State(server_state, cohort_state))  # other clients are as they were
    state = State(server_state, tree.set_rows(state.clients, ids, cohort_state))
    return state, {**info, **cohort.traffic, "cohort": sampled, "finite": finite}


def is_finite(algorithm: Algorithm, state: State) -> jax.Array:
    """Whether the models of a state, global and the clients' own, are finite; a run that diverged has others."""
    finite = [jnp.isfinite(leaf).all() for leaf in jax.tree.leaves((algorithm.models(state), state.clients))]
    return jnp.stack(finite).all()


def run_rounds(
    algorithm: Algorithm,
    federation: Federation,
    state: State,
    key: Key,
    start: jax.Array | int,
    *,
    rounds: int,
    sizes: Sizes,
    client_map: ClientMap,
) -> tuple[State, Info]:
    """Rounds start, start + 1, ... as one scan; info is stacked [rounds, ...]."""

    def body(state: State, round_: jax.Array) -> tuple[State, Info]:
        return run_round(algorithm, federation, state, key, round_, sizes=sizes, client_map=client_map)

    return jax.lax.scan(body, state, start + jnp.arange(rounds))


def simulate(
    algorithm: Algorithm,
    federation: Federation,
    init_params: Callable[[Key], Params],
    key: Key,
    *,
    sizes: Sizes,
    rounds: int,
    eval_every: int,
    test: HeldOut,
    apply: Apply,
    client_map: ClientMap = client_maps.mapped,
    init_key: Key | None = None,
    state_dtype: Any = None,
) -> tuple[State, Info, dict[str, Scores]]:
    """A whole run: rounds / eval_every chunks of rounds, each followed by an evaluation.

    Args:
      algorithm: from a factory of `fedeba_jax.ALGORITHMS`.
      federation: the training data.
      init_params: key -> x_0.
      key: randomness of sampling and training.
      sizes: from `sizes_of`.
      rounds: a multiple of eval_every.
      eval_every: rounds between evaluations.
      test: the held-out data.
      apply: the model's logits.
      client_map: how the client axis runs.
      init_key: randomness of x_0; derived from `key` if None.
      state_dtype: as in `stored`.

    Returns:
      The final state, diagnostics [rounds, ...], and scores [evaluations, M] by model name.
    """
    if eval_every < 1 or rounds % eval_every:
        raise ValueError(f"rounds={rounds} is not a multiple of eval_every={eval_every}")
    init_key = jax.random.fold_in(key, INIT) if init_key is None else init_key
    state = stored(algorithm.init(init_key, init_params, sizes), state_dtype)

    def chunk(state: State, start: jax.Array) -> tuple[State, tuple[Info, dict[str, Scores]]]:
        state, info = run_rounds(
            algorithm, federation, state, key, start, rounds=eval_every, sizes=sizes, client_map=client_map
        )
        return state, (info, evaluate(algorithm, state, test, apply=apply, client_map=client_map))

    state, (info, scores) = jax.lax.scan(chunk, state, jnp.arange(0, rounds, eval_every))
    return state, jax.tree.map(lambda leaf: leaf.reshape(rounds, *leaf.shape[2:]), info), scores


def evaluate(
    algorithm: Algorithm, state: State, test: HeldOut, *, apply: Apply, client_map: ClientMap
) -> dict[str, Scores]:
    """Scores of the algorithm's models by name, and of each client's own prediction as "personal" if it has one."""
    scores = {
        name: score_model(apply, params, test, client_map=client_map)
        for name, params in algorithm.models(state).items()
    }
    if algorithm.personalize is not None:
        scores["personal"] = score_personal(apply, algorithm.personalize, state, test, client_map=client_map)
    return scores


def sweep(make_run: Callable[..., Any], points: Any, *, run_map: ClientMap = client_maps.mapped) -> Any:
    """`make_run(*points_i)` for every row i of the stacked points: hyper-parameters, keys, ...

    `make_run` builds its algorithm from traced numbers, so one compilation serves all points.
    """
    return run_map(make_run, in_axes=(0,) * len(points))(*points)
