"""What passes between a server and the clients of a round, counted from the shapes of the trees themselves.

- A tree that was sent down already in this round (the same arrays, as x_t) is not sent again.
- A reply counts what it holds; fields that are None are not there, and what is `Private` is not sent.
- An exchange with `when` false costs nothing, nor does sending on what it would have brought.
- An *exchange* is an ask whose reply holds as many numbers as the model or more.
"""

from typing import Any

import jax
import jax.numpy as jnp

from fedeba_jax import tree
from fedeba_jax.types import Info, Scalar

Gate = bool | jax.Array  # whether an exchange happens
NAMES = ("floats_down", "bytes_down", "floats_up", "bytes_up", "exchanges")


class Traffic:
    """Counts the exchanges of one round; `totals` are numbers and bytes of *one client*, and exchanges."""

    def __init__(self, model_size: int) -> None:
        self.totals: Info = {name: jnp.zeros((), jnp.int32) for name in NAMES}
        self._model_size = model_size
        self._sent: dict[int, tuple[jax.Array, Scalar]] = {}  # leaf -> how far it was sent (0, 1 or traced)
        self._gates: dict[int, tuple[jax.Array, Gate]] = {}  # reply leaf -> the `when` of its exchange

    def count(self, sent: Any, reply: Any, when: Gate, *, replies: int, alongside: bool = False) -> None:
        """Add one exchange.

        Args:
          sent: what goes down to a client.
          reply: what comes up: `replies` of them, stacked or summed.
          when: whether the exchange happens.
          replies: how many clients' replies the tree holds.
          alongside: the reply travels with another one, and is no exchange of its own.
        """
        down_floats, down_bytes = [], []
        for leaf in jax.tree.leaves(sent):
            leaf_when = self._gates.get(id(leaf), (leaf, True))[1]
            now = _number(when) * _number(leaf_when)
            before = self._sent.get(id(leaf), (leaf, 0))[1]
            self._sent[id(leaf)] = (leaf, _larger(before, now))
            new = _larger(before, now) - before
            down_floats.append(new * jnp.size(leaf))
            down_bytes.append(new * jnp.size(leaf) * jnp.result_type(leaf).itemsize)
        for leaf in jax.tree.leaves(reply):
            self._gates[id(leaf)] = (leaf, when)
        is_open = _number(when)
        up = tree.size(reply) // replies
        passed = (
            sum(down_floats),
            sum(down_bytes),
            is_open * up,
            is_open * (tree.num_bytes(reply) // replies),
            is_open * int(up >= self._model_size and not alongside),
        )
        self.totals = {name: self.totals[name] + amount for name, amount in zip(NAMES, passed, strict=True)}

    def inherit(self, made: Any, reply: Any) -> None:
        """Leaves made from a reply, one for each: sending them on costs nothing where the reply did not come."""
        for new, leaf in zip(jax.tree.leaves(made), jax.tree.leaves(reply), strict=True):
            self._gates[id(new)] = (new, self._gates[id(leaf)][1])


def _number(gate: Gate) -> Any:
    return int(gate) if isinstance(gate, bool) else jnp.asarray(gate, jnp.int32)


def _larger(a: Any, b: Any) -> Any:
    return max(a, b) if isinstance(a, int) and isinstance(b, int) else jnp.maximum(a, b)
