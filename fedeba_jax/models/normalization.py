"""The channel means and standard deviations that a model subtracts and divides by, of pixels in [0, 1].

Data sets that are not here (features, an own data set) are taken as they are.
"""

from typing import NamedTuple


class Normalization(NamedTuple):
    mean: tuple[float, ...]  # one per channel, or one for all
    std: tuple[float, ...]


IDENTITY = Normalization((0.0,), (1.0,))
MNIST = Normalization((0.1307,), (0.3081,))

NORMALIZATION = {
    "mnist": MNIST,
    # The federated literature that the results are compared with keeps MNIST's constants for Fashion-MNIST.
    "fashion_mnist": MNIST,
    "fashion_mnist_mini": MNIST,
    "cifar10": Normalization((0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010)),
    "cifar100": Normalization((0.5071, 0.4865, 0.4409), (0.2673, 0.2564, 0.2762)),
    "tiny_imagenet": Normalization((0.4802, 0.4481, 0.3975), (0.2770, 0.2691, 0.2821)),
}
