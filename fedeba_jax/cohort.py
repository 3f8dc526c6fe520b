"""The sampled clients of a round, and the only door to their data.

`ask` sends something down to every client, lets it compute, and brings the replies up. What passes is counted
(`fedeba_jax.traffic`).
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from fedeba_jax import ownership, tree
from fedeba_jax.attacks import Attackers, parts
from fedeba_jax.client_map import ByColumns, by_columns, everywhere, gram, map_sum, weighted_sum
from fedeba_jax.ownership import Seats
from fedeba_jax.tracing import traced_once
from fedeba_jax.traffic import Gate, Traffic
from fedeba_jax.types import ByClient, ByPlace, Client, ClientMap, Divided, Federation, Info, Key, LocalData, Private


class Judged(NamedTuple):
    """What a server makes of the numbers that it was told, before it asks for more (`Cohort.ask_then_sum`)."""

    weights: Any  # [n]; None where what is asked for is combined otherwise
    when: jax.Array  # whether it asks for more
    findings: Any = ()  # what else it found out


class Heard(NamedTuple):
    """What of an exchange shows who sent something that is not finite."""

    odd: jax.Array  # [n] of bool: whose numbers are not, or whose vectors were left out
    updates: Any = ()  # [n, ...] that nobody has looked at yet


class Cohort:
    """n clients of one round; made by `run_round`, used by `Algorithm.update`, then read for its `traffic`."""

    def __init__(
        self,
        *,
        seats: Seats,  # [n] who takes part
        key: Key,  # for the server's own randomness
        client_keys: Key,  # [n]
        state: Any,  # [n, ...]
        round: jax.Array,
        federation: Federation | Divided,
        client_map: ClientMap,
        num_clients: int,
        model_size: int,
        sampled: jax.Array | None = None,  # [n] of bool; None: all
        attackers: Attackers | None = None,  # None: everybody is honest
    ) -> None:
        self.id, self.key, self.state, self.round = seats.id, key, state, round
        self.sampled = jnp.ones(self.id.shape, bool) if sampled is None else sampled
        self._rows = (self.id, client_keys, state)
        self._seats = seats
        self.num_clients = num_clients
        self._known = federation
        self._federation = federation.parts if isinstance(federation, Divided) else federation
        self._map = client_map
        self._traffic = Traffic(model_size)
        self._attackers = attackers
        self._heard: list[Heard] = []  # in the order of the exchanges
        self._left_out = jnp.zeros(self.id.shape, bool)
        self._suspect = jnp.zeros(self.id.shape, bool)  # who told a number that is not finite
        self._silenced = jnp.zeros(self.id.shape, bool)  # whose numbers have no part in the round
        self.findings: Info = {}  # what the server noted, beside the algorithm's own diagnostics

    @property
    def size(self) -> int:
        return self.id.shape[0]

    @property
    def is_attacked(self) -> bool:
        return self._attackers is not None

    @property
    def num_examples(self) -> jax.Array:
        """N_i of the cohort's clients, [n]: known to the server from enrolment."""
        return self._known.num_examples[self._known.place(self.id)]

    @property
    def traffic(self) -> Info:
        """Numbers and bytes, down and up, of *one client*, and exchanges, so far in this round."""
        return self._traffic.totals

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
        return self._gated(exchange, (broadcast, context), when, stacked=True, private=when is True)

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
        return self._gated(exchange, (broadcast, context), when, stacked=False, alongside=alongside)

    def ask_combined(
        self,
        compute: Callable[..., Any],
        combine: Callable[[Any], tuple[Any, jax.Array, Any]],
        *broadcast: Any,
        when: Gate = True,
        alongside: bool = False,
        **context: Any,
    ) -> tuple[Any, Any]:
        """One vector, and findings: of combine(replies [n, ...]) -> (vector, who has no part in it [n], findings).

        `when` and `alongside` are as in `ask` and `ask_sum`; who is left out is noted (`leave_out`).
        """

        def exchange(sent: Any) -> Any:
            return combine(self._replies(compute, sent))

        sent = (broadcast, context)
        vector, left_out, findings = _if(when, exchange, sent)
        self._traffic.count(sent, vector, when, replies=1, alongside=alongside)
        self.leave_out(left_out)
        return vector, findings

    def ask_then_sum(
        self,
        number: Callable[..., Any],
        both: Callable[..., Any],
        judge: Callable[[jax.Array], Judged],
        *broadcast: Any,
        likely: Gate,
        combine: Callable[[Any, jax.Array], tuple[Any, jax.Array, Any]] | None = None,
    ) -> tuple[jax.Array, Judged, Any]:
        """`ask` for numbers, then, where these call for it, `ask_sum` for vectors weighted by them.

        Two exchanges, counted as such. Where the second is likely, clients compute for both in one pass over their
        data; a wrong guess costs time and changes rounding, nothing else.

        Args:
          number: a client's number.
          both: the same number and the client's vector.
          judge: all numbers [n] -> weights [n], and whether the vectors are asked for.
          *broadcast: what is sent down.
          likely: a guess of the latter; False if `number` is cheaper than a pass or not that of `both`.
          combine: (vectors [n, ...], all numbers) -> one vector, whose vectors have no part in it [n], and findings.
            Those are noted as left out (`leave_out`), and so is who told a number that is not finite, which `judge`
            must leave out too. None: the sum of the vectors, weighted as was judged.

        Returns:
          The numbers, what was judged of them, and the weighted sum, or with `combine` the one vector and the findings
          (zeros if it was not asked for).
        """

        def vector(*args: Any) -> Any:
            return both(*args)[1]

        def combined(vectors: Any, numbers: jax.Array, judged: Judged) -> Any:
            return self.sum(vectors, judged.weights) if combine is None else combine(vectors, numbers)

        def together(sent: Any) -> tuple[jax.Array, Judged, Any]:
            numbers, vectors = self._replies(both, sent)
            judged = judge(numbers)
            return numbers, judged, _if(judged.when, lambda vectors: combined(vectors, numbers, judged), vectors)

        def apart(sent: Any) -> tuple[jax.Array, Judged, Any]:
            numbers = self._replies(number, sent)
            judged = judge(numbers)

            def then(sent: Any) -> Any:
                if combine is None:
                    return self._sum(vector, judged.weights, sent)
                return combine(self._replies(vector, sent), numbers)

            return numbers, judged, _if(judged.when, then, sent)

        sent: Any = (broadcast, {})
        one_pass = likely if isinstance(likely, bool) else _if_batched_true(likely)
        numbers, judged, total = _either(one_pass, together, apart, sent)
        self._note(numbers, sent, stacked=True)
        self._traffic.count(sent, numbers, True, replies=self.size)
        if combine is None:
            self._traffic.count(sent, total, judged.when, replies=1)
            return numbers, judged, total
        one, left_out, findings = total
        self.leave_out(left_out | ~jnp.isfinite(numbers), numbers=True)
        self._traffic.count(sent, one, judged.when, replies=1)
        return numbers, judged, (one, findings)

    def gram(self, stacked: Any) -> jax.Array:
        """<r_i, r_j> of stacked replies [n, ...]."""
        return gram(self._map, stacked)

    def by_columns(self, function: ByColumns, stacked: Any, whole: Any = (), *shared: Any) -> tuple[Any, Any]:
        """A function of stacked replies [n, ...] that treats coordinates alike, as a robust rule (`client_map`)."""
        return by_columns(self._map, function, stacked, whole, *shared)

    def sum(self, replies: Any, weights: jax.Array) -> Any:
        """sum_i weights_i replies_i of stacked replies [n, ...], or of what was made from them row by row."""
        return weighted_sum(self._map, replies, weights)

    def derived(self, function: Callable[[Any], Any], reply: Any) -> Any:
        """function(reply), with one leaf for each leaf of the reply.

        Where the exchange of the reply did not happen, sending the result on is not counted either.
        """
        made = function(reply)
        self._traffic.inherit(made, reply)
        return made

    def rows(self, kept: ByClient) -> Any:
        """The cohort's rows, [n, ...], of what the server keeps for each client."""
        return ownership.rows(self._map, self._seats, kept.rows)

    def set_rows(self, kept: ByClient, values: Any) -> ByClient:
        """What the server keeps for each client, with new rows [n, ...] of the cohort; made from those that it read."""
        return ByClient(ownership.set_rows(self._map, self._seats, kept.rows, values))

    def at_places(self, compute: Callable[..., Any], kept: ByPlace, replies: Any, *args: Any) -> tuple[ByPlace, Any]:
        """`compute(own, kept rows, replies, *args)` where the clients are, each device with its own (`ownership.Own`).

        Returns:
          What is kept by place from now on, and what `compute` found out, the same on every device.
        """

        def one(own: ownership.Own, held: Any, *args: Any) -> tuple[Any, Any]:
            return compute(own, *held, *args)

        rows, found = ownership.at_places(self._map, one, (kept.rows, replies), self.size, *args)
        return ByPlace(rows), found

    def weigh(self, weights: jax.Array) -> None:
        """Note what the clients weigh in the server's step: under attack, the attackers' share of it is a finding."""
        if self._attackers is not None:
            self.findings["attacker_weight"] = self._attackers.weight(weights)

    def leave_out(self, who: jax.Array, *, numbers: bool = False) -> None:
        """Note who sent something that is not finite and has no part in the round: so many is the finding `excluded`.

        Args:
          who: [n] of bool.
          numbers: whether the numbers that they told have no part in it either; a robust rule leaves out updates alone.
        """
        self._left_out = self._left_out | who
        self._heard.append(Heard(who))
        if numbers:
            self._silenced = self._silenced | who
        self.findings["excluded"] = self._left_out.sum()

    @property
    def numbers_are_finite(self) -> jax.Array:
        """Whether all numbers are that clients told so far, but for those that have no part in the round."""
        return ~(self._suspect & ~self._silenced).any()

    def offenders(self) -> jax.Array:
        """Who sent something that is not finite, [n] of bool, in the first exchange in which anybody did.

        What came later may follow from it. Nobody, if it came where replies are summed up unseen.
        """

        def finite(update: Any) -> jax.Array:
            return jnp.isfinite(tree.dot(update, update))

        found = jnp.zeros(self.id.shape, bool)
        for odd, updates in self._heard:
            for stacked in updates:
                odd = odd | ~self._map(finite)(stacked)
            found = jnp.where(found.any(), found, odd)
        return found

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
        stacked: bool,
        alongside: bool = False,
        private: bool = False,
    ) -> Any:
        reply = _if(when, exchange, sent)
        sent_up = jax.tree.map(lambda part: None if _stays(part) else part, reply, is_leaf=_stays)
        if not private and tree.size(sent_up) < tree.size(reply):
            raise ValueError("Private state needs an ask without `when`: a closed gate would zero it, ask_sum mix it")
        self._traffic.count(sent, sent_up, when, replies=self.size if stacked else 1, alongside=alongside)
        self._note(reply, sent, stacked=stacked)
        return reply

    def _note(self, reply: Any, sent: Any, *, stacked: bool) -> None:
        """Note what shows who sent something that is not finite; of numbers that were summed up, all may have.

        Updates are kept for `offenders`: those that are not finite show in the model, unless a rule leaves them out.
        """
        broadcast, _ = sent
        rows = self.id.shape if stacked else ()
        updates, numbers = parts(reply, broadcast[0] if broadcast else None, rows)
        odd = jnp.zeros(self.id.shape, bool)
        for part in numbers:
            odd = odd | ~jnp.isfinite(part).reshape(*rows, -1).all(-1)
        self._suspect = self._suspect | odd
        self._heard.append(Heard(odd, updates if rows else ()))

    def _replies(self, compute: Callable[..., Any], sent: Any) -> Any:
        if self._attackers is None:
            return self._ask_each(_reply(compute), self._rows, sent)
        broadcast, _ = sent
        poisoned = _poisoned_reply(compute, self._attackers.attack.poison)
        replies = self._ask_each(poisoned, (self._rows, self._attackers.mask), sent)
        return self._attackers.forged(replies, broadcast[0] if broadcast else None, self._map)

    def _ask_each(self, reply: Callable[..., Any], rows: Any, sent: Any) -> Any:
        return self._map(reply, in_axes=(0, None, None, None))(rows, self.round, self._federation, sent)

    def _sum(self, compute: Callable[..., Any], weights: jax.Array, sent: Any) -> Any:
        if self._attackers is not None:  # who knows what others send needs all of it at once
            return self.sum(self._replies(compute, sent), weights)
        return map_sum(self._map, _reply(compute), weights, self._rows, self.round, self._federation, sent)


def _reply(compute: Callable[..., Any]) -> Callable[..., Any]:
    """`compute` as a function of a client's row, the round, the federation and what was sent."""

    def function(row: Any, round_: jax.Array, federation: Federation, sent: Any) -> Any:
        id_, key, state = row
        place = federation.place(id_)
        data = LocalData(federation.x, federation.y, federation.rows[place], federation.num_examples[place])
        broadcast, context = sent
        return compute(Client(id_, key, data, state, round_), *broadcast, **context)

    return function


def _poisoned_reply(compute: Callable[..., Any], poison: Callable[[jax.Array], jax.Array] | None) -> Callable[..., Any]:
    """The same of a row with whether the client attacks: attackers have other labels, if the attack says so.

    What stays with a client is made with its true labels, in a second computation of which all else is unused.
    """
    reply = _reply(compute)

    def function(row: Any, round_: jax.Array, federation: Federation, sent: Any) -> Any:
        own, attacks = row
        if poison is None:
            return reply(own, round_, federation, sent)
        labels = jnp.where(attacks, poison(federation.y), federation.y)
        lied = reply(own, round_, federation._replace(y=labels), sent)
        if not any(map(_stays, jax.tree.leaves(lied, is_leaf=_stays))):
            return lied
        true = reply(own, round_, federation, sent)
        return jax.tree.map(lambda a, b: b if _stays(b) else a, lied, true, is_leaf=_stays)

    return function


def _either(gate: Gate, one: Callable[[Any], Any], other: Callable[[Any], Any], operand: Any) -> Any:
    if isinstance(gate, bool):
        return one(operand) if gate else other(operand)
    return jax.lax.cond(gate, one, other, operand)


def _if(gate: Gate, compute: Callable[[Any], Any], operand: Any) -> Any:
    """compute(operand), or zeros."""
    compute = compute if isinstance(gate, bool) else traced_once(compute)
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
