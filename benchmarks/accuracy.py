"""Same work, same data, same accuracy: every library trains FashionMNIST, and is judged on the same test images.

    python -m benchmarks.accuracy --peers=all --data_dir=data

The training set is dealt evenly at random to 100 clients (shards of labels make single evaluations jump by tens of
percent). After --rounds rounds (default 50) of the paper's settings, the accuracy of each global model on the official
test set; libraries draw their own initial models, cohorts and batches. A peer that ends up more than --apart percent
from ours fails the check (exit code 1). --out: a JSON file.
"""

from typing import Any

import numpy as np
from absl import flags

from benchmarks.peers.protocol import Data
from benchmarks.tools import measure, worker
from benchmarks.tools.work import Work
from experiments.command import cli
from experiments.execution import session
from fedeba_jax.data.sources import load

FLAGS = flags.FLAGS
flags.DEFINE_float("apart", 2.0, "How many percent of accuracy a peer may be away from ours.")
for _flag in ("algorithms", "peers", "rounds", "data_dir", "out"):
    flags.declare_key_flag(_flag)

ROUNDS = 50


def real_data(clients: int) -> Data:
    dataset = load("fashion_mnist", FLAGS.data_dir)
    index = np.random.default_rng(0).permutation(len(dataset.x_train)).reshape(clients, -1).astype(np.int32)
    x, x_test = (images.reshape(*images.shape[:3], -1) for images in (dataset.x_train, dataset.x_test))
    return Data(x, dataset.y_train, index, x_test, dataset.y_test)


def train(work: Work, rounds: int) -> list[dict[str, Any]]:
    rows = []
    with worker.save(real_data(work.clients)) as folder:
        for name in ("ours", *measure.peers(work.algorithm)):
            spec = work.spec(folder)
            if name == "ours":
                contestant = worker.Worker(worker.OURS, spec)
            else:
                entrant = worker.PEERS[name]
                setting = spec._replace(setting=entrant.settings[0])
                contestant = worker.Worker(entrant, setting, worker.python_of(name))
            try:
                contestant.run(rounds)
                row = {"algorithm": work.algorithm, "contestant": name, "accuracy": contestant.accuracy()}
                rows.append(row | {"versions": contestant.facts["versions"]})
            finally:
                contestant.close()
            print(f"{work.algorithm:12} {name:12} {rows[-1]['accuracy']:.2f} %", flush=True)
    return rows


def main() -> None:
    session.set_up()
    rounds = FLAGS.rounds or ROUNDS
    rows = [row for algorithm in FLAGS.algorithms for row in train(Work("mlp", algorithm), rounds)]
    measure.write(FLAGS.out, "accuracy", rows, {}, rounds=rounds)
    ours = {row["algorithm"]: row["accuracy"] for row in rows if row["contestant"] == "ours"}
    for row in rows:
        if abs(row["accuracy"] - ours[row["algorithm"]]) > FLAGS.apart:
            raise cli.RunError(
                f"{row['contestant']} reaches {row['accuracy']:.2f} % with {row['algorithm']}, "
                f"ours {ours[row['algorithm']]:.2f} %: not the same work"
            )


if __name__ == "__main__":
    cli.run(main)
