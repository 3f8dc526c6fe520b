"""The images that come with the package: `fashion_mnist_mini`, real FashionMNIST (see README.md here)."""

import importlib.resources
import io
import lzma

import numpy as np

FILE = "fashion_mnist_mini.npz.xz"


def read() -> dict[str, np.ndarray]:
    """The arrays x_train, y_train, x_test, y_test, as stored."""
    packed = importlib.resources.files(__package__).joinpath(FILE).read_bytes()
    with np.load(io.BytesIO(lzma.decompress(packed)), allow_pickle=False) as arrays:
        return dict(arrays)
