"""Trains two rounds with FedEBA+ and writes down which of our functions were called; started as a process.

python -m tests.docs.called OUT
"""

import pathlib
import sys

import jax
from absl import flags

from experiments import train

COMMAND = "--task=fashion_mnist_mini_mlp --algorithm=fedeba_plus --hparams=tau=0.1 --rounds=2 --eval_every=2 --noplot"


def main(out):
    cache = jax.config.jax_compilation_cache_dir or ""
    flags.FLAGS(["train", *COMMAND.split(), f"--out={out}", f"--compilation_cache={cache}"])
    called = set()

    def note(frame, event, _):
        module = frame.f_globals.get("__name__", "")
        if event == "call" and module.split(".")[0] in ("experiments", "fedeba_jax"):
            name = f"{module}.{frame.f_code.co_qualname}"
            called.add(name)
            called.add(name.rpartition(".")[0])  # a class is called if a method of it is

    sys.setprofile(note)
    train.main()
    sys.setprofile(None)
    (pathlib.Path(out) / "called.txt").write_text("\n".join(sorted(called)))


if __name__ == "__main__":
    main(sys.argv[1])
