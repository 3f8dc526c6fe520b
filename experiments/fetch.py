"""Fetch, check and cache a data set: `python -m experiments.fetch --dataset=fashion_mnist`.

Use it once before training (`make data DATASET=fashion_mnist`); training itself never downloads.
Needs no root. A second run only checks the cache.
"""

import sys

from absl import app, flags

from fedeba_jax.data import sources

FLAGS = flags.FLAGS
flags.DEFINE_string("dataset", None, f"Which data set: {', '.join(sorted(sources.DATASETS))}.")
flags.DEFINE_string("data_dir", None, "Where data sets live; default $FEDEBA_DATA, or ./data.")
flags.DEFINE_bool("debug", False, "Show the traceback of an error.")


def main(argv: list[str]) -> int:
    """Load with `fetch=True` and print what was found; exit code 2 and one line on stderr on failure."""
    try:
        if argv[1:]:
            raise ValueError(f"unexpected argument {argv[1]!r}; use --dataset=NAME")
        if not FLAGS.dataset:
            raise ValueError(f"--dataset is not set; choose one of {', '.join(sorted(sources.DATASETS))}")
        dataset = sources.load(FLAGS.dataset, FLAGS.data_dir, log=print, fetch=True)
    except (ValueError, OSError) as error:
        if FLAGS.debug:
            raise
        print(f"error: {error}", file=sys.stderr)
        return 2
    for split, x in (("train", dataset.x_train), ("test", dataset.x_test)):
        print(f"{dataset.name}: {split}: {len(x)} images {list(x.shape[1:])}, "
              f"md5 {dataset.md5[f'x_{split}']} (images), {dataset.md5[f'y_{split}']} (labels)")
    print(f"{dataset.name}: ok, {dataset.num_classes} classes, source: {dataset.source}")
    return 0


if __name__ == "__main__":
    app.run(main)
