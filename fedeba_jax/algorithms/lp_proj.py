"""lp-proj (Lin et al. 2022, "Personalized Federated Learning towards Communication Efficiency, ...").

Notes:
  Written after the authors' code. Its steps for p other than 1 and 2 are of two different objectives, so those p are
  not offered; its weight decay never took effect and is left out. The averaging rate beta is the server's.
  With p = 1 and eta_L lam above |w - P theta| the code's steps oscillate; `damped` stops them at zero.
  A step reads P twice, more than the model itself: a client map that reads it for several clients at once is faster
  here also on a CPU, as "sharded(vmap)".
"""

from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import optax
from optax import GradientTransformationExtraArgs as Transform

from fedeba_jax import tree
from fedeba_jax.algorithm import alone, diagnose
from fedeba_jax.cohort import Cohort
from fedeba_jax.gradients import stateless
from fedeba_jax.hyperparameters import Count, NonNegative, Positive, Range, check
from fedeba_jax.local import LocalTraining
from fedeba_jax.method import method
from fedeba_jax.server import Server, ServerState
from fedeba_jax.types import Algorithm, Client, Info, InitParams, Key, Params, Private, Sizes, State

PROJECTION = 2**32 - 2
"""Folded into the initial key for P."""
Norm = Literal[1, 2]


class LpProjState(NamedTuple):
    shared: ServerState  # of w [dim]
    projection: Params  # P, [dim, ...]; all know it from the seed


@method(weighted_sum=False, hears_losses=False, search={"lam": Range(0.1, 50.0)})
def lp_proj(
    local: LocalTraining,
    server: Server,
    *,
    dim: Count = 60,
    lam: NonNegative = 15.0,
    p: Norm = 1,
    outer: Count = 5,
    inner: Count = 20,
    clip: Positive = 60.0,
    damped: bool = False,
    train_all: bool = False,
) -> Algorithm:
    """Personal models tied through a random projection: min_w mean_i min_theta F_i(theta) + lam |P theta - w|_p.

    Clients share w alone, `dim` numbers. `inner` steps of theta and one of the client's own w, `outer` times; the
    round's K batches are visited in turn. There is no global model; the mean of all theta_i is evaluated as one.

    Args:
      local: local training; its steps are the round's number of batches.
      server: server optimizer, of w.
      dim: rows of P. FedEBA+ takes 60.
      lam: strength of the tie. FedEBA+ takes 15.
      p: 1, or 2 for (lam/2) |P theta - w|^2.
      outer: steps of w in each round.
      inner: steps of theta for one of w.
      clip: largest norm of a gradient of F_i.
      damped: for p = 1, no step of the tie passes zero.
      train_all: all clients train in every round, as in the authors' code, and the sampled ones are averaged.
    """
    check("p", p, Norm)
    clipped = local.reporting("delta").with_gradient(optax.clip_by_global_norm(clip))

    def init(key: Key, init_params: InitParams, sizes: Sizes) -> State:
        theta = init_params(key)
        projection = random_projection(jax.random.fold_in(key, PROJECTION), theta, dim)
        shared = server.init(jnp.zeros((dim,)), sizes)
        return State(LpProjState(shared, projection), tree.repeat(theta, sizes.num_clients))

    def slope(c: jax.Array, rate: jax.Array) -> jax.Array:
        """Of the tie, in c = w - P theta."""
        if p == 2:
            return lam * c
        most = jnp.abs(c) / jnp.maximum(rate, jnp.finfo(c.dtype).tiny)
        return jnp.sign(c) * (jnp.minimum(lam, most) if damped else lam)

    def update(state: LpProjState, cohort: Cohort) -> tuple[LpProjState, Params, Info]:
        P, rate = state.projection, local.rate(cohort.round)
        training = clipped.with_gradient(tied(P, lambda c: slope(c, rate)))

        def train(client: Client, w: jax.Array) -> tuple[jax.Array, Private]:
            def repeat(carry: Any, r: jax.Array) -> tuple[Any, None]:
                theta, own = carry
                visits = r * inner + jnp.arange(inner)
                theta = tree.add(theta, training.train(client, theta, visits=visits, shared=own).delta)
                return (theta, own - rate * slope(own - tree.products(P, theta), rate)), None

            (theta, own), _ = jax.lax.scan(repeat, (client.state, w), jnp.arange(outer))
            return own - w, Private(theta)

        delta, personal = cohort.ask(train, state.shared.params)  # P is not sent
        a = cohort.sampled / cohort.sampled.sum()
        shared = server.descend(state.shared, cohort.sum(delta, a))
        return LpProjState(shared, P), personal.state, diagnose(a)

    def models(state: State) -> dict[str, Params]:
        return {"mean_theta": jax.tree.map(lambda leaf: leaf.mean(0, dtype=jnp.result_type(float)), state.clients)}

    return Algorithm(init, update, models, lambda state, theta: alone(theta), everyone=train_all)


def random_projection(key: Key, like: Params, dim: int) -> Params:
    """P as a stacked tree: normal rows, each of length 1 over all leaves."""
    drawn = optax.tree.random_like(key, tree.repeat(like, dim), jax.random.normal)
    return jax.vmap(lambda row: tree.scale(1 / optax.tree.norm(row), row))(drawn)


def tied(projection: Params, slope: Callable[[jax.Array], jax.Array]) -> Transform:
    """grad - P' slope(w - P z): lp-proj's tie of the local model z to w, the context's `shared`.

    Args:
      projection: P, a stack of trees like z.
      slope: the derivative of the tie, of w - P z.
    """

    def function(gradient: Params, params: Params, *, shared: jax.Array, **_: Any) -> Params:
        away = slope(shared - tree.products(projection, params))
        return tree.subtract(gradient, tree.weighted_sum(projection, away))

    return stateless(function)
