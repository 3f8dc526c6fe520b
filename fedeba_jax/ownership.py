"""Which device keeps the rows of which client: under a sharded map each holds its share of them, not a copy of all.

Client i lives on device i // ceil(M / devices). Every device trains ceil(n / devices) clients of a cohort, its own ones
first; those that find no place at home fill the places that are free elsewhere. Only the rows of these travel, to the
device that trains them and back, whatever M is. Rows travel in turns. In one turn every device sends at most one row,
and all send it equally far: device d to device d + k (modulo their number). Places are given so that there are few
turns.

On one device, and under a map without any, rows are simply indexed.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from fedeba_jax import tree
from fedeba_jax.client_map import WHOLE, mesh_of, on_each, whole_blocks
from fedeba_jax.types import ByClient, ByPlace, ClientMap, State

Places = tuple[jax.Array, jax.Array, jax.Array]


class Seats(NamedTuple):
    """The places that the clients of a cohort have on the devices."""

    id: jax.Array  # [n] who has the place; device d has the places from d ceil(n / devices) on
    turn: jax.Array  # [n] in which the row of this client travels; -1: it is at home
    turns: jax.Array  # [devices] entry k: after how many turns all rows that travel k devices have arrived


def ordered(ids: jax.Array, num_clients: int, devices: int) -> jax.Array:
    """These clients (different ones, [n]) in the order of their places: a function of who they are alone.

    Clients without a place at home move k devices further; k is chosen so that most can move at once, until all have
    places.
    """
    n, block, share = ids.shape[0], -(-ids.shape[0] // devices), -(-num_clients // devices)
    ids, device = jnp.sort(ids), jnp.arange(devices)
    owner = ids // share
    rank = jnp.arange(n) - jnp.searchsorted(owner, owner)  # among the clients of its device
    load, room = jnp.bincount(owner, length=devices), jnp.clip(n - device * block, 0, block)
    further = (device[:, None] + device[None]) % devices  # [how many, from which device]
    home = jnp.minimum(load, room)

    def some_leave(found: Places) -> Places:
        place, seated, taken = found  # of each client; how many of each device have a place; how many places it gave
        fits = (seated < load)[None] & (taken < room)[further]
        best = jnp.argmax(fits.sum(1))
        leaves, to = fits[best], further[best]
        place = jnp.where(leaves[owner] & (rank == seated[owner]), (to * block + taken[to])[owner], place)
        return place, seated + leaves, taken.at[to].add(leaves)

    start: Places = owner * block + rank, home, home
    place, *_ = jax.lax.while_loop(lambda found: (found[1] < load).any(), some_leave, start)
    return jnp.zeros_like(ids).at[place].set(ids)


def seated(ids: jax.Array, num_clients: int, devices: int) -> Seats:
    """Clients [n] in the order of their places, and when the rows of those travel that are away from home."""
    n, block, share = ids.shape[0], -(-ids.shape[0] // devices), -(-num_clients // devices)
    home = ids // share
    further = (jnp.arange(n) // block - home) % devices
    way = home * devices + further
    order = jnp.argsort(way)
    before = jnp.arange(n) - jnp.searchsorted(way[order], way[order])  # of those that go the same way
    before = jnp.zeros_like(before).at[order].set(before)
    needed = jnp.zeros(devices, before.dtype).at[further].max(before + 1).at[0].set(0)
    turns = jnp.cumsum(needed)
    return Seats(ids, jnp.where(further > 0, turns[further] - needed[further] + before, -1), turns)


def rows(client_map: ClientMap, seats: Seats, kept: Any) -> Any:
    """The rows of a cohort, [n, ...], of what is kept for all clients, [M, ...]."""
    mesh, n = _divided_among(client_map, kept), seats.id.shape[0]
    if mesh is None:
        return tree.rows(kept, seats.id)
    split = PartitionSpec(mesh.axis_names[0])

    @_one_run_at_a_time
    @functools.partial(on_each, mesh, in_specs=(split, WHOLE), out_specs=split)
    def read(kept: Any, seats: Seats) -> Any:
        here = _Here(mesh, seats, kept)

        def turn(k: jax.Array, found: Any) -> Any:
            sent = _some(kept, here.home(here.leaving(k)))
            return _write(found, here.seat(here.coming(k)), here.passed_on(sent, here.further(k)))

        return jax.lax.fori_loop(0, here.turns, turn, _some(kept, here.home(here.places)))

    return jax.tree.map(lambda leaf: leaf[:n], read(kept, seats))


def set_rows(client_map: ClientMap, seats: Seats, kept: Any, values: Any) -> Any:
    """What is kept for all clients, with these rows of the cohort in it, in its own types."""
    mesh = _divided_among(client_map, kept)
    if mesh is None:
        return tree.set_rows(kept, seats.id, values)
    split = PartitionSpec(mesh.axis_names[0])
    values = jax.tree.map(lambda leaf, like: jnp.asarray(leaf, like.dtype), values, kept)

    @_one_run_at_a_time
    @functools.partial(on_each, mesh, in_specs=(split, split, WHOLE), out_specs=split)
    def write(kept: Any, values: Any, seats: Seats) -> Any:
        here = _Here(mesh, seats, kept)

        def turn(k: jax.Array, kept: Any) -> Any:
            sent = _some(values, here.seat(here.coming(k)))
            return _write(kept, here.home(here.leaving(k)), here.passed_on(sent, here.devices - here.further(k)))

        return jax.lax.fori_loop(0, here.turns, turn, _write(kept, here.home(here.places), values))

    return write(kept, whole_blocks(mesh, values), seats)


class Own(NamedTuple):
    """What a device knows of the places that it has."""

    place: jax.Array  # [b]; of those that are padding, any
    taken: jax.Array  # [b] false where it is padding
    total: Callable[[Any], Any]  # the sum over devices
    numbers: Callable[[jax.Array], jax.Array]  # [b] of each device -> [n] on all


def at_places(client_map: ClientMap, compute: Callable[..., Any], held: Any, n: int, *args: Any) -> tuple[Any, Any]:
    """`compute(own, rows, *args)` on each device, with the rows of `held` that it has.

    Args:
      client_map: of the cohort.
      compute: what a device does; returns rows that stay with it, and something that is the same on all devices.
      held: rows by place, [n, ...].
      n: clients of the cohort.
      *args: what every device gets.
    """
    mesh = mesh_of(client_map)
    if mesh is None:
        every = jnp.arange(n)
        return compute(Own(every, every < n, lambda part: part, lambda part: part), held, *args)
    axis, block = mesh.axis_names[0], -(-n // mesh.devices.size)
    split = PartitionSpec(axis)

    def one(held: Any, *args: Any) -> tuple[Any, Any]:
        place = jax.lax.axis_index(axis) * block + jnp.arange(block)
        own = Own(
            jnp.minimum(place, n - 1),
            place < n,
            lambda part: jax.lax.psum(part, axis),
            lambda part: jax.lax.all_gather(part, axis, tiled=True)[:n],
        )
        return compute(own, held, *args)

    in_specs = (split, *[WHOLE] * len(args))
    return on_each(mesh, one, in_specs, (split, WHOLE))(whole_blocks(mesh, held), *args)


def padded(client_map: ClientMap, state: State) -> State:
    """The state with as many rows of clients, and of places, as fill the devices of the map."""
    mesh = mesh_of(client_map)
    if mesh is None:
        return state
    return _over_parts(state, lambda part: whole_blocks(mesh, part), lambda part: part)


def cropped(state: Any, like: Any) -> Any:
    """The state with no more rows than another one."""
    return jax.tree.map(lambda leaf, other: leaf[: other.shape[0]] if other.ndim else leaf, state, like)


def placement(client_map: ClientMap, state: State, *, leading: int = 0) -> Any:
    """Where the arrays of a padded state belong: rows divided among the devices, a copy of all else on each.

    Args:
      client_map: of the rounds; one without devices has no placement (None).
      state: its shapes.
      leading: axes before those of a state, as that of several runs.
    """
    mesh = mesh_of(client_map)
    if mesh is None:
        return None
    split = NamedSharding(mesh, PartitionSpec(*[None] * leading, mesh.axis_names[0]))
    whole = NamedSharding(mesh, WHOLE)
    return _over_parts(state, lambda part: jax.tree.map(lambda _: split, part), lambda part: whole)


def of_clients(state: State, num_clients: int) -> State:
    """The state without rows that are padding."""
    return state._replace(clients=jax.tree.map(lambda leaf: leaf[:num_clients], state.clients))


def owners(client_map: ClientMap, state: State) -> int:
    """How many devices the rows of clients are divided among; 1 also where nobody keeps any between rounds."""
    mesh, parts = mesh_of(client_map), jax.tree.leaves(state.server, is_leaf=_is_divided)
    kept = bool(jax.tree.leaves(state.clients)) or any(isinstance(part, ByClient) for part in parts)
    return mesh.devices.size if mesh is not None and kept else 1


def _divided_among(client_map: ClientMap, kept: Any) -> Mesh | None:
    """The devices that rows are divided among; None where one has all of them, or there are none."""
    mesh = mesh_of(client_map)
    return mesh if mesh is not None and mesh.devices.size > 1 and jax.tree.leaves(kept) else None


class _Here:
    """Indices as one device has them; one that is beyond its rows, or its places, is the number of these."""

    def __init__(self, mesh: Mesh, seats: Seats, kept: Any) -> None:
        self._axis, self.devices, self._n = mesh.axis_names[0], mesh.devices.size, seats.id.shape[0]
        self._block, self._rows = -(-self._n // self.devices), jax.tree.leaves(kept)[0].shape[0]
        self._seats, self._device = seats, jax.lax.axis_index(self._axis)
        self.places = self._device * self._block + jnp.arange(self._block)
        self.turns = seats.turns[-1]

    def leaving(self, k: jax.Array) -> jax.Array:
        """The place elsewhere, [1], of the client of this device whose row travels in the k-th turn; n if none does."""
        return self._one(self._seats.id // self._rows, k)

    def coming(self, k: jax.Array) -> jax.Array:
        """The place here, [1], of the client of another device whose row travels in the k-th turn; n if none does."""
        return self._one(jnp.arange(self._n) // self._block, k)

    def _one(self, device: jax.Array, k: jax.Array) -> jax.Array:
        found = (self._seats.turn == k) & (device == self._device)
        return jnp.where(found.any(), jnp.argmax(found), self._n)[None]

    def further(self, k: jax.Array) -> jax.Array:
        """How many devices further the rows of the k-th turn go."""
        return jnp.searchsorted(self._seats.turns, k, side="right")

    def seat(self, places: jax.Array) -> jax.Array:
        """Where these places are among those of this device."""
        return _within(places - self._device * self._block, self._block)

    def home(self, places: jax.Array) -> jax.Array:
        """Where the clients of these places have their rows on this device."""
        index = self._seats.id[jnp.minimum(places, self._n - 1)] - self._device * self._rows
        return jnp.where(places < self._n, _within(index, self._rows), self._rows)

    def passed_on(self, rows: Any, further: jax.Array) -> Any:
        """What each device sends to that so many further, 1 or more; all devices agree on the number."""

        def by(number: int) -> Callable[[Any], Any]:
            pairs = [(device, (device + number) % self.devices) for device in range(self.devices)]
            return lambda rows: jax.lax.ppermute(rows, self._axis, pairs)

        sent, unpack = _joined(rows)
        return unpack(jax.lax.switch(further - 1, [by(number) for number in range(1, self.devices)], sent))


def _joined(rows: Any) -> tuple[list[jax.Array], Callable[[list[jax.Array]], Any]]:
    """The numbers of each type as one array, for devices meet once for each array; and the way back."""
    leaves, structure = jax.tree.flatten(rows)
    kinds = dict.fromkeys(leaf.dtype for leaf in leaves)  # in the same order in every process
    joined, back = zip(*(ravel_pytree([leaf for leaf in leaves if leaf.dtype == kind]) for kind in kinds), strict=True)

    def unpack(joined: list[jax.Array]) -> Any:
        parts = {kind: iter(of(part)) for kind, of, part in zip(kinds, back, joined, strict=True)}
        return jax.tree.unflatten(structure, [next(parts[leaf.dtype]) for leaf in leaves])

    return list(joined), unpack


def _one_run_at_a_time(function: Callable[..., Any]) -> Callable[..., Any]:
    """Under vmap, runs go one after the other: a switch over all of them at once would take every branch."""
    return jax.custom_batching.sequential_vmap(function)


def _within(index: jax.Array, count: int) -> jax.Array:
    return jnp.where((index >= 0) & (index < count), index, count)


def _some(stacked: Any, index: jax.Array) -> Any:
    """The rows that are here; anything for the others."""
    return jax.tree.map(lambda leaf: leaf[jnp.minimum(index, leaf.shape[0] - 1)], stacked)


def _write(stacked: Any, index: jax.Array, values: Any) -> Any:
    """These rows in their places; those whose index is beyond the last are left out.

    Without the barrier XLA's CPU compiler takes such an index, if it is the only one, for that of the next device's
    first row, where the rows of all devices were one array before: it reads there, and writes here.
    """
    stacked = jax.lax.optimization_barrier(stacked)
    return jax.tree.map(lambda leaf, value: leaf.at[index].set(value, mode="drop"), stacked, values)


def _is_divided(part: Any) -> bool:
    return isinstance(part, ByClient | ByPlace)


def _over_parts(state: State, of_rows: Callable[[Any], Any], of_others: Callable[[Any], Any]) -> State:
    def one(part: Any) -> Any:
        return of_rows(part) if _is_divided(part) else of_others(part)

    return State(jax.tree.map(one, state.server, is_leaf=_is_divided), of_rows(state.clients))
