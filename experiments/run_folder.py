"""The folder of a run. It is written while the run goes on; what is there is never half a line.

    config.json    all resolved settings, versions, commit, data source and md5, devices
    rounds.jsonl   a row a round and seed: gate, angle, losses, weights, communication
    evals.jsonl    a row an evaluation, seed, split and model: all fairness metrics
    clients.npz    final accuracy and loss of each client, [seeds, clients]
    summary.json   the last evaluation and the mean of the last five, over seeds; cost; divergence; privacy
    curves.png     the same as a picture

A method may be evaluated in several ways: by its global model, by the clients' personal predictions, by others that it
names. Where there is room for one, it is the global model, or the personal predictions if there is none (`shown`).
"""

import importlib.metadata
import json
import math
import os
import platform
import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import jax
import numpy as np

PACKAGES = ("fedeba_jax", "jax", "jaxlib", "flax", "optax", "numpy")


def shown(models: Iterable[str], wanted: str = "global") -> str:
    """The evaluated model that stands for the wanted one: global and personal stand in for each other."""
    other = {"global": "personal", "personal": "global"}.get(wanted, wanted)
    return other if wanted not in models and other in models else wanted


def check(folder: Path, *, overwrite: bool) -> None:
    """An error if the folder holds something, unless it is a run and may be overwritten."""
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"--out={folder} is a file; give a folder")
    if folder.exists() and any(folder.iterdir()):
        if not (folder / "config.json").exists():
            raise ValueError(f"--out={folder} holds files that are not of a run; give another folder")
        if not overwrite:
            raise ValueError(f"--out={folder} already holds a run; give another folder, or --overwrite to replace it")


def create(folder: Path, *, overwrite: bool) -> None:
    """An empty run folder, in place of what `check` lets pass."""
    check(folder, overwrite=overwrite)
    if folder.exists():
        shutil.rmtree(folder)
    folder.mkdir(parents=True)


def write_json(path: Path, content: Any) -> None:
    """Write a whole file or nothing."""
    temporary = path.with_name(path.name + ".tmp")
    with open(temporary, "w") as file:
        json.dump(_clean(content), file, indent=1)
        file.write("\n")
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)


def append_rows(path: Path, rows: Iterable[dict[str, Any]]) -> None:
    """Append rows as JSON lines, in one write."""
    with open(path, "a") as file:
        file.write("".join(json.dumps(_clean(row)) + "\n" for row in rows))


def read_rows(path: Path) -> list[dict[str, Any]]:
    with open(path) as file:
        return [json.loads(line) for line in file]


def client_accuracy(folder: Path) -> dict[str, np.ndarray]:
    """Final accuracy of each client by model, [seeds, clients]."""
    models = {row["model"] for row in read_rows(folder / "evals.jsonl")}
    with np.load(folder / "clients.npz") as arrays:
        return {name: arrays["accuracy" if name == shown(models) else f"accuracy_{name}"] for name in sorted(models)}


def environment() -> dict[str, Any]:
    """Versions, commit and devices."""
    return {
        "python": platform.python_version(),
        "packages": {name: importlib.metadata.version(name) for name in PACKAGES},
        "commit": _commit(),
        "backend": jax.default_backend(),
        "devices": [str(device) for device in jax.devices()],
    }


def _commit() -> str | None:
    """The commit of the source tree, with "+" if it was changed since; None outside a checkout."""
    here = Path(__file__).parent
    try:
        commit = subprocess.run(
            ["git", "-C", here, "rev-parse", "HEAD"], capture_output=True, text=True, check=True
        ).stdout.strip()
        changed = subprocess.run(
            ["git", "-C", here, "status", "--porcelain", "--untracked-files=no"],
            capture_output=True, text=True, check=True,
        ).stdout.strip()  # fmt: skip
    except (OSError, subprocess.CalledProcessError):
        return None
    return commit + ("+" if changed else "")


def _clean(value: Any) -> Any:
    """As JSON takes it: Python numbers, and null for what is not finite."""
    if isinstance(value, dict):
        return {str(k): _clean(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_clean(v) for v in value]
    if isinstance(value, np.ndarray | jax.Array):
        return _clean(np.asarray(value).tolist())
    if isinstance(value, np.generic):
        return _clean(value.item())
    if isinstance(value, float):
        return float(f"{value:.7g}") if math.isfinite(value) else None
    return value
