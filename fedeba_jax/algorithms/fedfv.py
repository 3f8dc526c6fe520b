"""FedFV (Wang et al. 2021, "Federated Learning with Fair Averaging").

Notes:
  Later versions of the authors' code count the current round into the window (`fv_window="current"`: the rounds
  t-tau+1 to t); the paper and its own code take t-tau to t-1. With alpha > 0 at least one client keeps its update.
  Their number is rounded before the ceiling is taken (`kept_clients`); codes that do not round keep one client less
  where floats pass the integer by a bit.
"""

import math
from collections.abc import Callable
from typing import Annotated, Any, Literal, NamedTuple

import jax
import jax.numpy as jnp

from fedeba_jax import tree
from fedeba_jax.algorithm import diagnose, remembering
from fedeba_jax.cohort import Cohort
from fedeba_jax.hyperparameters import Bounds, Natural, check
from fedeba_jax.local import LocalTraining
from fedeba_jax.method import method
from fedeba_jax.ownership import Own
from fedeba_jax.server import Server, ServerState
from fedeba_jax.types import Algorithm, ByPlace, Info, Params, Sizes

Share = Annotated[float, Bounds(0, 1)]  # static, as it decides how many clients keep their update
Window = Literal["past", "current"]


class History(NamedTuple):
    """The updates of the current round t and of those before it; round t is in slot t % slots."""

    updates: ByPlace  # [n, slots, ...]
    clients: jax.Array  # whose they are, [slots, n]
    seen: jax.Array  # every client's latest round, [M]


@method()
def fedfv(
    local: LocalTraining, server: Server, *, alpha: Share = 0.1, window: Natural = 10, fv_window: Window = "past"
) -> Algorithm:
    """x_{t+1} = x_t + s Delta, Delta the mean update without its conflicts, s restoring the length of the plain mean.

    Every update loses its part against each other one that opposes it, the worse-off coming last; then their mean
    loses its part against the opposing clients of each of the last tau rounds, the latest coming last.

    Args:
      local: local training.
      server: server optimizer.
      alpha: share of the worst-off clients that keep their update, grid 0.1, 0.2, 0.5.
      window: tau, grid 0, 1, 10; the server keeps the updates of tau + 1 rounds.
      fv_window: whether the last tau rounds are "past" ones or begin with the "current" one.
    """
    check("fv_window", fv_window, Window)
    past = window if fv_window == "past" else max(window - 1, 0)

    def start(params: Params, sizes: Sizes) -> Any:
        slots, n = past + 1, sizes.cohort_size
        updates = tree.repeat(tree.repeat(tree.zeros_like(params), slots), n)
        never = jnp.full(sizes.num_clients, -1, jnp.int32)
        return History(ByPlace(updates), jnp.zeros((slots, n), jnp.int32), never) if past else ()

    def update(state: ServerState, history: Any, cohort: Cohort) -> tuple[ServerState, Any, Info]:
        t, n = cohort.round, cohort.size
        reply = cohort.ask(local.reporting("delta", "initial_loss").train, state.params)
        gram = cohort.gram(reply.delta)
        order = jnp.argsort(reply.initial_loss)
        mended = n - kept_clients(n, alpha)
        a = cohort.at_server(lambda g, o: without_conflicts(g, o, mended), gram, order).mean(axis=0)  # Algorithm 2
        mean = delta = cohort.sum(reply.delta, a)
        if past:  # Algorithm 3
            clients = cohort.at_server(register, (history.clients, history.seen), cohort.id, t)
            updates, delta = cohort.at_places(against_past, history.updates, reply.delta, mean, *clients, t)
            history = History(updates, *clients)
        of_history = tree.subtract(delta, mean)
        if window and fv_window == "current":
            _, (delta, more) = cohort.at_places(against_current, ByPlace(()), reply.delta, delta, t >= past)
            a = a + more
        length, mean_length = jnp.sqrt(tree.dot(delta, delta)), jnp.sqrt(jnp.maximum(gram.mean(), 0))
        rounding = 10 * n * jnp.finfo(a.dtype).eps * jnp.vdot(a, jnp.sqrt(jnp.diagonal(gram)))
        scale = jnp.where(length > rounding, mean_length / length, 0)  # what is left of updates that cancel: nothing
        info = {**diagnose(scale * a, before=reply.initial_loss), "conflicts": jnp.mean(gram < 0)}
        state, step = server.receive(state, reply.delta, scale * a, cohort, local)
        return server.descend(state, tree.add(step, tree.scale(scale, of_history))), history, info

    return remembering(server, start, update)


def register(known: tuple[jax.Array, jax.Array], clients: jax.Array, t: jax.Array) -> tuple[jax.Array, jax.Array]:
    """History's `clients` and `seen` with round t in them."""
    whose, seen = known
    return tree.set_rows(whose, t % whose.shape[0], clients), tree.set_rows(seen, clients, t)


def against_past(
    own: Own, stored: Params, updates: Params, delta: Params, whose: jax.Array, seen: jax.Array, t: jax.Array
) -> tuple[Params, Params]:
    """The history with the updates of round t, and delta without its parts against the rounds before (Algorithm 3)."""
    slots = whose.shape[0]
    stored = jax.tree.map(lambda leaf, new: leaf.at[:, t % slots].set(new), stored, updates)  # then read: no copy

    def against_round(delta: Params, k: jax.Array) -> tuple[Params, None]:
        slot = (t - k) % slots
        latest = seen[whose[slot, own.place]] == t - k
        eligible = latest & own.taken & (t >= slots - 1)
        return against(own, delta, lambda j: tree.rows(stored, (j, slot)), eligible)[0], None

    return stored, jax.lax.scan(against_round, delta, jnp.arange(slots - 1, 0, -1))[0]


def against_current(own: Own, stored: Any, updates: Params, delta: Params, begun: jax.Array) -> tuple[Any, Any]:
    """Delta without its part against the updates of this round, and that as weights [n]."""
    delta, weights = against(own, delta, lambda j: tree.rows(updates, j), own.taken & begun)
    return stored, (delta, own.numbers(weights))


def kept_clients(n: int, alpha: float) -> int:
    """How many keep their update; rounded first, since (n - 1) (1 - alpha) may miss its integer by a bit."""
    return n - math.ceil(round((n - 1) * (1 - alpha), 9)) if alpha > 0 else 0


def against(
    own: Own, vector: Params, others: Callable[[jax.Array], Params], eligible: jax.Array
) -> tuple[Params, jax.Array]:
    """The vector without its part against the sum of those eligible others that oppose it, and that as weights.

    Each device reads its own others, one after the other and none in vain (`others(j)` may come from a long history),
    and sends their sum.
    """

    def product(j: jax.Array) -> jax.Array:
        return jax.lax.cond(eligible[j], lambda: tree.dot(others(j), vector), lambda: jnp.zeros(()))

    opposed = jax.lax.map(product, jnp.arange(eligible.size)) < 0

    def add_if_opposed(total: Params, j: jax.Array) -> tuple[Params, None]:
        return jax.lax.cond(opposed[j], lambda: tree.add(total, others(j)), lambda: total), None

    total = own.total(jax.lax.scan(add_if_opposed, tree.zeros_like(vector), jnp.arange(eligible.size))[0])
    square = tree.dot(total, total)
    along = jnp.minimum(tree.dot(total, vector), 0) / jnp.where(square > 0, square, 1)
    return tree.add(vector, tree.scale(-along, total)), -along * opposed


def without_conflicts(gram: jax.Array, order: jax.Array, mended: int) -> jax.Array:
    """Vectors without their parts against those that oppose them, as weights on the given vectors, [n, n].

    v_i <- v_i - min(<v_i, u_j>, 0) / |u_j|^2 u_j for each j != i of the order, so that the last one's word stands.

    Args:
      gram: <u_i, u_j>, [n, n].
      order: a permutation of the vectors.
      mended: how many of the first vectors of the order are changed; the others stay as they are.
    """
    gram, order, n = jnp.asarray(gram), jnp.asarray(order), order.size
    first = jnp.zeros(n, bool).at[order].set(jnp.arange(n) < mended)

    def against(k: jax.Array, weights: jax.Array) -> jax.Array:
        j = order[k]
        along = jnp.sum(weights * gram[j][None], axis=1) / jnp.where(gram[j, j] > 0, gram[j, j], 1)
        opposed = (along < 0) & first & (jnp.arange(n) != j)
        return weights.at[:, j].add(jnp.where(opposed, -along, 0))

    return jax.lax.fori_loop(0, n, against, jnp.eye(n, dtype=gram.dtype))
