"""The tables of studies that are no preset of the paper."""

from docs.parts import ROOT
from experiments.paper import evidence
from experiments.reporting import robustness
from experiments.reporting.loading import load


def under_attack() -> str:
    """The worst cases of the committed study on embedded images."""
    series = load([ROOT / evidence.RESULTS_DIR / "robustness_mini"])
    return robustness.report(robustness.settings_of(series), "Embedded images").strip()
