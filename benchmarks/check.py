"""Compares ratios with the recorded ones: never absolute times, which belong to a machine and its mood.

    python -m benchmarks.check RESULT.json ...            # exit code 1 if one got worse by more than --tolerance
    python -m benchmarks.check --record RESULT.json ...   # they become the recorded ones

RESULT.json is what a benchmark writes with --out. Only ratios that are recorded are compared.
"""

import json
import sys
from pathlib import Path
from typing import Any

from absl import flags

from benchmarks.tools import measure
from experiments.command import cli
from experiments.execution import folder

FLAGS = flags.FLAGS
flags.DEFINE_bool("record", False, "Record the ratios instead of comparing them.")
flags.DEFINE_float("tolerance", 0.15, "How much worse a ratio may be, as a fraction of the recorded one.")
flags.DEFINE_string("recorded", str(Path(__file__).parent / "recorded.json"), "The record.")


def read(path: str) -> dict[str, Any]:
    try:
        return json.loads(Path(path).read_text())
    except (OSError, ValueError) as error:
        raise ValueError(f"{path} cannot be read ({type(error).__name__}); give files of --out") from None


def ratios_of(paths: list[str]) -> dict[str, dict[str, Any]]:
    """All ratios of some result files, each with its commit and date."""
    found: dict[str, dict[str, Any]] = {}
    for path in paths:
        content = read(path)
        if "ratios" not in content:
            raise ValueError(f"{path} holds no ratios; give files that benchmarks wrote with --out")
        origin = {key: content["environment"].get(key) for key in ("commit", "date")}
        found |= {name: ratio | origin for name, ratio in content["ratios"].items()}
    return found


def is_worse(measured: float, recorded: float, better: str, tolerance: float) -> bool:
    if better == "higher":
        return measured < recorded * (1 - tolerance)
    return measured > recorded * (1 + tolerance)


def main(paths: list[str]) -> int:
    if not paths:
        raise ValueError("no result to compare; give the files that benchmarks wrote with --out")
    measured = ratios_of(paths)
    recorded = read(FLAGS.recorded)
    if FLAGS.record:
        folder.write_json(Path(FLAGS.recorded), dict(sorted((recorded | measured).items())))
        print(f"{len(measured)} ratios recorded in {FLAGS.recorded}")
        return 0
    common = [name for name in measured if name in recorded]
    if not common:
        raise ValueError(f"none of the {len(measured)} ratios is recorded; record them with --record")
    worse = []
    for name in common:
        before, now = recorded[name], measured[name]
        failed = is_worse(now["value"], before["value"], before["better"], FLAGS.tolerance)
        worse += [(name, before, now)] if failed else []
    shown = [[name, f"{recorded[name]['value']:.2f}", f"{measured[name]['value']:.2f}"] for name in common]
    print(measure.table(["ratio", "recorded", "measured"], shown))
    for name, before, now in worse:
        print(
            f"error: {name} is {now['value']:.2f}, recorded {before['value']:.2f} "
            f"({before['better']} is better, tolerance {FLAGS.tolerance:.0%})",
            file=sys.stderr,
        )
    return 1 if worse else 0


if __name__ == "__main__":
    cli.run(main, positional=True)
