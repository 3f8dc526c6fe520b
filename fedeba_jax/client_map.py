"""How the client axis runs: values with the type of `jax.vmap`.

Which to use: `jax.vmap` on a GPU or TPU; `chunked(size)` there when a cohort does not fit the memory; `sharded` around
one of these on several of them; on a CPU `sharded(mesh, mapped)`, one host device per core, each with its clients one
at a time, which keeps a client's model in the cache; `mapped` for the least memory. The run axis of a sweep takes the
same values. All give the same results; algorithms cannot tell them apart.

Wait (`jax.block_until_ready`) for a program with a sharded map before you start one that does not need its results:
the devices of a CPU share one pool of threads, and many programs at once can hold all of them while each waits for its
other half.

Arguments are mapped over axis 0 or, with `in_axes` None, shared; `in_axes` has one entry per argument.
"""

import math
import re
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from fedeba_jax import tree
from fedeba_jax.tracing import traced_once
from fedeba_jax.types import ClientMap, PerDevice

AXIS = "clients"
NAMES = "auto, vmap, map, chunked(N), sharded, sharded(vmap) or sharded(chunked(N))"
WHOLE = PartitionSpec()  # a copy on every device
Axes = int | Sequence[int | None] | None
ByColumns = Callable[..., tuple[Any, Any]]


def mapped(function: Callable[..., Any], in_axes: Axes = 0) -> Callable[..., Any]:
    """One row at a time (`lax.map`)."""

    def call(*args: Any) -> Any:
        axes = _axes(in_axes, args)

        def one(row: tuple[Any, ...]) -> Any:
            return function(*_merge(axes, row, args))

        return jax.lax.map(one, _mapped_args(axes, args))

    return call


def chunked(size: int) -> ClientMap:
    """`size` rows at a time under vmap, chunk after chunk: memory bounded by the chunk."""

    def transform(function: Callable[..., Any], in_axes: Axes = 0) -> Callable:
        def call(*args: Any) -> Any:
            axes = _axes(in_axes, args)
            count = _length(axes, args)
            if count <= size:
                return jax.vmap(function, in_axes=axes)(*args)
            args = _pad(axes, args, math.ceil(count / size) * size)
            folded = _over_mapped(axes, args, lambda leaf: leaf.reshape(-1, size, *leaf.shape[1:]))
            replies = mapped(jax.vmap(function, in_axes=axes), axes)(*folded)
            return jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:])[:count], replies)

        return call

    return transform


def sharded(mesh: Mesh, inner: ClientMap = mapped) -> ClientMap:
    """Rows split over the devices of a one-axis mesh, `inner` over the rows of each.

    A shared argument may be `PerDevice`: each device has its own part of it. Results stay where they were made, but for
    single numbers (a row's loss), which go to every device at once: the compiler would divide what is computed from
    them among the devices, and let them wait for each other in each sum.
    """
    devices = mesh.devices.size
    axis = mesh.axis_names[0]
    split = PartitionSpec(axis)
    to_all = on_each(mesh, lambda numbers: jax.lax.all_gather(numbers, axis, tiled=True), split)

    def transform(function: Callable[..., Any], in_axes: Axes = 0) -> Callable:
        def call(*args: Any) -> Any:
            axes = _axes(in_axes, args)
            count = _length(axes, args)
            args = _pad(axes, args, math.ceil(count / devices) * devices)
            divided = tuple(isinstance(arg, PerDevice) for arg in args)
            specs = tuple(split if a == 0 or d else WHOLE for a, d in zip(axes, divided, strict=True))

            def on_device(*args: Any) -> Any:
                own = (tree.rows(arg.parts, 0) if d else arg for arg, d in zip(args, divided, strict=True))
                return inner(function, in_axes=axes)(*own)

            replies = on_each(mesh, on_device, specs, split)(*args)
            replies = jax.tree.map(lambda leaf: to_all(leaf) if leaf.ndim == 1 else leaf, replies)
            return jax.tree.map(lambda leaf: leaf[:count], replies)

        return call

    transform.mesh = mesh  # type: ignore[attr-defined]
    return transform


def mesh_of(client_map: ClientMap) -> Mesh | None:
    """The devices that a map divides rows among; None: it does not."""
    return getattr(client_map, "mesh", None)


def shares(rows: np.ndarray, devices: int) -> np.ndarray:
    """Which of the rows [n, ...] each device of a sharded map gets, [devices, rows of one, ...]."""
    each = math.ceil(len(rows) / devices)
    return rows[np.minimum(np.arange(each * devices), len(rows) - 1)].reshape(devices, each, *rows.shape[1:])


def in_turn(client_map: ClientMap) -> ClientMap:
    """One row at a time on each device of the map, for rows that are work enough: blocks of test examples."""
    mesh = mesh_of(client_map)
    return mapped if mesh is None else sharded(mesh)


def everywhere(client_map: ClientMap, function: Callable[..., Any]) -> Callable[..., Any]:
    """`function` as each device of the map computes it for itself: for small work that follows sharded rows.

    The compiler would split a loop over ten numbers among the devices, and let them wait for each other in each step.
    """
    mesh = mesh_of(client_map)
    return function if mesh is None else on_each(mesh, function, WHOLE)


def weighted_sum(client_map: ClientMap, stacked: Any, weights: jax.Array) -> Any:
    """sum_i weights_i stacked_i of the map's results: each device adds up its own rows, then the devices' sums."""
    mesh = mesh_of(client_map)
    if mesh is None:
        return tree.weighted_sum(stacked, weights)
    rows, axis = -(-weights.shape[0] // mesh.devices.size), mesh.axis_names[0]

    def total(stacked: Any, weights: jax.Array) -> Any:
        own = jax.lax.dynamic_slice_in_dim(weights, jax.lax.axis_index(axis) * rows, rows)
        return jax.lax.psum(tree.weighted_sum(stacked, own), axis)

    in_specs = (PartitionSpec(axis), WHOLE)
    return on_each(mesh, total, in_specs)(*whole_blocks(mesh, (stacked, weights)))


def gram(client_map: ClientMap, stacked: Any) -> jax.Array:
    """<stacked_i, stacked_j> of the map's results, [n, n].

    Devices exchange their rows for columns, so that each has a part of every row: it receives as much as it has made,
    instead of the rows of all others.
    """
    mesh, count = mesh_of(client_map), jax.tree.leaves(stacked)[0].shape[0]
    if mesh is None:
        return tree.gram(stacked)
    axis = mesh.axis_names[0]

    def total(stacked: Any) -> jax.Array:
        return jax.lax.psum(tree.gram(_columns(mesh, stacked)), axis)

    return on_each(mesh, total, PartitionSpec(axis))(whole_blocks(mesh, stacked))[:count, :count]


def by_columns(
    client_map: ClientMap, function: ByColumns, stacked: Any, whole: Any = (), *shared: Any
) -> tuple[Any, Any]:
    """A function of the map's results that treats coordinates alike, each device with its part of the coordinates.

    Devices exchange their rows for columns, as in `gram`, and then their parts of the one vector.

    Args:
      client_map: the map.
      function: (total, stacked rows, whole vectors, *shared) -> (one vector, findings). What it has are the coordinates
        of one device; `total` adds up over all devices what was summed over coordinates. Findings are the same on each.
      stacked: [n, ...].
      whole: single vectors, which every device has: trees of the same structure without the axis of the rows.
      *shared: numbers, as they are.

    Returns:
      The vector, in the shape of a row, and the findings.
    """
    mesh, count = mesh_of(client_map), jax.tree.leaves(stacked)[0].shape[0]
    if mesh is None:
        return function(lambda part: part, stacked, whole, *shared)
    axis = mesh.axis_names[0]

    def part(leaf: jax.Array) -> jax.Array:
        flat = _padded(leaf.reshape(1, -1), mesh)[0]
        size = flat.shape[0] // mesh.devices.size
        return jax.lax.dynamic_slice_in_dim(flat, jax.lax.axis_index(axis) * size, size)

    def total(own: jax.Array) -> jax.Array:
        return jax.lax.psum(own, axis)

    def on_device(stacked: Any, whole: Any, *shared: Any) -> tuple[Any, Any]:
        columns = jax.tree.map(lambda leaf: leaf[:count], _columns(mesh, stacked))
        vector, found = function(total, columns, jax.tree.map(part, whole), *shared)
        return jax.tree.map(lambda leaf: jax.lax.all_gather(leaf, axis, tiled=True), vector), found

    specs = (PartitionSpec(axis), WHOLE, *[WHOLE] * len(shared))
    flat, found = on_each(mesh, on_device, specs)(whole_blocks(mesh, stacked), whole, *shared)
    return jax.tree.map(lambda leaf, rows: leaf[: rows[0].size].reshape(rows.shape[1:]), flat, stacked), found


def _columns(mesh: Mesh, stacked: Any) -> Any:
    """On a device that has some rows: its part of the coordinates of all rows, [n, numbers]."""

    def one(leaf: jax.Array) -> jax.Array:
        rows = _padded(leaf.reshape(leaf.shape[0], -1), mesh)
        return jax.lax.all_to_all(rows, mesh.axis_names[0], split_axis=1, concat_axis=0, tiled=True)

    return jax.tree.map(one, stacked)


def _padded(rows: jax.Array, mesh: Mesh) -> jax.Array:
    """Rows with zeros at the end, as many as give each device equally many numbers."""
    return jnp.pad(rows, ((0, 0), (0, -rows.shape[1] % mesh.devices.size)))


def map_sum(client_map: ClientMap, function: Callable[..., Any], weights: jax.Array, rows: Any, *shared: Any) -> Any:
    """sum_i weights_i function(rows_i, *shared), accumulated row by row: results are never stacked.

    A sharded map accumulates its rows on each device and then adds up the devices' sums; other maps
    accumulate one row after the other, so a row should be work enough for the device (a client's whole
    data, a block of test examples).
    """
    mesh, function = mesh_of(client_map), traced_once(function)
    groups = 1 if mesh is None else mesh.devices.size
    count = weights.shape[0]
    padded = math.ceil(count / groups) * groups
    weights = jnp.concatenate([weights, jnp.zeros((padded - count,), weights.dtype)])
    (rows,) = _pad((0,), (rows,), padded)
    weights, rows = jax.tree.map(lambda leaf: leaf.reshape(groups, -1, *leaf.shape[1:]), (weights, rows))

    def group(number: jax.Array, rows: Any, weights: jax.Array, *shared: Any) -> Any:
        def add(total: Any, weighted_row: Any) -> tuple[Any, None]:
            weight, row = weighted_row
            value = function(row, *shared)
            return jax.tree.map(lambda t, v: t + weight.astype(v.dtype) * v, total, value), None

        value = jax.eval_shape(function, jax.tree.map(lambda leaf: leaf[0], rows), *shared)
        zeros = jax.tree.map(lambda v: jnp.zeros(v.shape, v.dtype), value)
        return jax.lax.scan(add, zeros, (weights[number], rows))[0]

    axes = (0, 0) + (None,) * (1 + len(shared))  # the weights are whole: dividing them would divide what they come from
    sums = client_map(group, in_axes=axes)(jnp.arange(groups), rows, weights, *shared)
    return jax.tree.map(lambda leaf: leaf.sum(0), sums)


def on_each(mesh: Mesh, function: Callable[..., Any], in_specs: Any, out_specs: Any = WHOLE) -> Callable[..., Any]:
    """`function` as each device of the mesh computes it, with its parts of the arguments."""
    return jax.shard_map(function, mesh=mesh, in_specs=in_specs, out_specs=out_specs, check_vma=False)


def device_mesh(devices: Sequence[jax.Device] | None = None) -> Mesh:
    """A one-axis mesh over the given (default: all) devices."""
    devices = jax.devices() if devices is None else devices
    return Mesh(np.asarray(devices), (AXIS,), axis_types=(AxisType.Auto,))


def replicated(mesh: Mesh) -> NamedSharding:
    """Where shared arrays belong: one copy on each device, made once rather than in every call."""
    return NamedSharding(mesh, WHOLE)


def place(values: Any, where: Any) -> Any:
    """Arrays of the host on the devices of a sharding (None: the default device).

    Where the devices belong to several processes, each of which has the same values, every process fills its own:
    `jax.device_put` would send all of them around to compare them.
    """
    if where is None or where.is_fully_addressable:
        return jax.device_put(values, where)

    def put(leaf: Any) -> jax.Array:
        whole = np.asarray(leaf)
        return jax.make_array_from_callback(whole.shape, where, lambda index: whole[index])

    return jax.tree.map(put, values)


def place_parts(make: Callable[[int], Any], mesh: Mesh, axis: int = 0) -> Any:
    """make(i) on the i-th device of the mesh, stacked over a new axis that is split over the devices.

    Every process makes the parts of its own devices alone.
    """
    where = NamedSharding(mesh, PartitionSpec(*[None] * axis, mesh.axis_names[0]))
    numbers = {device: number for number, device in enumerate(mesh.devices.flat)}
    parts = [make(numbers[device]) for device in mesh.local_devices]

    def stack(*leaves: np.ndarray) -> jax.Array:
        shape = (*leaves[0].shape[:axis], len(numbers), *leaves[0].shape[axis:])
        placed = [
            jax.device_put(np.expand_dims(leaf, axis), device)
            for leaf, device in zip(leaves, mesh.local_devices, strict=True)
        ]
        return jax.make_array_from_single_device_arrays(shape, where, placed)

    return jax.tree.map(stack, *parts)


def auto(backend: str | None = None) -> ClientMap:
    """The fastest map of the backend, as measured: vmap on an accelerator, `mapped` on a CPU; sharded over several."""
    inner = mapped if (backend or jax.default_backend()) == "cpu" else jax.vmap
    return sharded(device_mesh(), inner) if jax.device_count() > 1 else inner


def by_name(name: str, what: str = "client_map") -> ClientMap:
    """A map from its name; `what` it is of, for the error message."""
    plain: dict[str, ClientMap] = {"vmap": jax.vmap, "map": mapped}
    if name in plain:
        return plain[name]
    if match := re.fullmatch(r"chunked\(([1-9]\d*)\)", name):
        return chunked(int(match[1]))
    if name == "sharded":
        return sharded(device_mesh())
    if match := re.fullmatch(r"sharded\((vmap|chunked\([1-9]\d*\))\)", name):
        return sharded(device_mesh(), by_name(match[1]))
    raise ValueError(f"{what}={name} is not valid; give {NAMES}")


def choose(client_map: str, run_map: str, runs: int, on_accelerator: str = "vmap") -> tuple[str, str]:
    """Names of the client and run maps for so many runs, `auto` resolved.

    Only one axis can be sharded. Whole runs are sharded over the devices if they fill them (no waiting at every
    exchange); otherwise each run's clients are. On an accelerator the clients of a device take the map that suits the
    model there (`models.accelerator_map`), and the runs vmap if the clients do: runs have kernels of their own, too.
    """
    if client_map.startswith("sharded") and run_map.startswith("sharded"):
        raise ValueError(f"client_map={client_map} and run_map={run_map}: shard one of the two axes only")
    own = "map" if jax.default_backend() == "cpu" else on_accelerator  # of one device
    devices = jax.device_count()
    if run_map == "auto":
        fill = runs % devices == 0 and devices > 1 and not client_map.startswith("sharded")
        run_map = _name("vmap" if own == "vmap" else "map", fill)
    if client_map == "auto":
        client_map = _name(own, devices > 1 and not run_map.startswith("sharded"))
    return client_map, run_map


def _name(of_one_device: str, over_several: bool) -> str:
    if not over_several:
        return of_one_device
    return "sharded" if of_one_device == "map" else f"sharded({of_one_device})"


def _axes(in_axes: Axes, args: tuple[Any, ...]) -> tuple[int | None, ...]:
    axes = (in_axes,) * len(args) if in_axes is None or isinstance(in_axes, int) else tuple(in_axes)
    if len(axes) != len(args) or any(a not in (0, None) for a in axes):
        raise ValueError(f"in_axes={in_axes}: give 0 or None for each of the {len(args)} arguments")
    return axes


def _mapped_args(axes: tuple[int | None, ...], args: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(arg for a, arg in zip(axes, args, strict=True) if a == 0)


def _merge(axes: tuple[int | None, ...], row: tuple[Any, ...], args: tuple[Any, ...]) -> tuple[Any, ...]:
    rows = iter(row)
    return tuple(arg if a is None else next(rows) for a, arg in zip(axes, args, strict=True))


def _over_mapped(axes: tuple[int | None, ...], args: tuple[Any, ...], leaf_function: Callable) -> tuple[Any, ...]:
    return tuple(arg if a is None else jax.tree.map(leaf_function, arg) for a, arg in zip(axes, args, strict=True))


def _length(axes: tuple[int | None, ...], args: tuple[Any, ...]) -> int:
    return int(jax.tree.leaves(_mapped_args(axes, args))[0].shape[0])


def _pad(axes: tuple[int | None, ...], args: tuple[Any, ...], length: int) -> tuple[Any, ...]:
    """Repeat the last row up to `length`; the caller drops the extra replies."""

    def pad(leaf: jax.Array) -> jax.Array:
        count = leaf.shape[0]
        if leaf.ndim < 2:  # numbers and keys
            return jnp.concatenate([leaf] + [leaf[-1:]] * (length - count))
        known = (jnp.arange(length) < count).reshape(-1, *[1] * (leaf.ndim - 1))
        return jnp.where(known, lengthened(leaf, length), leaf[-1:])

    return args if _length(axes, args) == length else _over_mapped(axes, args, pad)


def lengthened(stacked: jax.Array, length: int) -> jax.Array:
    """Zeros up to so many rows: devices that hold rows add theirs alone, where they would exchange others."""
    missing = length - stacked.shape[0]
    return jnp.pad(stacked, [(0, missing)] + [(0, 0)] * (stacked.ndim - 1)) if missing else stacked


def whole_blocks(mesh: Mesh, stacked: Any) -> Any:
    """Stacked rows, with as many of zeros as give each device equally many."""
    devices = mesh.devices.size
    return jax.tree.map(lambda leaf: lengthened(leaf, math.ceil(leaf.shape[0] / devices) * devices), stacked)
