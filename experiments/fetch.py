"""Fetch, check and cache a data set: `python -m experiments.fetch --dataset=fashion_mnist`.

Use it once before training (`make data DATASET=fashion_mnist`); training itself never downloads.
Needs no root. A second run only checks the cache.
"""

from absl import flags

from experiments.command import cli
from experiments.command import flags as common_flags
from fedeba_jax.data import sources
from fedeba_jax.data.sources.registry import data_folder

FLAGS = flags.FLAGS
common_flags.declare("dataset", "data_dir")


def main() -> None:
    if not FLAGS.dataset:
        raise ValueError(f"--dataset is not set; choose one of {', '.join(sorted(sources.DATASETS))}")
    dataset = sources.load(FLAGS.dataset, FLAGS.data_dir, log=print, fetch=True)
    spec = sources.DATASETS[dataset.name]
    for line in spec.describe(data_folder(dataset.name, FLAGS.data_dir)) if spec.describe else ():
        print(f"{dataset.name}: {line}")
    what, targets = ("sequences", "targets") if spec.tokens else ("images", "labels")
    for split, x in (("train", dataset.x_train), ("test", dataset.x_test)):
        md5 = f"md5 {dataset.md5[f'x_{split}']} ({what}), {dataset.md5[f'y_{split}']} ({targets})"
        print(f"{dataset.name}: {split}: {len(x)} {what} {list(x.shape[1:])}, {md5}")
    classes = f"{dataset.num_classes} {'tokens' if spec.tokens else 'classes'}"
    clients = f", {len(dataset.client_names)} clients" if dataset.client_names else ""
    print(f"{dataset.name}: ok, {classes}{clients}, source: {dataset.source}")


if __name__ == "__main__":
    cli.run(main)
