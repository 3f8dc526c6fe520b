"""Checkpoints: replaced whole, flipped bits noticed, trees of another program refused."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedeba_jax import checkpoint
from fedeba_jax import client_map as maps


def test_a_flipped_bit_in_the_checkpoint_is_noticed(tmp_path):
    path = tmp_path / "checkpoint.bin"
    checkpoint.save(path, {"offset": 0}, {"a": np.arange(3.0)})
    assert checkpoint.load(path)[1][0].tolist() == [0, 1, 2]
    for position in (0, 40, path.stat().st_size - 1):
        data = bytearray(path.read_bytes())
        data[position] ^= 1
        (tmp_path / "bad.bin").write_bytes(data)
        with pytest.raises(ValueError, match=r"is damaged|is not a checkpoint"):
            checkpoint.load(tmp_path / "bad.bin")


def test_a_file_is_replaced_whole(tmp_path):
    """What is written beside it, and moved over it: an earlier one stays until then."""
    path = tmp_path / "checkpoint.bin"
    checkpoint.save(path, {"done": 1})
    with pytest.raises(TypeError):
        checkpoint.save(path, {"done": object()})
    assert checkpoint.load(path) == ({"done": 1}, [])
    assert [found.name for found in tmp_path.iterdir()] == ["checkpoint.bin"]


def test_the_last_two_are_kept(tmp_path):
    path = tmp_path / "checkpoint.bin"
    for done in range(3):
        checkpoint.save(path, {"done": done})
    assert checkpoint.load(path)[0] == {"done": 2}
    assert checkpoint.load(checkpoint.before(path))[0] == {"done": 1}
    assert len(list(tmp_path.iterdir())) == 2


def test_a_tree_comes_back_with_its_types_and_placement(tmp_path):
    placement = maps.replicated(maps.device_mesh())
    tree = {
        "counts": np.arange(3, dtype=np.int64),
        "half": jax.device_put(jnp.array([[1.5, -2.0]], jnp.bfloat16), placement),
        "model": jax.device_put(jnp.ones((2, 2)), placement),
    }
    checkpoint.save(tmp_path / "checkpoint.bin", {"batch": ["a"], "done": 3}, tree)
    journal, leaves = checkpoint.load(tmp_path / "checkpoint.bin")
    assert journal == {"batch": ["a"], "done": 3}
    back = checkpoint.restore(leaves, jax.tree.map(lambda leaf: leaf * 0, tree))
    assert jax.tree.structure(back) == jax.tree.structure(tree)
    for name, leaf in tree.items():
        assert back[name].dtype == leaf.dtype
        np.testing.assert_array_equal(np.asarray(back[name], float), np.asarray(leaf, float))
    assert back["half"].sharding == placement
    assert isinstance(back["counts"], np.ndarray)


@pytest.mark.parametrize("other", [[np.zeros(3)], [np.zeros(2), np.zeros(2)], [np.zeros(2, int)]])
def test_a_tree_of_another_program_is_refused(other):
    with pytest.raises(ValueError, match="of another program"):
        checkpoint.restore(other, [np.zeros(2)])
