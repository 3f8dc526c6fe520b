"""How a round's updates become the next model: any optax optimizer, with or without FedVARP's memory.

An algorithm hands the server the cohort's updates as they came with the weights it chose (`receive`), and descends
along what they come to (`descend`). A mode of privacy wraps a server (`fedeba_jax.privacy`), and so does a robust rule
(`robust`).
"""

import functools
import inspect
from collections.abc import Callable
from typing import Any, Literal, NamedTuple, Protocol, get_args

import jax
import jax.numpy as jnp
import optax

from fedeba_jax import stack, tree
from fedeba_jax.aggregation import Rule, Total
from fedeba_jax.cohort import Cohort
from fedeba_jax.hyperparameters import Fraction, Positive, check, check_values, checked
from fedeba_jax.local import LocalTraining
from fedeba_jax.types import ByClient, Params, Scalar, Sizes

Form = Literal["ema", "heavy_ball"]
ORDER = 2**30
"""Folded into the server's key for the order in which a robust rule takes the updates."""


class ServerState(NamedTuple):
    params: Params  # x_t
    optimizer: Any
    memory: Any = ()  # FedVARP's


class InitServer(Protocol):
    """Makes the state that a server starts from."""

    def __call__(self, params: Params, sizes: Sizes, /) -> ServerState:
        """The state with x_0 = params."""


class Receive(Protocol):
    """Turns the updates of a cohort into one."""

    def __call__(
        self,
        state: ServerState,
        deltas: Params,
        weights: jax.Array,
        cohort: Cohort,
        local: LocalTraining,
        most: Scalar | None = None,
        /,
    ) -> tuple[ServerState, Params]:
        """The next state, and the update; of a plain server sum_i weights_i deltas_i.

        Args:
          state: the server's.
          deltas: the cohort's updates as they came, [n, ...].
          weights: [n].
          cohort: whose they are.
          local: how they were trained.
          most: the largest weight that one client can get, whatever it reports; None: not known.
        """


class Descend(Protocol):
    """Moves the model."""

    def __call__(self, state: ServerState, delta: Params, /) -> ServerState:
        """The state after a step along delta, which points downhill."""


class Publish(Protocol):
    """What clients are told, within a round, of an aggregate of their replies."""

    def __call__(self, vector: Params, cohort: Cohort, local: LocalTraining, /) -> Params:
        """The vector as it is told."""


def as_it_is(vector: Params, cohort: Cohort, local: LocalTraining) -> Params:
    """A server that hides nothing."""
    del cohort, local
    return vector


class Server(NamedTuple):
    """How a round's updates become the next model: `receive`, then `descend`; or both at once by `step`."""

    init: InitServer
    receive: Receive
    descend: Descend
    publish: Publish = as_it_is

    def step(
        self,
        state: ServerState,
        deltas: Params,
        weights: jax.Array,
        cohort: Cohort,
        local: LocalTraining,
        most: Scalar | None = None,
    ) -> ServerState:
        return self.descend(*self.receive(state, deltas, weights, cohort, local, most))


def descent(optimizer: optax.GradientTransformation) -> Server:
    """Any optax optimizer, fed with -delta as its gradient: sgd(1.0) is x + delta."""

    def init(params: Params, sizes: Sizes) -> ServerState:
        del sizes
        return ServerState(params, optimizer.init(params))

    def receive(
        state: ServerState,
        deltas: Params,
        weights: jax.Array,
        cohort: Cohort,
        local: LocalTraining,
        most: Scalar | None = None,
    ) -> tuple[ServerState, Params]:
        del local, most
        cohort.weigh(weights)
        return state, cohort.sum(deltas, weights)

    def descend(state: ServerState, delta: Params) -> ServerState:
        updates, optimizer_state = optimizer.update(tree.scale(-1, delta), state.optimizer, state.params)
        return state._replace(params=optax.apply_updates(state.params, updates), optimizer=optimizer_state)

    return Server(init, receive, descend)


class Memory(NamedTuple):
    """The last update of each client, divided by the rate of its round, and the mean over clients."""

    last: ByClient  # y, [M, ...]; zero of those who were never sampled
    mean: Params  # ybar; follows the cohort's rows, so that no round has to add up all M


class Received(NamedTuple):
    """A memory that holds the updates of this round already: `descend` accepts no other."""

    memory: Any
    counts: Any = ()  # under a robust rule: whose updates are finite, [n]


def variance_reduced(optimizer: optax.GradientTransformation) -> Server:
    """FedVARP (Jhunjhunwala et al. 2022): old updates stand in for the clients that are not in the cohort.

    v = sum_i a_i (Delta_i - y_i) + ybar, where y_j is the last update of client j and ybar the mean of all M; then
    y_i <- Delta_i for the cohort.

    Notes:
      y holds Delta_i / eta_L and is multiplied by eta_L of the current round where it is used, so that a decaying rate
      does not make old updates too long. Nothing is divided by the number of steps: it is constant for a client, and
      with everybody in the cohort and uniform a, v is the mean of the updates, whatever their numbers of steps.
      ybar is uniform over clients and of weight 1 under any a, so under unequal weights v does not estimate
      the rule's own sum, and where they sum to less than 1 (q-FFL) it takes longer steps than the rule alone.
    """
    plain = descent(optimizer)

    def init(params: Params, sizes: Sizes) -> ServerState:
        last = jax.tree.map(lambda leaf: jnp.zeros((sizes.num_clients, *leaf.shape), leaf.dtype), params)
        return plain.init(params, sizes)._replace(memory=Memory(ByClient(last), tree.zeros_like(params)))

    def receive(
        state: ServerState,
        deltas: Params,
        weights: jax.Array,
        cohort: Cohort,
        local: LocalTraining,
        most: Scalar | None = None,
    ) -> tuple[ServerState, Params]:
        del most
        cohort.weigh(weights)
        last, mean = state.memory
        rate = local.rate(cohort.round)  # eta_L
        old = cohort.rows(last)
        surprise = tree.subtract(deltas, tree.scale(rate, old))
        v = tree.add(cohort.sum(surprise, weights), tree.scale(rate, mean))
        change = tree.subtract(tree.scale(jnp.where(rate > 0, 1 / rate, 0), deltas), old)  # at rate 0 nobody moved
        share = jnp.full((cohort.size,), 1 / cohort.num_clients)
        last = cohort.set_rows(last, tree.add(old, change))
        memory = Memory(last, tree.add(mean, cohort.sum(change, share)))
        return state._replace(memory=Received(memory)), v

    def descend(state: ServerState, delta: Params) -> ServerState:
        if not isinstance(state.memory, Received):
            raise ValueError(
                "server=varp needs the update of each client, but this algorithm's step is not a weighted sum of them; "
                "choose another server, as sgd(1.0)"
            )
        return plain.descend(state._replace(memory=state.memory.memory), delta)

    return Server(init, receive, descend)


def forgetful(server: Server, why: str) -> Server:
    """The server, if it remembers nobody's updates; an error otherwise, that says why it must not."""

    def init(params: Params, sizes: Sizes) -> ServerState:
        state = server.init(params, sizes)
        if isinstance(state.memory, Memory):
            raise ValueError(
                f"server=varp remembers the update of each client, {why}; choose another server, as sgd(1.0)"
            )
        return state

    return server._replace(init=init)


def robust(server: Server, rule: Rule | None) -> Server:
    """The server with a robust rule in place of the weighted sum: R(Delta_1, ..., Delta_n).

    A method's weights have no part in it, not even by their sum: they follow losses and lengths, about which clients
    may lie. How many updates were not finite is the finding `excluded`; if they are half of all or more, the next model
    is NaN, so that a run stops. With None, the server as it is.
    """
    if rule is None:
        return server
    server = forgetful(server, "which a robust rule does not tell apart")

    def init(params: Params, sizes: Sizes) -> ServerState:
        return server.init(params, sizes)._replace(memory=rule.init(params))

    def receive(
        state: ServerState,
        deltas: Params,
        weights: jax.Array,
        cohort: Cohort,
        local: LocalTraining,
        most: Scalar | None = None,
    ) -> tuple[ServerState, Params]:
        del weights, most
        if local.limits is not None:
            raise ValueError("privacy=client hides a client in a weighted sum, not in a robust rule; give one of them")
        key = jax.random.fold_in(cohort.key, ORDER)
        draws = jax.vmap(lambda i: jax.random.uniform(jax.random.fold_in(key, i)))(cohort.id)

        def combined(total: Total, deltas: Params, memory: Any, order: jax.Array) -> tuple[Params, jax.Array]:
            return rule(deltas, order, memory, total)[0], total(stack.squares(deltas))

        one, squares = cohort.by_columns(combined, deltas, state.memory, jnp.argsort(draws))
        counts = jnp.isfinite(squares)
        cohort.leave_out(~counts)
        return state._replace(memory=Received(one if rule.remembers else (), counts)), one

    def descend(state: ServerState, delta: Params) -> ServerState:
        if not isinstance(state.memory, Received):
            raise ValueError(
                f"aggregator={rule.name} stands for a weighted sum of the clients' updates, and this algorithm's step "
                "is none; choose aggregator=weighted_sum"
            )
        memory, counts = state.memory
        moved = server.descend(state._replace(memory=memory), delta)
        return moved._replace(params=stack.if_most(counts, moved.params))  # not of delta, which would round otherwise

    return server._replace(init=init, receive=receive, descend=descend)


@checked
def sgd(learning_rate: Positive) -> Server:
    """x + learning_rate * delta."""
    return descent(optax.sgd(learning_rate))


@checked
def momentum(beta: Fraction = 0.9, learning_rate: Positive = 1.0, form: Form = "ema") -> Server:
    """v <- beta v + (1 - beta) delta, x + learning_rate * v; form="heavy_ball" is v <- beta v + delta.

    At equal rates the two differ by a factor 1 / (1 - beta) in the long run. "ema" is Mime's, which FedEBA+ cites for
    its global momentum of 0.9; beta = 0 is `sgd` in both.
    """
    check("form", form, Form)
    if form == "heavy_ball":
        return descent(optax.sgd(learning_rate, momentum=beta))
    return descent(optax.chain(optax.ema(beta, debias=False), optax.scale_by_learning_rate(learning_rate)))


@checked
def varp(learning_rate: Positive) -> Server:
    """`variance_reduced` gradient descent: x + learning_rate * v."""
    return variance_reduced(optax.sgd(learning_rate))


def from_optax(make: Callable[..., optax.GradientTransformation]) -> Callable[..., Server]:
    """`descent` by an optax factory, with its own names and defaults; all of its numbers may be traced.

    Parameters that are neither numbers nor switches (masks, dtypes) stay at their defaults.
    """
    signature = inspect.Signature([p for p in map(_public, inspect.signature(make).parameters.values()) if p])

    @functools.wraps(make)
    def server(*args: Any, **kwargs: Any) -> Server:
        arguments = signature.bind(*args, **kwargs).arguments
        check_values(server, arguments)
        return descent(make(**arguments))

    server.__signature__ = signature  # type: ignore[attr-defined]
    return server


def _public(parameter: inspect.Parameter) -> inspect.Parameter | None:
    """A parameter of optax as our signatures have it (`fedeba_jax.hyperparameters`); None: not for users."""
    default, kind = parameter.default, parameter.annotation
    if parameter.name == "learning_rate":
        return parameter.replace(annotation=Positive, default=inspect.Parameter.empty)
    if isinstance(default, bool) or kind is int:
        return parameter.replace(annotation=type(default))
    if isinstance(default, int | float):
        return parameter.replace(annotation=Scalar)
    is_number = default is None and float in get_args(kind)
    return parameter.replace(annotation=Scalar | None) if is_number else None


SERVERS: dict[str, Callable[..., Server]] = {
    "sgd": sgd,
    "momentum": momentum,
    "varp": varp,
    **{
        name: from_optax(getattr(optax, name))
        for name in (
            "adabelief", "adadelta", "adafactor", "adagrad", "adam", "adamax", "adamaxw", "adamw", "adan", "amsgrad",
            "fromage", "lamb", "lars", "lion", "nadam", "nadamw", "novograd", "optimistic_adam_v2",
            "optimistic_gradient_descent", "radam", "rmsprop", "rprop", "sign_sgd", "signum", "sm3", "yogi",
        )
    },
}  # fmt: skip
"""Servers by name: ours, and the optimizers of optax that need no more than an update."""
