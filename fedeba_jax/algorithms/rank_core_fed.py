"""Rank-Core-Fed (Ray Chaudhury et al. 2024, "Fair Federated Learning via the Proportional Veto Core"), reconstructed.

Notes:
  This is our reconstruction. Of the paper only the abstract was at hand: models are compared by their rank for each
  client, and the result is one that no coalition can veto; candidates and voting rule are ours. To be ranked, all
  1 + n + J candidates are sent to every client.
"""

import jax
import jax.numpy as jnp

from fedeba_jax.algorithm import diagnose, one_model
from fedeba_jax.cohort import Cohort
from fedeba_jax.hyperparameters import Natural
from fedeba_jax.local import LocalTraining
from fedeba_jax.method import method
from fedeba_jax.server import Server, ServerState
from fedeba_jax.types import Algorithm, Client, Info, Key, Params

EATEN = 1e-6  # a mass that is nothing but rounding


@method(weighted_sum=False)
def rank_core_fed(local: LocalTraining, server: Server, *, candidates: Natural = 9) -> Algorithm:
    """x_{t+1} is a candidate in the proportional veto core: x_t + sum_i a_i Delta_i of the winning a.

    Candidates are a = (1/n, ..., 1/n), each client's own update, and mixtures ~ Dirichlet(1, ..., 1); clients rank
    them by their loss, and `veto_by_consumption` elects one.

    Args:
      local: local training.
      server: server optimizer.
      candidates: J, the number of random mixtures.
    """

    def rank(client: Client, models: Params) -> jax.Array:
        return jax.lax.map(lambda z: local.loss(client, z), models)

    def update(state: ServerState, cohort: Cohort) -> tuple[ServerState, Info]:
        reply = cohort.ask(local.reporting("delta").train, state.params)
        n = cohort.size
        a = jnp.concatenate([jnp.full((1, n), 1 / n), jnp.eye(n), mixtures(cohort.key, cohort.id, candidates)])

        def moved(a: jax.Array) -> ServerState:
            return server.descend(state, cohort.sum(reply.delta, a))

        losses = cohort.ask(rank, jax.vmap(lambda a: moved(a).params)(a))  # [n, 1 + n + J]
        winner = veto_by_consumption(losses)
        return moved(a[winner]), {**diagnose(a[winner]), "winner": winner}

    return one_model(server, update)


def mixtures(key: Key, ids: jax.Array, count: int) -> jax.Array:
    """`count` draws of Dirichlet(1, ..., 1) over the clients, [count, n]: exponentials by client id, normalised."""
    drawn = jax.vmap(lambda i: jax.random.exponential(jax.random.fold_in(key, i), (count,)))(ids)
    return (drawn / drawn.sum(0, keepdims=True)).T


def veto_by_consumption(losses: jax.Array) -> jax.Array:
    """The winner of Ianovski and Kondratev's rule (2021): it always lies in the proportional veto core.

    Every candidate has mass 1; all voters eat, at equal speed, the worst candidate that is left to them (of equals the
    first); the last one left wins. If the last ones go together, the lowest mean loss does.

    Args:
      losses: of voter i under candidate c, [n, c]; NaN is worst.
    """
    losses = jnp.where(jnp.isnan(losses), jnp.inf, losses)
    index = jnp.arange(losses.shape[1])

    def eat(_: int, state: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        alive, mass = state
        worst = jnp.where(alive, losses, -jnp.inf).argmax(1)
        eaters = (worst[:, None] == index[None]).sum(0)
        time = jnp.where(eaters > 0, mass / jnp.maximum(eaters, 1), jnp.inf)
        left = mass - eaters * time.min()
        survives = alive & (left > EATEN) & (index != time.argmin())
        return jax.tree.map(lambda new, old: jnp.where(survives.any(), new, old), (survives, left), state)

    start = jnp.ones(index.shape, bool), jnp.ones(index.shape, losses.dtype)
    alive, _ = jax.lax.fori_loop(0, losses.shape[1] - 1, eat, start)
    mean = jnp.minimum(losses.mean(0), jnp.finfo(losses.dtype).max)
    return jnp.where(alive, mean, jnp.inf).argmin()
