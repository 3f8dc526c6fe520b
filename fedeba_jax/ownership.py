"""Which device keeps the rows of which client: under a sharded map each holds its share of them, not a copy of all.

Client i lives on device i // ceil(M / devices). Every device trains ceil(n / devices) clients of a cohort, its own ones
first; those that find no place at home fill the places that are free elsewhere. Only the rows of these travel, to the
device that trains them and back: about 0.4 sqrt(n devices) rows, whatever M is. They go in turns of a few rows, each
of which one device sends to all.

On one device, and under a map without any, rows are simply indexed.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from fedeba_jax import tree
from fedeba_jax.client_map import WHOLE, lengthened, mesh_of, on_each
from fedeba_jax.types import ByClient, ByPlace, ClientMap, State


class Seats(NamedTuple):
    """The places that the clients of a cohort have on the devices."""

    id: jax.Array  # [n] who has the place; device d has the places from d ceil(n / devices) on
    away: jax.Array  # [n + a turn] the places whose client lives elsewhere, ascending; then n
    absent: jax.Array  # [] how many these are


def rows_in_a_turn(cohort_size: int, devices: int) -> int:
    """So many that most rounds need four turns or five: fewer would be more meetings, more would travel in vain."""
    return max(1, round(0.1 * math.sqrt(cohort_size * devices)))


def ordered(ids: jax.Array, num_clients: int, devices: int) -> jax.Array:
    """These clients (different ones, [n]) in the order of their places: a function of who they are alone."""
    n, block, share = ids.shape[0], -(-ids.shape[0] // devices), -(-num_clients // devices)
    ids = jnp.sort(ids)
    owner = ids // share
    rank = jnp.arange(n) - jnp.searchsorted(owner, owner)  # among the clients of its device
    home = owner * block + rank
    stays = (rank < block) & (home < n)
    taken = jnp.zeros(n, bool).at[jnp.where(stays, home, n)].set(True, mode="drop")
    free = jnp.argsort(taken, stable=True)  # the free places come first
    place = jnp.where(stays, home, free[jnp.cumsum(~stays) - 1])
    return jnp.zeros_like(ids).at[place].set(ids)


def seated(ids: jax.Array, num_clients: int, devices: int) -> Seats:
    """Clients [n] in the order of their places, and who of them are away from home."""
    n, block, share = ids.shape[0], -(-ids.shape[0] // devices), -(-num_clients // devices)
    place = jnp.arange(n)
    away = jnp.sort(jnp.where(ids // share == place // block, n, place))
    nobody = jnp.full(rows_in_a_turn(n, devices), n)
    return Seats(ids, jnp.concatenate([away, nobody]), jnp.sum(away < n))


def rows(client_map: ClientMap, seats: Seats, kept: Any) -> Any:
    """The rows of a cohort, [n, ...], of what is kept for all clients, [M, ...]."""
    mesh, n = mesh_of(client_map), seats.id.shape[0]
    if mesh is None or not jax.tree.leaves(kept):
        return tree.rows(kept, seats.id)
    axis = mesh.axis_names[0]

    def read(kept: Any, seats: Seats) -> Any:
        here = _Here(mesh, seats, kept)

        def turn(k: jax.Array, found: Any) -> Any:
            places = here.in_turn(k)
            sent = _sent_to_all(_some(kept, *here.index(places)), axis)
            return _write(found, here.seat(places), sent)

        found = _some(kept, *here.index(here.places))
        return jax.lax.fori_loop(0, here.turns, turn, found)

    found = on_each(mesh, read, (PartitionSpec(axis), WHOLE), PartitionSpec(axis))(kept, seats)
    return jax.tree.map(lambda leaf: leaf[:n], found)


def set_rows(client_map: ClientMap, seats: Seats, kept: Any, values: Any) -> Any:
    """What is kept for all clients, with these rows of the cohort in it, in its own types."""
    mesh = mesh_of(client_map)
    if mesh is None or not jax.tree.leaves(kept):
        return tree.set_rows(kept, seats.id, values)
    axis = mesh.axis_names[0]
    values = jax.tree.map(lambda leaf, like: jnp.asarray(leaf, like.dtype), values, kept)

    def write(kept: Any, values: Any, seats: Seats) -> Any:
        here = _Here(mesh, seats, kept)

        def turn(k: jax.Array, kept: Any) -> Any:
            places = here.in_turn(k)
            seat = here.seat(places)
            sent = _sent_to_all(_some(values, seat, seat < here.block), axis)
            return _write(kept, here.home(places), sent)

        return jax.lax.fori_loop(0, here.turns, turn, _write(kept, here.home(here.places), values))

    split = PartitionSpec(axis)
    return on_each(mesh, write, (split, split, WHOLE), split)(kept, _whole_blocks(mesh, values), seats)


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
    return on_each(mesh, one, in_specs, (split, WHOLE))(_whole_blocks(mesh, held), *args)


def padded(client_map: ClientMap, state: State) -> State:
    """The state with as many rows of clients, and of places, as fill the devices of the map."""
    mesh = mesh_of(client_map)
    if mesh is None:
        return state
    return _over_parts(state, lambda part: _whole_blocks(mesh, part), lambda part: part)


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


class _Here:
    """Indices as one device has them; one that is beyond its rows, or its places, is the number of these."""

    def __init__(self, mesh: Mesh, seats: Seats, kept: Any) -> None:
        self.n, devices = seats.id.shape[0], mesh.devices.size
        self.block, self._turn = -(-self.n // devices), rows_in_a_turn(self.n, devices)
        self.turns = -(-seats.absent // self._turn)
        self._seats, self._rows = seats, jax.tree.leaves(kept)[0].shape[0]
        self._device = jax.lax.axis_index(mesh.axis_names[0])
        self.places = self._device * self.block + jnp.arange(self.block)

    def in_turn(self, k: jax.Array) -> jax.Array:
        """The places whose clients' rows travel in the k-th turn."""
        return jax.lax.dynamic_slice_in_dim(self._seats.away, k * self._turn, self._turn)

    def seat(self, places: jax.Array) -> jax.Array:
        """Where these places are among those of this device."""
        return _within(places - self._device * self.block, self.block)

    def home(self, places: jax.Array) -> jax.Array:
        """Where the clients of these places have their rows on this device."""
        index = self._seats.id[jnp.minimum(places, self.n - 1)] - self._device * self._rows
        return jnp.where(places < self.n, _within(index, self._rows), self._rows)

    def index(self, places: jax.Array) -> tuple[jax.Array, jax.Array]:
        """The same, and whether they are here."""
        index = self.home(places)
        return index, index < self._rows


def _within(index: jax.Array, count: int) -> jax.Array:
    return jnp.where((index >= 0) & (index < count), index, count)


def _some(stacked: Any, index: jax.Array, here: jax.Array) -> Any:
    """The rows that are here; zeros for the others."""

    def some(leaf: jax.Array) -> jax.Array:
        found = leaf[jnp.minimum(index, leaf.shape[0] - 1)]
        return jnp.where(here.reshape(-1, *[1] * (leaf.ndim - 1)), found, jnp.zeros((), leaf.dtype))

    return jax.tree.map(some, stacked)


def _sent_to_all(rows: Any, axis: str) -> Any:
    """Rows that one device has, and the others have as zeros."""
    return jax.tree.map(lambda leaf: jax.lax.psum(leaf, axis).astype(leaf.dtype), rows)


def _write(stacked: Any, index: jax.Array, values: Any) -> Any:
    return jax.tree.map(lambda leaf, value: leaf.at[index].set(value, mode="drop"), stacked, values)


def _whole_blocks(mesh: Mesh, stacked: Any) -> Any:
    devices = mesh.devices.size
    return jax.tree.map(lambda leaf: lengthened(leaf, -(-leaf.shape[0] // devices) * devices), stacked)


def _is_divided(part: Any) -> bool:
    return isinstance(part, ByClient | ByPlace)


def _over_parts(state: State, of_rows: Callable[[Any], Any], of_others: Callable[[Any], Any]) -> State:
    def one(part: Any) -> Any:
        return of_rows(part) if _is_divided(part) else of_others(part)

    return State(jax.tree.map(one, state.server, is_leaf=_is_divided), of_rows(state.clients))
