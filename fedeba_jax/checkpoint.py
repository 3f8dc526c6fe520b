"""Checkpoints that survive being killed at any moment, and notice every flipped bit.

A file is replaced whole or not at all, and the one before it is kept. It begins with a name of the format and the
sha256 of the rest.
"""

import hashlib
import io
import json
from pathlib import Path
from typing import Any

import jax
import numpy as np

from fedeba_jax import client_map as maps
from fedeba_jax.files import replacing

FORMAT = b"fedeba_jax checkpoint 2\n"


def before(path: Path) -> Path:
    """Where the checkpoint is that a newer one replaced."""
    return path.with_name(f"{path.name}.before")


def save(path: Path, journal: dict[str, Any], tree: Any = None) -> None:
    """Write a journal (JSON) and the arrays of a tree; the last checkpoint is kept as `before`."""
    content = packed(journal, tree)
    with replacing(path, keep=before(path)) as file:
        file.write(FORMAT + hashlib.sha256(content).digest())
        file.write(content)


def load(path: Path) -> tuple[dict[str, Any], list[np.ndarray]]:
    """The journal and the leaves; a file that was changed, or is not ours, is an error."""
    data = path.read_bytes()
    if not data.startswith(FORMAT):
        raise ValueError(f"{path} is not a checkpoint of this fedeba_jax")
    digest, content = data[len(FORMAT) :][:32], data[len(FORMAT) + 32 :]
    if hashlib.sha256(content).digest() != digest:
        raise ValueError(f"{path} is damaged (its checksum is wrong)")
    return unpacked(content)


def packed(journal: dict[str, Any], tree: Any = None) -> bytes:
    """A journal (JSON) and the arrays of a tree as bytes."""
    buffer = io.BytesIO()
    arrays = {f"leaf{i}": np.asarray(leaf) for i, leaf in enumerate(jax.tree.leaves(tree))}
    np.savez(buffer, journal=np.frombuffer(json.dumps(journal).encode(), np.uint8), **arrays)  # type: ignore[arg-type]
    return buffer.getvalue()


def unpacked(content: bytes) -> tuple[dict[str, Any], list[np.ndarray]]:
    """The journal and the leaves of such bytes."""
    with np.load(io.BytesIO(content), allow_pickle=False) as arrays:
        leaves = [arrays[f"leaf{i}"] for i in range(len(arrays.files) - 1)]
        return json.loads(arrays["journal"].tobytes()), leaves


def restore(leaves: list[np.ndarray], like: Any) -> Any:
    """The leaves as a tree of the structure, shapes and placement of `like`."""
    reference, structure = jax.tree.flatten(like)
    if len(leaves) == len(reference):  # bfloat16 is not NumPy's: it comes back as bytes
        leaves = [a.view(r.dtype) if a.dtype.kind == "V" else a for a, r in zip(leaves, reference, strict=True)]
    shapes = [(leaf.shape, leaf.dtype) for leaf in reference]
    if [(leaf.shape, leaf.dtype) for leaf in leaves] != shapes:
        raise ValueError("the checkpoint is of another program")
    placed = [
        maps.place(leaf, ref.sharding) if isinstance(ref, jax.Array) else leaf
        for leaf, ref in zip(leaves, reference, strict=True)
    ]
    return jax.tree.unflatten(structure, placed)
