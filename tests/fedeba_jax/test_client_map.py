"""Every client map is `jax.vmap` as far as results tell."""

import functools
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from benchmarks.tools.work import Work, make_round
from fedeba_jax import client_map as maps
from tests.support.marks import slow_but

MAPS = {
    "mapped": lambda: maps.mapped,
    "chunked_1": lambda: maps.chunked(1),
    "chunked_3": lambda: maps.chunked(3),
    "chunked_9": lambda: maps.chunked(9),
    "sharded": lambda: maps.sharded(maps.device_mesh()),
    "sharded_vmap": lambda: maps.sharded(maps.device_mesh(), jax.vmap),
    "sharded_chunked": lambda: maps.sharded(maps.device_mesh(), maps.chunked(2)),
    "one_device": lambda: maps.sharded(maps.device_mesh(jax.devices()[:1])),
}
every_map = pytest.mark.parametrize("name", MAPS)


def function(row, shared, number):
    return {"sum": row["a"].sum() + shared["s"] @ row["a"], "both": (row["b"] * number, shared["s"] + row["a"])}


@functools.cache
def mapped(name):
    """`function` under a map, compiled."""
    return jax.jit(MAPS[name]()(function, in_axes=(0, None, 0)))


def rows(count):
    rng = np.random.default_rng(count)
    return {"a": rng.normal(size=(count, 2)).astype(np.float32), "b": np.arange(count, dtype=np.int32)}


SHARED = {"s": np.array([2.0, -1.0], np.float32)}


def close(a, b):
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-5, atol=1e-6), a, b)
    assert jax.tree.structure(a) == jax.tree.structure(b)


@every_map
@pytest.mark.parametrize("count", [1, 5])
def test_a_map_equals_vmap_on_trees_with_shared_and_mapped_arguments(name, count):
    """5 rows fill neither chunks nor shards: padding is not visible."""
    args = (rows(count), SHARED, np.arange(count))
    close(mapped(name)(*args), jax.jit(jax.vmap(function, in_axes=(0, None, 0)))(*args))


@every_map
def test_the_default_maps_every_argument_over_its_first_axis(name):
    a, b = jnp.arange(5.0), jnp.arange(10.0).reshape(5, 2)
    np.testing.assert_allclose(MAPS[name]()(lambda a, b: a * b.sum())(a, b), a * b.sum(1))


@every_map
def test_a_map_keeps_types(name):
    keys = jax.random.split(jax.random.key(0), 3)
    result = MAPS[name]()(lambda key, flag: (jax.random.key_data(key), ~flag))(keys, jnp.array([True, False, True]))
    np.testing.assert_array_equal(result[0], jax.random.key_data(keys))
    np.testing.assert_array_equal(result[1], [False, True, False])


@every_map
@pytest.mark.parametrize("count", [1, 5])
def test_map_sum_is_the_weighted_sum_of_what_vmap_gives(name, count):
    weights = np.arange(1.0, count + 1, dtype=np.float32)

    def one(row, shared):
        return {"x": row["a"] * shared["s"], "n": row["b"].astype(float)}

    stacked = jax.jit(jax.vmap(one, (0, None)))(rows(count), SHARED)
    expected = jax.tree.map(lambda leaf: np.tensordot(weights, leaf, 1), stacked)
    found = jax.jit(lambda *given: maps.map_sum(MAPS[name](), one, *given))(weights, rows(count), SHARED)
    close(found, expected)


@every_map
@pytest.mark.parametrize("count", [1, 5, 6])
def test_results_can_be_added_up(name, count):
    """6 rows fill the shards, whose devices then add up their own."""
    weights = np.arange(1.0, count + 1, dtype=np.float32)

    @jax.jit
    def run(*given):
        client_map = MAPS[name]()
        results = client_map(function, in_axes=(0, None, 0))(*given)
        return results, maps.weighted_sum(client_map, results, weights)

    results, found = run(rows(count), SHARED, np.arange(count))
    close(found, jax.tree.map(lambda leaf: np.tensordot(weights.astype(leaf.dtype), leaf, 1), results))


@every_map
@pytest.mark.parametrize("count", [1, 5, 6])
def test_results_have_products_also_where_devices_do_not_divide_them(name, count):
    def run(given):
        client_map = MAPS[name]()
        results = client_map(lambda row: {"a": row["a"] * 2, "b": row["b"].astype(float)})(given)
        return results, maps.gram(client_map, results)

    results, found = jax.jit(run)(rows(count))
    flat = np.concatenate([np.asarray(leaf).reshape(count, -1) for leaf in jax.tree.leaves(results)], axis=1)
    np.testing.assert_allclose(found, flat @ flat.T, rtol=1e-5)


@every_map
@pytest.mark.parametrize("count", [1, 5, 6])
def test_results_are_treated_by_columns_and_summed_over_all_of_them(name, count):
    """Three coordinates in all: they do not divide among the devices either."""
    whole = {"a": np.array([3.0, 4.0], np.float32), "b": np.array(5.0, np.float32)}

    def highest(total, stacked, whole, factor):
        squares = [jnp.square(leaf).sum() for leaf in jax.tree.leaves(stacked)]
        vector = jax.tree.map(lambda leaf, one: factor * leaf.max(0) + one, stacked, whole)
        return vector, total(sum(squares))

    def run(given, factor):
        client_map = MAPS[name]()
        results = client_map(lambda row: {"a": row["a"] * 2, "b": row["b"].astype(float)})(given)
        return results, maps.by_columns(client_map, highest, results, whole, factor)

    results, (vector, squares) = jax.jit(run)(rows(count), 10.0)
    close(vector, jax.tree.map(lambda leaf, one: 10 * leaf.max(0) + one, results, whole))
    np.testing.assert_allclose(squares, sum(np.square(leaf).sum() for leaf in jax.tree.leaves(results)), rtol=1e-5)


@every_map
def test_map_sum_with_rows_of_weight_zero_leaves_them_out(name):
    total = jax.jit(lambda *given: maps.map_sum(MAPS[name](), lambda row: row, *given))
    assert total(jnp.array([0.0, 2.0, 0.0]), jnp.array([5.0, 7.0, 9.0])) == 14


@every_map
def test_everywhere_changes_nothing(name):
    found = maps.everywhere(MAPS[name](), lambda a, b: {"sum": a["x"]["s"] + b, "kept": a["y"]})(
        {"x": SHARED, "y": 3}, 2.0
    )
    close(found, {"sum": SHARED["s"] + 2, "kept": jnp.asarray(3)})


def meetings(compiled):
    """Where the devices of a program wait for each other."""
    lines = compiled.as_text().splitlines()
    return [line for line in lines if re.search(r" (all-|reduce-scatter|collective-)[a-z]*\(", line)]


@pytest.mark.parametrize(
    ("algorithm", "times"),
    slow_but(
        [("fedavg", 1), ("fedeba", 2)],
        [("fedavg", 1), ("fedeba", 2), ("afl", 2), ("prac_fedeba_plus", 3), ("fedeba_plus", 7)],
    ),
)
def test_devices_meet_to_share_losses_and_to_add_up_updates(algorithm, times):
    """FedEBA+'s seven stand in the branches of its gates; a round takes four of them, or five.

    One more, for n bits, stands in the branch of a round that is not finite: who sent what is not.
    """
    made, place = make_round(Work("mlp", algorithm, client_map="sharded")), maps.replicated(maps.device_mesh())
    compiled = jax.jit(made.function, in_shardings=place, out_shardings=place).lower(*made.shapes).compile()
    found = meetings(compiled)
    (broken,) = [line for line in found if "= pred[10]" in line]
    assert "/cond/branch_0_fun/" in broken, "a round that is finite does without it"
    assert len(found) - 1 == times, found


def test_devices_do_not_wait_for_each_other_inside_a_loop_that_runs_everywhere():
    client_map = maps.sharded(maps.device_mesh())

    def normalise(weights):
        return jax.lax.fori_loop(0, 9, lambda _, w: w / jnp.linalg.norm(w), weights)

    def run(x):
        weights = maps.everywhere(client_map, normalise)(client_map(jnp.square)(x))
        return client_map(jnp.multiply)(x, weights)

    x = jnp.arange(1.0, 7.0)
    close(jax.jit(run)(x), x * normalise(x**2))
    found = meetings(jax.jit(run).lower(x).compile())
    assert len(found) == 2, found  # for the squares before the loop, and for the results after it


@every_map
@pytest.mark.parametrize("in_axes", [(0,), (0, 1), (0, 0, 0), 1])
def test_axes_other_than_one_zero_or_none_an_argument_are_refused(name, in_axes):
    with pytest.raises(ValueError, match=r"in_axes=.*2 arguments"):
        MAPS[name]()(jnp.add, in_axes=in_axes)(jnp.arange(3), jnp.arange(3))


@pytest.mark.parametrize("backend", ["gpu", "cuda", "tpu"])
def test_accelerators_take_vmap(backend, monkeypatch):
    over = []
    monkeypatch.setattr(maps, "sharded", lambda mesh, inner: over.append((mesh.devices.size, inner)))
    maps.auto(backend)
    assert over == [(2, jax.vmap)]
    monkeypatch.setattr(jax, "device_count", lambda: 1)
    assert maps.auto(backend) is jax.vmap


def test_cpus_take_a_shard_a_device(monkeypatch):
    assert maps.auto("cpu").mesh.devices.size == jax.device_count()
    monkeypatch.setattr(jax, "device_count", lambda: 1)
    assert maps.auto("cpu") is maps.mapped
    assert maps.auto() is maps.mapped  # the suite's backend is a CPU


def test_on_an_accelerator_maps_suit_the_model(monkeypatch):
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    monkeypatch.setattr(jax, "device_count", lambda: 1)
    assert maps.choose("auto", "auto", 4) == ("vmap", "vmap")
    for suits in ("map", "chunked(5)"):
        assert maps.choose("auto", "auto", 4, suits) == (suits, "map")
    assert maps.choose("vmap", "auto", 4, "map") == ("vmap", "map")


def test_several_accelerators_share_the_runs_that_fill_them_or_else_the_clients(monkeypatch):
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    assert maps.choose("auto", "auto", 4) == ("vmap", "sharded(vmap)")
    assert maps.choose("auto", "auto", 4, "chunked(5)") == ("chunked(5)", "sharded")
    for suits, sharded in (("vmap", "sharded(vmap)"), ("map", "sharded"), ("chunked(5)", "sharded(chunked(5))")):
        assert maps.choose("auto", "auto", 1, suits) == (sharded, "vmap" if suits == "vmap" else "map")
    assert maps.choose("vmap", "map", 1, "map") == ("vmap", "map")


def test_maps_are_chosen_by_what_fills_the_cores():
    assert maps.choose("auto", "auto", 1) == ("sharded", "map")
    assert maps.choose("auto", "auto", 4) == ("map", "sharded")
    assert maps.choose("auto", "auto", 3) == ("sharded", "map")
    assert maps.choose("vmap", "auto", 2) == ("vmap", "sharded")
    assert maps.choose("sharded", "auto", 2) == ("sharded", "map")
    with pytest.raises(ValueError, match="shard one of the two axes"):
        maps.choose("sharded", "sharded(vmap)", 2)


@pytest.mark.parametrize("name", ["vmap", "map", "chunked(2)", "sharded", "sharded(vmap)", "sharded(chunked(2))"])
def test_a_map_by_its_name_maps(name):
    rows = jnp.arange(5.0)
    np.testing.assert_array_equal(maps.by_name(name)(lambda x: 2 * x)(rows), 2 * rows)


@pytest.mark.parametrize("name", ["fast", "chunked", "chunked(0)", "chunked(-1)", "sharded(map)", "sharded(chunked)"])
def test_a_name_of_no_map_is_told(name):
    with pytest.raises(ValueError, match=r"--client_map=.* is not valid; give auto, vmap, map, chunked\(N\)"):
        maps.by_name(name, "--client_map")
