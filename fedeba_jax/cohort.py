"""The sampled clients of a round, and the only door to their data.

`ask` sends something down to every client, lets it compute, and brings the replies up; what passes
is counted from the shapes of the trees themselves:

- a tree that was sent down already in this round (the same arrays, as x_t) is not sent again;
- a reply counts what it holds; fields that are None are not there, and what is `Private` is not sent;
- an exchange with `when` false costs nothing, nor does sending on what it would have brought;
- an *exchange* is an ask whose reply holds as many numbers as the model or more.
"""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from fedeba_jax import tree
from fedeba_jax.client_map import everywhere, map_sum, weighted_sum
from fedeba_jax.types import Client, ClientMap, Federation, Info, Key, Private, Scalar, Shard

Gate = bool | jax.Array


class Cohort:
    """n clients of one round; made by `run_round`, used by `Algorithm.update`, then read for its `traffic`."""

    def __init__(
        self,
        *,
        id: jax.Array,  # [n]
        key: Key,  # for the server's own randomness
        client_keys: Key,  # [n]
        state: Any,  # [n, ...]
        round: jax.Array,
        federation: Federation,
        client_map: ClientMap,
        model_size: int,
        sampled: jax.Array | None = None,  # [n] of bool; None: all
    ) -> None:
        self.id, self.key, self.state, self.round = id, key, state, round
        self.sampled = jnp.ones(id.shape, bool) if sampled is None else sampled
        self._rows = (id, client_keys, state)
        self._federation = federation
        self._map = client_map
        self._model_size = model_size
        self._sent: dict[int, tuple[jax.Array, Scalar]] = {}  # leaf -> how far it was sent (0, 1 or traced)
        self._gates: dict[int, tuple[jax.Array, Gate]] = {}  # reply leaf -> the `when` of its exchange
        self._traffic: Info = {
            name: jnp.zeros((), jnp.int32)
            for name in ("floats_down", "bytes_down", "floats_up", "bytes_up", "exchanges")
        }

    @property
    def size(self) -> int:
        return self.id.shape[0]

    @property
    def num_examples(self) -> jax.Array:
        """N_i of the cohort's clients, [n]: known to the server from enrolment."""
        return self._federation.count[self.id]

    @property
    def traffic(self) -> Info:
        """Numbers and bytes, down and up, of *one client*, and exchanges, so far in this round."""
        return self._traffic

    def ask(self, compute: Callable[..., Any], *broadcast: Any, when: Gate = True, **context: Any) -> Any:
        """Every client's `compute(client, *broadcast, **context)`, stacked [n, ...].

        What `compute` wraps in `Private` stays with the client: stacked as the rest, but neither sent nor counted.

        Args:
          compute: what a client does, written for one client.
          *broadcast: what is sent down, the same for all.
          when: the exchange happens only if true; zeros otherwise.
          **context: sent down as well, by name.
        """

        exchange = functools.partial(self._replies, compute)
        return self._gated(exchange, (broadcast, context), when, replies=self.size, private=when is True)

    def ask_sum(
        self,
        compute: Callable[..., Any],
        weights: jax.Array,
        *broadcast: Any,
        when: Gate = True,
        alongside: bool = False,
        **context: Any,
    ) -> Any:
        """sum_i weights_i reply_i, accumulated client by client: replies are never stacked.

        With `alongside` the replies travel with those of another ask: bytes, but no exchange of their own.
        """

        exchange = functools.partial(self._sum, compute, weights)
        return self._gated(exchange, (broadcast, context), when, replies=1, alongside=alongside)

    def ask_then_sum(
        self,
        number: Callable[..., Any],
        both: Callable[..., Any],
        weigh: Callable[[jax.Array], tuple[jax.Array, jax.Array]],
        *broadcast: Any,
        likely: Gate,
    ) -> tuple[jax.Array, Any]:
        """`ask` for numbers, then, where these call for it, `ask_sum` for vectors weighted by them.

        Two exchanges, counted as such. Where the second is likely, clients compute for both in one pass over their
        data; a guess decides over time and rounding, nothing else.

        Args:
          number: a client's number.
          both: the same number and the client's vector.
          weigh: all numbers [n] -> weights [n], and whether the vectors are asked for.
          *broadcast: what is sent down.
          likely: a guess of the latter; False if `number` is cheaper than a pass or not that of `both`.
        """

        def together(sent: Any) -> tuple[jax.Array, Any, jax.Array]:
            numbers, vectors = self._replies(both, sent)
            weights, when = weigh(numbers)
            return numbers, _if(when, lambda vectors: self.sum(vectors, weights), vectors), when

        def apart(sent: Any) -> tuple[jax.Array, Any, jax.Array]:
            numbers = self._replies(number, sent)
            weights, when = weigh(numbers)
            vector = functools.partial(self._sum, lambda *args: both(*args)[1], weights)
            return numbers, _if(when, vector, sent), when

        sent: Any = (broadcast, {})
        one_pass = likely if isinstance(likely, bool) else _if_batched_true(likely)
        numbers, total, when = _either(one_pass, together, apart, sent)
        self._count(sent, numbers, True, replies=self.size)
        self._count(sent, total, when, replies=1)
        return numbers, total

    def sum(self, replies: Any, weights: jax.Array) -> Any:
        """sum_i weights_i replies_i of stacked replies [n, ...], or of what was made from them row by row."""
        return weighted_sum(self._map, replies, weights)

    def derived(self, function: Callable[[Any], Any], reply: Any) -> Any:
        """function(reply), one leaf for each: sending it on costs nothing where the reply's exchange did not happen."""
        made = function(reply)
        for new, leaf in zip(jax.tree.leaves(made), jax.tree.leaves(reply), strict=True):
            self._gates[id(new)] = (new, self._gates[id(leaf)][1])
        return made

    def at_server(self, compute: Callable[..., Any], *args: Any) -> Any:
        """`compute(*args)` on small arrays, not divided among the devices that share the clients: a loop over weights.

        Args:
          compute: a function of arrays alone.
          *args: what it needs of traced values.
        """
        return everywhere(self._map, compute)(*args)

    def _gated(
        self,
        exchange: Callable[[Any], Any],
        sent: Any,
        when: Gate,
        *,
        replies: int,
        alongside: bool = False,
        private: bool = False,
    ) -> Any:
        reply = _if(when, exchange, sent)
        sent_up = jax.tree.map(lambda part: None if _stays(part) else part, reply, is_leaf=_stays)
        if not private and tree.size(sent_up) < tree.size(reply):
            raise ValueError("Private state needs an ask without `when`: a closed gate would zero it, ask_sum mix it")
        self._count(sent, sent_up, when, replies=replies, alongside=alongside)
        return reply

    def _replies(self, compute: Callable[..., Any], sent: Any) -> Any:
        return self._map(_reply(compute), in_axes=(0, None, None, None))(self._rows, self.round, self._federation, sent)

    def _sum(self, compute: Callable[..., Any], weights: jax.Array, sent: Any) -> Any:
        return map_sum(self._map, _reply(compute), weights, self._rows, self.round, self._federation, sent)

    def _count(self, sent: Any, reply: Any, when: Gate, *, replies: int, alongside: bool = False) -> None:
        down_floats, down_bytes = [], []
        for leaf in jax.tree.leaves(sent):
            leaf_when = self._gates.get(id(leaf), (leaf, True))[1]
            now = _both(when, leaf_when)
            before = self._sent.get(id(leaf), (leaf, 0))[1]
            self._sent[id(leaf)] = (leaf, _larger(before, now))
            new = _larger(before, now) - before
            down_floats.append(new * jnp.size(leaf))
            down_bytes.append(new * jnp.size(leaf) * jnp.result_type(leaf).itemsize)
        for leaf in jax.tree.leaves(reply):
            self._gates[id(leaf)] = (leaf, when)
        is_open = _number(when)
        up = tree.size(reply) // replies
        passed = {
            "floats_down": sum(down_floats),
            "bytes_down": sum(down_bytes),
            "floats_up": is_open * up,
            "bytes_up": is_open * (tree.num_bytes(reply) // replies),
            "exchanges": is_open * int(up >= self._model_size and not alongside),
        }
        self._traffic = {name: self._traffic[name] + amount for name, amount in passed.items()}


def _reply(compute: Callable[..., Any]) -> Callable[..., Any]:
    """`compute` as a function of a client's row, the round, the federation and what was sent."""

    def function(row: Any, round_: jax.Array, federation: Federation, sent: Any) -> Any:
        id_, key, state = row
        data = Shard(federation.x, federation.y, federation.index[id_], federation.count[id_])
        broadcast, context = sent
        return compute(Client(id_, key, data, state, round_), *broadcast, **context)

    return function


def _either(gate: Gate, one: Callable[[Any], Any], other: Callable[[Any], Any], operand: Any) -> Any:
    if isinstance(gate, bool):
        return one(operand) if gate else other(operand)
    return jax.lax.cond(gate, one, other, operand)


def _if(gate: Gate, compute: Callable[[Any], Any], operand: Any) -> Any:
    """compute(operand), or zeros."""
    return _either(gate, compute, lambda operand: tree.zeros_like(jax.eval_shape(compute, operand)), operand)


@jax.custom_batching.custom_vmap
def _if_batched_true(gate: jax.Array) -> jax.Array:
    """The gate; True for runs under vmap: both sides of a gate would be computed for all of them."""
    return gate


@_if_batched_true.def_vmap
def _(axis_size: int, in_batched: list[bool], gate: jax.Array) -> tuple[jax.Array, bool]:
    return jnp.ones((), bool), False


def _stays(part: Any) -> bool:
    return isinstance(part, Private)


def _number(gate: Gate) -> Any:
    return int(gate) if isinstance(gate, bool) else jnp.asarray(gate, jnp.int32)


def _both(a: Gate, b: Gate) -> Any:
    return _number(a) * _number(b)


def _larger(a: Any, b: Any) -> Any:
    return max(a, b) if isinstance(a, int) and isinstance(b, int) else jnp.maximum(a, b)
