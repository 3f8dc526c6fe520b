"""Many small JPEG files at once, on all cores."""

import importlib.util
import os
import struct
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

from fedeba_jax.data.sources.raw import DataError, Log, Unavailable

_PROGRAM = Path(__file__).with_name("decode_jpegs.py")
_PIECE = 4000  # files a process: enough to forget its start


def decode(files: Sequence[tuple[Path, bytes]], size: tuple[int, int], log: Log) -> np.ndarray:
    """RGB images [N, height, width, 3] uint8 of JPEG files, all of one size; an error names the first bad one.

    Notes: decoding a small image holds the interpreter's lock, so threads alone would take turns: each starts a
    process for its piece. Plain processes, because those of `multiprocessing` would run the user's script again.
    """
    if importlib.util.find_spec("PIL") is None:
        raise Unavailable("JPEG files need pillow: pip install 'fedeba_jax[images]'")
    width, height = size
    images = np.empty((len(files), height, width, 3), np.uint8)
    starts = range(0, len(files), _PIECE)
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        decoded = pool.map(lambda start: _piece(files[start : start + _PIECE], size), starts)
        for start, pixels in zip(starts, decoded, strict=True):
            piece = images[start : start + _PIECE]
            piece[:] = np.frombuffer(pixels, np.uint8).reshape(piece.shape)
            log(f"decoded {start + len(piece)} of {len(files)} images")
    return images


def _piece(files: Sequence[tuple[Path, bytes]], size: tuple[int, int]) -> bytes:
    """The pixels of some files, from a process of their own."""
    packed = b"".join(struct.pack("<I", len(data)) + data for _, data in files)
    command = [sys.executable, "-P", str(_PROGRAM), *map(str, size)]
    done = subprocess.run(command, input=packed, capture_output=True, check=False)
    if done.returncode == 0 and len(done.stdout) == 3 * size[0] * size[1] * len(files):
        return done.stdout
    said = (done.stderr.decode(errors="replace").strip().splitlines() or ["no message"])[-1]
    number, _, reason = said.partition(" ")
    if number.isdigit() and int(number) < len(files):
        raise DataError(f"{files[int(number)][0]}: not a readable JPEG ({reason[:200]})")
    raise DataError(f"{files[0][0]} and the next {len(files) - 1} files: could not be decoded ({said[:200]})")
