"""Pack a folder of results to commit it, and unpack it to continue it.

    python -m experiments.archive pack runs/NAME results/NAME
    python -m experiments.archive unpack results/NAME runs/NAME

A packed folder holds the finished runs, every row of them, in about a tenth of the bytes. `report` reads it as it is.
After `unpack`, the command that made the folder runs what is missing. `pack` into a packed folder adds to it.
"""

from collections.abc import Sequence
from pathlib import Path

from experiments.command import cli
from experiments.execution import archive


def main(arguments: Sequence[str]) -> None:
    what, *folders = arguments or [""]
    if what not in ("pack", "unpack") or len(folders) != 2:
        raise ValueError(f"{' '.join(arguments)!r} is not valid; give pack RUNS RESULTS, or unpack RESULTS RUNS")
    source, target = map(Path, folders)
    if what == "unpack":
        archive.unpack(source, target)
        print(f"unpacked: {target}; the command that made it runs what is missing")
        return
    done = archive.pack(source, target)
    size = sum(path.stat().st_size for path in target.iterdir())
    print(f"packed: {target}, {len(done)} finished runs, {size / 1000:.0f} kB")


if __name__ == "__main__":
    cli.run(main, positional=True)
