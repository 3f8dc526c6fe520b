"""The tables of studies that are no preset of the paper: tuning on equal terms, and methods under attack."""

import json
from typing import Any

from docs.parts import NOTHING, ROOT
from experiments.paper import evidence
from experiments.reporting import robustness, tuning
from experiments.reporting.loading import load
from experiments.reporting.tables import plain_markdown

TUNING = evidence.RESULTS_DIR / "tuning_fashion_mnist"
PRESET = ROOT / "experiments" / "configs" / "tune_fashion_mnist.flags"


def under_attack() -> str:
    """The worst cases of the committed study on embedded images."""
    series = load([ROOT / evidence.RESULTS_DIR / "robustness_mini"])
    return robustness.report(robustness.settings_of(series), "Embedded images").strip()


def tuned() -> str:
    """The chosen points and the defaults, of the methods that are tuned so far."""
    content = tuning_record()
    if not content:
        return NOTHING
    methods, planned = tuning.from_json(content), flags()["algorithm"].split(",")
    rounds = next(iter(load([ROOT / TUNING / "test"]))).settings["rounds"]
    left = [f"`{name}`" for name in planned if name not in content["methods"]]
    notes = tuning.notes(methods, rounds, content["test_seeds"])
    notes += [f"not tuned yet, of {len(planned)} methods: {', '.join(left)}; with them p-values are corrected over "
              "more rows, so that verdicts may become weaker"] * bool(left)  # fmt: skip
    title = f"{content['task']}: {content['budget']} points of each method, chosen on seed {content['seeds'][0]}"
    return plain_markdown(tuning.table(title, methods, notes)).strip()


def tuning_record() -> dict[str, Any]:
    """The committed tune.json; empty if there is none."""
    path = ROOT / TUNING / "tune.json"
    return json.loads(path.read_text()) if path.exists() else {}


def flags() -> dict[str, str]:
    """What the preset of the tuning asks for, by flag."""
    lines = [line for line in PRESET.read_text().splitlines() if line.startswith("--")]
    return dict(line.removeprefix("--").split("=", 1) for line in lines)
